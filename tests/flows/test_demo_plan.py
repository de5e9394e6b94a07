"""The demo's recipe, as it is written, up to its plan."""

from __future__ import annotations

from pathlib import Path

from draftmill.recipe_file import load_recipe
from flows.refresh import refresh

DEMO = Path(__file__).parents[2] / "deployments" / "recipes" / "demo.yaml"


async def test_the_demos_plan(tmp_path: Path, monkeypatch) -> None:
    # Its paths begin at the repository's root, as its own first lines say.
    monkeypatch.chdir(DEMO.parents[2])
    recipe = load_recipe(str(DEMO), (f"dataset={tmp_path / 'demo-dataset'}",))
    state = await refresh(recipe=recipe, plan_only=True, return_state=True)
    assert state.message == "48 rows to ask"
