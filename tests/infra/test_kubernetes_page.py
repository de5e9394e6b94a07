"""docs/kubernetes.md and docs/team.md: blocks parse, names meet, versions and flags are those of the code."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml

from draftmill.serving.prefect_server import POOL, SETTINGS
from tests.infra.claims import ROOT, check_command, known_variable, locked, sglang_flags, version
from tests.infra.dockerfile import named
from tests.infra.test_compose import COMPOSE, SERVICES
from tests.infra.test_compose import PATH as COMPOSE_PATH

PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
TEAM = (ROOT / "docs" / "team.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OBJECTS: list[dict[str, Any]] = [each for block in BLOCKS for each in yaml.safe_load_all(block)]
KINDS = {(each["kind"], each["metadata"]["name"]): each for each in OBJECTS if "kind" in each}
SERVER, WORKER = (each for each in OBJECTS if "kind" not in each)
TEMPLATE = json.loads((ROOT / "deployments" / "job-templates" / "kubernetes.json").read_text(encoding="utf-8"))

CHARTS = {
    "server": """global.prefect.image.repository global.prefect.image.prefectTag global.prefect.env
        server.basicAuth.enabled server.basicAuth.existingSecret server.uiConfig.prefectUiApiUrl server.env
        server.resources.requests server.resources.limits server.updateStrategy server.extraVolumes
        server.extraVolumeMounts postgresql.enabled secret.create secret.name""",
    "worker": """worker.image.repository worker.image.prefectTag worker.config.workPool worker.config.type
        worker.config.installPolicy worker.config.baseJobTemplate.configuration worker.apiConfig
        worker.serverApiConfig.apiUrl worker.basicAuth.enabled worker.basicAuth.existingSecret
        worker.livenessProbe.enabled""",
}
"""The values the page sets, as the charts' values.yaml and values.schema.json of 2025 have them."""


def deployment() -> dict[str, Any]:
    spec: dict[str, Any] = KINDS["Deployment", "sglang"]["spec"]["template"]["spec"]
    return spec


def settings(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in entries}


