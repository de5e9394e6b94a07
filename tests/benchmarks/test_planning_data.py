"""The dataset that planning is measured on is the mixture it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planning import RECIPE
from benchmarks.planning_data import CASES, answer, build
from draftmill.dataset.chunks import plan_run
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import open_storage
from draftmill.recipe_file import parse_recipe


@pytest.mark.parametrize(
    ("case", "expected", "kinds"),
    [
        ("first", {"kept": 0, "held": 0, "resumed": 0, "to_ask": 1000, "superseded": 0}, {"new": 1000}),
        ("usual", {"kept": 970, "held": 30, "resumed": 0, "to_ask": 0, "superseded": 0}, {}),
        (
            "new",
            {"kept": 800, "held": 30, "resumed": 20, "to_ask": 150, "superseded": 20},
            {"new": 120, "longer": 30, "changed": 20},
        ),
    ],
)
def test_the_plan_is_the_cases_mixture(
    tmp_path: Path, case: str, expected: dict[str, int], kinds: dict[str, int]
) -> None:
    storage = open_storage(str(tmp_path / "dataset"))
    slices = build(storage, CASES[case], 1000)
    plan = plan_run(storage, parse_recipe(RECIPE, origin="the test"), rows=slices, rejected=[], again=frozenset())
    assert {name: plan[name] for name in expected} == expected
    assert {kind: number for kind, number in plan["kinds"].items() if number} == kinds
    assert plan["removed"] == {"kept": 10, "dropped": 0}
    if plan["succession"]:
        succession = storage.read_table(plan["succession"]["path"])
        sealed = seal(storage, Change(good=answer(storage, plan), succession=succession))
        assert (sealed.tally.good_rows, sealed.tally.superseded) == (800 + 170 + 10, 20)
