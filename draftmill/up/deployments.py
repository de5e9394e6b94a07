"""deployments/prefect.yaml for one machine: the same deployments, with defaults that run here as they are.

What differs: the schedules are off (nobody who tries a thing wants to find it at work at
night; the UI's switch turns one on), and the form of `refresh` holds the whole demo recipe,
its dataset in the local S3 server, its engine the local one: change one number and start it.
Deployments of other work pools are left out.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import yaml

from draftmill.errors import MissingPart
from draftmill.recipe_file import load_recipe
from draftmill.serving.deployments import deployments_folder
from draftmill.serving.prefect_server import POOL

BUCKET = "draftmill"

DATASET = f"s3://{BUCKET}/demo"

TAKE_RECIPE = frozenset({"refresh", "fan-out", "pilot"})
"""Deployments whose form begins with the recipe."""

TAKE_DATASET = frozenset({"rerun", "compact"})
"""Deployments whose form begins with the dataset."""

TAKE_DATASETS = frozenset({"export"})
"""Those that take several."""


def for_this_machine(source: dict[str, Any], *, recipe: dict[str, Any], dataset: str) -> dict[str, Any]:
    """prefect.yaml's data as this machine's; the argument is not changed."""
    data = copy.deepcopy(source)
    data.pop("definitions", None)  # anchors, resolved by now
    data["deployments"] = [each for each in data["deployments"] if each["work_pool"]["name"] == POOL]
    for each in data["deployments"]:
        each["schedules"] = [_off(schedule) for schedule in each.get("schedules", ())]
        if each["name"] in TAKE_RECIPE:
            each["parameters"] = {"recipe": recipe}
        elif each["name"] in TAKE_DATASET:
            each["parameters"] = {**each.get("parameters", {}), "dataset": dataset}
        elif each["name"] in TAKE_DATASETS:
            each["parameters"] = {**each.get("parameters", {}), "datasets": [dataset]}
    return data


def _off(schedule: dict[str, Any]) -> dict[str, Any]:
    """Switched off; once it is on, it runs the form's recipe and not the team's file, which is not here."""
    parameters = {name: value for name, value in schedule.get("parameters", {}).items() if name != "recipe_file"}
    return {**schedule, "active": False, "parameters": parameters}


def demo_recipe(prompts: Path, *, dataset: str, engine: str) -> dict[str, Any]:
    """Every key of the demo's recipe, so that the form shows every number."""
    changes = (f"dataset={dataset}", f"prompts.path={prompts}", f"engine.urls=[{engine}]")
    return load_recipe(deployments_folder() / "recipes" / "demo.yaml", changes).model_dump(mode="json")


def write_deployments(path: Path, *, prompts: Path, engine: str) -> None:
    """The file to be deployed; the example prompts are copied to `prompts` unless they are there."""
    if not prompts.exists():
        shutil.copyfile(_example_prompts(), prompts)
    source = yaml.safe_load((deployments_folder() / "prefect.yaml").read_text(encoding="utf-8"))
    recipe = demo_recipe(prompts, dataset=DATASET, engine=engine)
    data = for_this_machine(source, recipe=recipe, dataset=DATASET)
    head = "# Written by `draftmill up` at each start, from draftmill's own deployments/prefect.yaml.\n"
    text = yaml.dump(data, Dumper=_Plain, sort_keys=False, allow_unicode=True)
    path.write_text(head + text, encoding="utf-8")


class _Plain(yaml.SafeDumper):
    """Without anchors: people read the file."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _example_prompts() -> Path:
    """Beside the deployments, in a clone as in a wheel. Raises MissingPart."""
    found = deployments_folder().parent / "examples" / "prompts.jsonl"
    if not found.is_file():
        raise MissingPart(
            "the example prompts are missing",
            value=found,
            expected="the file that comes with draftmill",
            remedy="install draftmill again",
        )
    return found
