"""The deployments of `draftmill up` are those of deployments/prefect.yaml but for what this machine needs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill.recipe import Recipe
from draftmill.recipe_file import load_recipe
from draftmill.serving.deployments import deployments_folder
from draftmill.up.deployments import (
    DATASET,
    TAKE_DATASET,
    TAKE_DATASETS,
    TAKE_RECIPE,
    for_this_machine,
    write_deployments,
)

ENGINE = "http://127.0.0.1:30001"


@pytest.fixture
def source() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((deployments_folder() / "prefect.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Any]:
    write_deployments(tmp_path / "prefect.yaml", prompts=tmp_path / "prompts.jsonl", engine=ENGINE)
    found: dict[str, Any] = yaml.safe_load((tmp_path / "prefect.yaml").read_text(encoding="utf-8"))
    return found


def test_only_the_named_parts_differ(source: dict[str, Any], written: dict[str, Any]) -> None:
    expected = copy.deepcopy(source)
    expected.pop("definitions", None)
    for theirs, ours in zip(expected["deployments"], written["deployments"], strict=True):
        for schedule in theirs.get("schedules", ()):
            schedule["active"] = False
            schedule["parameters"].pop("recipe_file", None)
        theirs.setdefault("schedules", [])
        if theirs["name"] in TAKE_RECIPE:
            theirs["parameters"] = {"recipe": ours["parameters"]["recipe"]}
        elif theirs["name"] in TAKE_DATASET:
            theirs["parameters"] = {"dataset": DATASET}
        elif theirs["name"] in TAKE_DATASETS:
            theirs["parameters"] = {"datasets": [DATASET]}
    assert written == expected


def test_every_deployment_has_what_its_form_begins_with(source: dict[str, Any]) -> None:
    names = {each["name"] for each in source["deployments"]}
    assert names == TAKE_RECIPE | TAKE_DATASET | TAKE_DATASETS | {"partition"}, (
        "a new deployment: what does its form begin with?"
    )


def test_the_form_has_every_key_of_the_demos_recipe(written: dict[str, Any], tmp_path: Path) -> None:
    (refresh,) = (each for each in written["deployments"] if each["name"] == "refresh")
    recipe = refresh["parameters"]["recipe"]
    assert set(recipe) == set(Recipe.model_fields)
    demo = load_recipe(deployments_folder() / "recipes" / "demo.yaml").model_dump(mode="json")
    demo["dataset"], demo["engine"]["urls"] = DATASET, [ENGINE]
    demo["prompts"]["path"] = [str(tmp_path / "prompts.jsonl")]
    assert recipe == demo


def test_no_run_begins_by_itself(written: dict[str, Any]) -> None:
    schedules = [each for deployment in written["deployments"] for each in deployment["schedules"]]
    assert schedules
    assert not any(schedule["active"] for schedule in schedules)


def test_other_work_pools_are_left_out(source: dict[str, Any]) -> None:
    source["deployments"][0]["work_pool"] = {"name": "kubernetes"}
    made = for_this_machine(source, recipe={}, dataset=DATASET)
    assert [each["name"] for each in made["deployments"]] == [each["name"] for each in source["deployments"][1:]]


def test_prompts_that_somebody_changed_stay(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    write_deployments(tmp_path / "prefect.yaml", prompts=prompts, engine=ENGINE)
    assert len(prompts.read_text().splitlines()) == 48
    prompts.write_text('{"text": "mine"}\n')
    write_deployments(tmp_path / "prefect.yaml", prompts=prompts, engine=ENGINE)
    assert prompts.read_text() == '{"text": "mine"}\n'
