"""What a run makes of its parameters: one recipe, changes on top, and what cannot be said in the run's own state."""

from __future__ import annotations

import shutil
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.client.orchestration import get_client
from prefect.client.schemas import State
from prefect.client.schemas.sorting import FlowRunSort
from prefect.flow_engine import run_flow_async

from draftmill.dataset.stored_recipe import stored_recipe
from draftmill.errors import RecipeError
from draftmill.generation.night import parse_until, span_s
from draftmill.recipe import anchored
from flows.compact import compact
from flows.parameters import UNTIL, chosen_recipe, recipe_label
from flows.refresh import refresh
from flows.rerun import rerun


def assert_four_parts(state: State, *words: str) -> None:
    assert state.is_failed()
    message = state.message or ""
    assert all(part in message for part in ("got: ", "expected: ", "to do: ")), message
    assert all(word in message for word in words), message


async def test_a_recipe_and_a_file_give_the_same_and_changes_come_on_top(mill) -> None:
    changes = ["sampling.temperature=0.6", "prompts.limit=null", "breaker=off"]
    wanted = mill.recipe(sampling__temperature=0.6)
    recipe = mill.recipe(prompts__limit=7, breaker={"share": 0.5})
    assert await chosen_recipe(recipe, None, changes) == anchored(wanted)
    file = mill.recipe_file(prompts__limit=7, breaker={"share": 0.5})
    assert await chosen_recipe(None, file, changes) == await chosen_recipe(recipe, None, changes)
    assert recipe.prompts.limit == 7, "the parameter itself stays"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((False, False, None), ("neither recipe nor recipe_file", "recipe_file (a YAML file")),
        ((True, True, None), ("both recipe and recipe_file", "one of the two")),
        ((True, False, ["sampling.temprature=1"]), ("sampling.temprature", "temperature")),
        ((True, False, ["sampling.top_p"]), ("key=value", "changes")),
        ((False, True, ["sampling.top_p=7"]), ("sampling.top_p = 7", "less than or equal to 1")),
    ],
)
async def test_parameters_that_come_to_no_recipe_end_the_run_with_words(mill, given, words) -> None:
    has_recipe, has_file, changes = given
    recipe, file = mill.recipe() if has_recipe else None, mill.recipe_file() if has_file else None
    with pytest.raises(RecipeError):
        await chosen_recipe(recipe, file, changes)
    assert_four_parts(await refresh(recipe, file, changes, return_state=True), *words)


async def test_a_recipe_file_that_is_not_there(mill) -> None:
    state = await refresh(recipe_file=str(mill.folder / "none.yaml"), return_state=True)
    assert_four_parts(state, "none.yaml", "deployments/recipes/")


def test_a_run_is_called_by_what_is_known_before_it_begins(mill) -> None:
    assert recipe_label(mill.recipe(), None) == "dataset"
    assert recipe_label(None, "/srv/recipes/kimi.yaml") == "kimi"
    assert recipe_label(None, None) == ""


async def test_a_run_of_a_file_with_changes_and_a_rerun_of_its_recipe(mill, fake_server) -> None:
    mill.prompts(["a", "b", "c"])
    async with fake_server() as fake:
        mill.url = fake.url
        state = await refresh(recipe_file=mill.recipe_file(), changes=["prompts.limit=2"], return_state=True)
        assert (state.name, len(mill.rows())) == ("Completed", 2)
        assert stored_recipe(mill.dataset, ["degenerate=off"]).degenerate == "off"
        before = len(fake.log)
        state = await rerun(mill.dataset, return_state=True)
        assert (state.name, len(fake.log) - before) == ("Completed", 0)
        state = await rerun(mill.dataset, changes=["prompts.limit=null"], generate=True, return_state=True)
        assert (state.name, len(mill.rows())) == ("Completed", 3)
    assert mill.manifest.recipe["prompts"]["limit"] is None
    assert_four_parts(await rerun(mill.dataset, reasons=["truncated"], return_state=True), "without generate")
    assert_four_parts(await rerun(mill.dataset, changes=["dataset=/elsewhere"], return_state=True), "/elsewhere")
    assert_four_parts(await rerun(str(mill.folder), return_state=True), "no dataset there")
    moved = shutil.move(mill.dataset, mill.folder / "moved")
    assert stored_recipe(str(moved)).dataset == str(moved)


async def test_compact_says_its_numbers_and_that_there_is_nothing_to_do(mill, fake_server) -> None:
    mill.prompts([f"prompt {number}" for number in range(8)])
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
    state = await compact(mill.dataset, return_state=True)
    assert (state.name, state.message) == ("Completed", "manifest 2, 2 objects -> 1, the same rows")
    assert (await state.aresult())["objects"] == {"before": 2, "after": 1}
    state = await compact(mill.dataset, return_state=True)
    assert state.message == "nothing to compact in 1 objects, no new manifest"
    async with get_client() as client:
        (run,) = await client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
    assert run.name == "compact dataset"
    assert_four_parts(await compact(str(mill.folder), return_state=True), "no dataset there")


async def test_a_parameter_that_there_is_not_is_named_by_the_run(mill) -> None:
    """Prefect makes a run of it all the same."""
    async with get_client() as client:
        run = await client.create_flow_run(refresh, parameters={"recipe_file": "r.yaml", "recipie": "x"})
        state = await run_flow_async(
            refresh, flow_run=run, parameters={"recipe_file": "r.yaml", "recipie": "x"}, return_type="state"
        )
    assert state.is_failed() or state.is_crashed()
    assert "recipie" in (state.message or "")


async def test_a_wrong_recipe_that_nothing_checked_before_is_named_by_the_run_without_its_value(mill) -> None:
    data = mill.data() | {"engine": {"urls": ["http://user:hunter2@host"]}}
    async with get_client() as client:
        run = await client.create_flow_run(refresh, parameters={})
        state = await run_flow_async(refresh, flow_run=run, parameters={"recipe": data}, return_type="state")
    assert state.is_failed()
    assert "recipe.engine.urls" in (state.message or "")
    assert "hunter2" not in (state.message or "")


@given(text=st.from_regex(UNTIL, fullmatch=True))
def test_what_the_form_takes_for_a_time_is_one(text: str) -> None:
    if ":" in text or span_s(text):
        parse_until(text, datetime(2026, 3, 10, 22, 30))
    else:
        assert set(text) <= set("0hms"), "no time at all, which a pattern cannot tell"


async def test_a_recipe_that_is_not_there_is_named_by_its_whole_path(mill, monkeypatch) -> None:
    monkeypatch.chdir(mill.folder)
    with pytest.raises(RecipeError) as refused:
        await chosen_recipe(None, "recipes/night.yaml", None)
    assert str(refused.value.value) == str(mill.folder / "recipes/night.yaml")
    assert "worker" in refused.value.expected