def has(values: Any, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def leaves(values: dict[str, Any], known: set[str], path: str = "") -> set[str]:
    """Paths of what is set, down to those that are known or to a value."""
    found: set[str] = set()
    for name, value in values.items():
        here = f"{path}{name}"
        found |= {here} if here in known or not isinstance(value, dict) else leaves(value, known, f"{here}.")
    return found


@pytest.mark.parametrize(("chart", "values"), [("server", SERVER), ("worker", WORKER)])
def test_the_charts_know_what_is_set(chart: str, values: dict[str, Any]) -> None:
    known = set(CHARTS[chart].split())
    assert leaves(values, known) <= known
    by_option = set(re.findall(r"--set-file (\S+)=", PAGE))
    assert {path for path in known if not has(values, path)} <= by_option


def test_versions() -> None:
    prefect = locked("prefect")
    assert SERVER["global"]["prefect"]["image"]["prefectTag"] == f"{prefect}-python3.11"
    assert WORKER["worker"]["image"]["prefectTag"] == f"{prefect}-python3.11-kubernetes"
    assert set(re.findall(r"draftmill:(\d[\w.]*\w)", PAGE + TEAM)) == {version()}
    assert deployment()["containers"][0]["image"] == SERVICES["sglang"]["image"]
    for name, image in re.findall(r"^\| `(\w+)`(?:, `\w+`)? \| `([^`]+)` \|", TEAM, re.MULTILINE):
        assert SERVICES[name]["image"] == image


def test_the_server_is_set_as_everywhere() -> None:
    given = settings(SERVER["global"]["prefect"]["env"]) | settings(SERVER["server"]["env"])
    assert SETTINGS.items() <= given.items()
    assert [name for name in given if not known_variable(name)] == []
    (mount,) = SERVER["server"]["extraVolumeMounts"]
    assert given["PREFECT_HOME"] == mount["mountPath"]


def test_what_is_named_is_made() -> None:
    secrets = set(re.findall(r"create secret generic (\S+)", PAGE))
    assert {SERVER["secret"]["name"], SERVER["server"]["basicAuth"]["existingSecret"]} <= secrets
    assert WORKER["worker"]["basicAuth"]["existingSecret"] in secrets
    job = KINDS["Job", "draftmill-deploy"]["spec"]["template"]["spec"]["containers"][0]
    assert {source["secretRef"]["name"] for source in job["envFrom"]} <= secrets
    claims = {name for kind, name in KINDS if kind == "PersistentVolumeClaim"}
    asked = {volume["persistentVolumeClaim"]["claimName"] for volume in SERVER["server"]["extraVolumes"]}
    asked |= {volume["persistentVolumeClaim"]["claimName"] for volume in deployment()["volumes"][:1]}
    defaults = {name: each.get("default") for name, each in TEMPLATE["variables"]["properties"].items()}
    assert asked | {defaults["state_claim"]} == claims
    assert defaults["secret_name"] in secrets
    address = settings(job["env"])["PREFECT_API_URL"]
    assert address == WORKER["worker"]["serverApiConfig"]["apiUrl"]
    assert address.startswith("http://prefect-server.draftmill.svc.cluster.local:4200/")


def test_the_job_template_fits_the_image() -> None:
    pod = TEMPLATE["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    (volume,), (user,) = named("VOLUME"), named("USER")
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == volume.text
    assert str(pod["securityContext"]["runAsUser"]) == user.text
    assert "command" not in pod["containers"][0]  # the image's init stays


def test_its_commands_exist() -> None:
    script = KINDS["Job", "draftmill-deploy"]["spec"]["template"]["spec"]["containers"][0]["args"][2]
    job = KINDS["Job", "draftmill-deploy"]["spec"]["template"]["spec"]
    (mount,), (folder,) = job["containers"][0]["volumeMounts"], named("WORKDIR")[1:]
    assert f"{mount['mountPath']}/prefect.yaml" in f"{folder.text}/{script}".replace(" ", f" {folder.text}/")
    assert job["volumes"][0]["configMap"]["name"] in re.findall(r"create configmap (\S+)", PAGE)
    told = re.findall(r"`(prefect [^`]+)`", " ".join(PAGE.split()))
    assert told
    for line in [*script.splitlines(), *told]:
        check_command(shlex.split(line))
    for path in re.findall(r"[= ](deployments/\S+?\.(?:json|yaml))", PAGE):
        assert (ROOT / path).exists()


def test_the_pools_of_the_deployments_are_these() -> None:
    pools = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text(encoding="utf-8"))["definitions"]["pools"]
    assert pools["process"]["name"] == POOL
    kubernetes, docker = pools["kubernetes"], pools["docker"]
    assert WORKER["worker"]["config"]["workPool"] == kubernetes["name"]
    assert {pool["job_variables"]["image"] for pool in (kubernetes, docker)} == {f"draftmill:{version()}"}
    assert docker["name"] in TEAM
    assert docker["job_variables"]["networks"] == [COMPOSE["networks"]["draftmill"]["name"]]
    (volume,) = named("VOLUME")
    assert f"{COMPOSE['volumes']['state']['name']}:{volume.text}" in docker["job_variables"]["volumes"]


def test_sglang_is_given_the_time_its_health_takes() -> None:
    container = deployment()["containers"][0]
    for name in ("startupProbe", "livenessProbe"):
        probe = container[name]
        assert probe["httpGet"] == {"path": "/health", "port": "http"}
        assert probe["timeoutSeconds"] > 20
        assert probe["periodSeconds"] >= probe["timeoutSeconds"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 2 * 3600


def test_sglang_flags_ports_and_gpus() -> None:
    container = deployment()["containers"][0]
    given = dict(word.partition("=")[::2] for word in container["args"])
    assert set(given) <= sglang_flags()[1]
    assert int(given["--port"]) == container["ports"][0]["containerPort"]
    assert int(given["--port"]) == KINDS["Service", "sglang"]["spec"]["ports"][0]["port"]
    assert int(given["--tp-size"]) == container["resources"]["limits"]["nvidia.com/gpu"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in deployment()["volumes"]}


def test_the_page_for_a_team_names_services_and_files_that_exist() -> None:
    named_services = set(re.findall(r"^\| `(\w+)`(?:, `(\w+)`)?", TEAM, re.MULTILINE))
    assert {name for pair in named_services for name in pair if name} == set(SERVICES)
    commands = re.findall(r"^docker compose (.*)$", TEAM, re.MULTILINE)
    assert len(commands) == 6
    assert all(f"--file {COMPOSE_PATH.relative_to(ROOT)} " in line for line in commands)
    example = (ROOT / "infra" / "compose.env.example").read_text(encoding="utf-8")
    for name in re.findall(r"`([A-Z][A-Z_]{3,})`", TEAM):
        assert f"{name}=" in example, name
