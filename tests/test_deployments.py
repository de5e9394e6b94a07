"""deployments/: every entrypoint and parameter exists, every job variable is a worker's own, nothing is secret."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from prefect import Flow
from prefect.cli.deploy._schedules import _schedule_config_to_deployment_schedule
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import validate
from prefect.workers.process import ProcessWorker

from draftmill.errors import MissingPart
from draftmill.recipe_file import load_recipe
from draftmill.serving.deployments import deployments_folder
from draftmill.serving.prefect_server import POOL
from flows.alarms import NOTIFIED
from flows.launch import TAG

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deployments"
FILE: dict[str, Any] = yaml.safe_load((FOLDER / "prefect.yaml").read_text(encoding="utf-8"))
DEPLOYMENTS: list[dict[str, Any]] = FILE["deployments"]
POOLS: dict[str, dict[str, Any]] = FILE["definitions"]["pools"]

each_deployment = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda each: each["name"])


def _schema(deployment: dict[str, Any]) -> dict[str, Any]:
    return parameter_schema(load_flow_from_entrypoint(deployment["entrypoint"])).model_dump()


def _job_variables() -> dict[str, set[str]]:
    """Of each kind of worker, as its package has them."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "tests" / "golden" / "prefect" / "job_variables.txt").read_text().splitlines():
        words = line.split("#")[0]
        if words.strip() and not words.startswith(" "):
            found[kind := words.strip()] = set()
        elif words.strip():
            found[kind].add(words.strip())
    return found


@each_deployment
def test_a_deployment_is_a_flow_of_the_same_name(deployment: dict[str, Any]) -> None:
    flow = load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)
    assert isinstance(flow, Flow)
    assert flow.name == deployment["name"]
    # With a colon, Prefect looks for the folder of the machine that deployed.
    assert ":" not in deployment["entrypoint"]
    assert deployment["description"].endswith(".")
    assert deployment["tags"] == [TAG]
    assert deployment["work_pool"] == POOLS["process"]


def test_every_flow_is_deployed() -> None:
    files = {path.stem.replace("_", "-") for path in (ROOT / "flows").glob("*.py") if "@flow(" in path.read_text()}
    assert files == {each["name"] for each in DEPLOYMENTS}
    assert set(NOTIFIED) == files - {"partition"}


@each_deployment
def test_parameters_are_what_the_form_takes(deployment: dict[str, Any]) -> None:
    schema = _schema(deployment)
    given = [deployment.get("parameters", {})]
    given += [deployment.get("parameters", {}) | each["parameters"] for each in deployment.get("schedules", [])]
    for parameters in given:
        assert set(parameters) <= set(schema["properties"])
        validate(parameters, schema | {"required": []}, raise_on_error=True, preprocess=True)


def test_a_collision_is_decided() -> None:
    limits = {each["name"]: each.get("concurrency_limit") for each in DEPLOYMENTS}
    found = {name: limit and ConcurrencyLimitConfig(**limit) for name, limit in limits.items()}
    decided = {name: limit and (limit.limit, limit.collision_strategy.value) for name, limit in found.items()}
    assert decided == {
        "refresh": (1, "CANCEL_NEW"),
        "rerun": (1, "ENQUEUE"),
        "compact": (1, "ENQUEUE"),
        "export": (1, "ENQUEUE"),
        "fan-out": (1, "CANCEL_NEW"),
        "pilot": (1, "CANCEL_NEW"),
        "partition": None,
    }


def test_the_night() -> None:
    (schedule,) = [schedule for each in DEPLOYMENTS for schedule in each.get("schedules", [])]
    made = DeploymentScheduleCreate(**_schedule_config_to_deployment_schedule(schedule))
    assert (made.slug, made.active) == ("nightly", False)  # nobody has the servers of an example
    assert ZoneInfo(made.schedule.timezone)
    assert load_recipe(str(ROOT / made.parameters["recipe_file"]))
    # YAML 1.1 reads a bare 06:00 as 360.
    assert made.parameters["until"] == "06:00"


@pytest.mark.parametrize("kind", POOLS)
def test_job_variables_are_the_workers_own(kind: str) -> None:
    known = _job_variables()[kind]
    if kind == "kubernetes":
        template = json.loads((FOLDER / "job-templates" / "kubernetes.json").read_text())
        properties = template["variables"]["properties"]
        assert set(properties) == known | {"secret_name", "state_claim"}
        used = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
        assert used == set(properties)
        known = set(properties)
        validate(POOLS[kind]["job_variables"], template["variables"], raise_on_error=True, preprocess=False)
    assert set(POOLS[kind]["job_variables"]) <= known


def test_the_snapshot_is_this_prefects() -> None:
    variables = ProcessWorker.get_default_base_job_template()["variables"]["properties"]
    assert set(variables) == _job_variables()["process"]


def test_the_pools() -> None:
    assert [POOLS[kind]["name"] for kind in ("process", "docker", "kubernetes")] == [
        POOL,
        f"{POOL}-docker",
        f"{POOL}-kubernetes",
    ]
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    for kind in ("docker", "kubernetes"):
        assert POOLS[kind]["job_variables"]["image"] == f"draftmill:{version[1]}"


def test_no_value_of_a_secret() -> None:
    # What Prefect resolves when it deploys is then stored in clear: blocks and the deployer's environment.
    text = json.dumps([DEPLOYMENTS, POOLS])
    assert "{{" not in text
    for kind in ("docker", "kubernetes"):
        names = set(POOLS[kind]["job_variables"]["env"])
        assert not {name for name in names if re.search("KEY|SECRET|TOKEN|PASSWORD|AUTH", name)}


def test_the_docker_anchor_fits_the_image() -> None:
    dockerfile = (ROOT / "infra" / "Dockerfile").read_text()
    for kind in ("docker", "kubernetes"):
        for name in ("DRAFTMILL_STATE", "HF_HOME"):
            assert POOLS[kind]["job_variables"]["env"][name] in dockerfile
    template = (FOLDER / "job-templates" / "kubernetes.json").read_text()
    (user,) = re.findall(r'"runAsUser": (\d+)', template)
    assert user in dockerfile
    assert "/srv/draftmill" in dockerfile


def test_where_they_are() -> None:
    assert deployments_folder() == FOLDER


def test_a_wheel_has_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert forced == {"deployments": "draftmill/deployments", "examples": "draftmill/examples"}


def test_a_wheels_come_first_and_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "draftmill"
    monkeypatch.setattr("draftmill.__file__", str(package / "__init__.py"))
    with pytest.raises(MissingPart, match="install draftmill again"):
        deployments_folder()
    for folder in (tmp_path / "deployments", package / "deployments"):
        folder.mkdir(parents=True)
        (folder / "prefect.yaml").touch()
        assert deployments_folder() == folder
