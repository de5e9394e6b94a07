"""Runs one after the other, as plan, parts and commit see them: nothing is asked twice, nothing good is lost."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.dataset import completions
from draftmill.dataset.chunks import plan_run
from draftmill.dataset.commit import commit
from draftmill.dataset.completions import read_completions
from draftmill.dataset.journal import Journal, Key
from draftmill.dataset.manifest import newest
from draftmill.dataset.origin import origin
from draftmill.dataset.rejudge import rejudge
from draftmill.dataset.schema import completions_table, rows_table, table_rows
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import REQUESTS, object_keys, stored_keys
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Answer, Completion, Reason, Row, Verdict

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OK, BAD = Verdict(None, "", None, None, None), Verdict(Reason.DEGENERATE, "a loop", None, None, None)


@dataclass(frozen=True)
class Run:
    """`killed`: before the seal. `bad`: the rows whose new answers are bad."""

    temperature: float = 1.0
    budget: int = 64
    killed: bool = False
    again: bool = False
    bad: frozenset[int] = frozenset()


class NoJournal:
    """A journal that everything has left already."""

    def forget(self, keys: Any) -> None:
        pass


@dataclass
class Mill:
    """A dataset of `prompts`; the answer to number n, attempt 0, is 40 * n ids long, and shorter at each attempt."""

    storage: Storage
    prompts: int = 3
    asked: list[Key] = field(default_factory=list)
    verdicts: dict[Key, Verdict] = field(default_factory=dict)
    came: dict[Key, int] = field(default_factory=dict)

    def recipe(self, run: Run) -> Recipe:
        data = {
            "dataset": "unused",
            "prompts": {"path": "unused"},
            "model": {"name": "m", "context_length": 4096},
            "sampling": {"temperature": run.temperature, "top_p": 1.0, "max_new_tokens": run.budget},
            "chunk_rows": 2,
        }
        return parse_recipe(data, origin="the test")

    def row(self, number: int, run: Run) -> Row:
        key = hashlib.sha256(f"{number} {run.temperature}".encode()).hexdigest()
        ids = ids_array("p", [1, 2])
        return Row(key, 0, f"p{number}", str(number), "default", 0, ids, run.budget, None, "prompts.jsonl")

    def run(self, run: Run) -> dict[str, Any]:
        rows = [self.row(number, run) for number in range(self.prompts)]
        paths = [self.storage.put_table("prompts", rows_table([row])).path for row in rows]
        again = frozenset({str(Reason.DEGENERATE)} if run.again else ())
        plan = plan_run(self.storage, self.recipe(run), rows=paths, rejected=[], again=again)
        change: dict[str, Any] = {"good": [], "bad": []}
        for chunk in plan["chunks"]:
            made = self._generate(chunk, run)
            tables = dataset_rows(made, [self.verdicts[key(item.row)] for item in made])
            for side, folder, table in zip(change, ("shards", "quarantine"), tables, strict=True):
                change[side] += [self.storage.put_table(folder, table)] if table.num_rows else []
        if not run.killed and (change["good"] or change["bad"] or plan["succession"]):
            if plan["succession"]:
                change["succession"] = self.storage.read_table(plan["succession"]["path"])
            commit(self.storage, cast(Journal, NoJournal()), Change(**change))
            self._note_origins()
        return plan

    def rejudge(self, bad: frozenset[int]) -> None:
        """Judges all stored rows anew: those of the numbers `bad` are bad now, all others good."""
        manifest = newest(self.storage)
        assert manifest is not None

        def judge(table: pa.Table) -> list[Verdict]:
            return [BAD if int(prompt) in bad else OK for prompt in table["prompt_id"].to_pylist()]

        judged = rejudge(self.storage, manifest, judge)
        keys = [object_keys(self.storage, refs, good=good) for refs, good in ((judged.good, True), (judged.bad, False))]
        dropped = pa.concat_tables(keys).select(REQUESTS.names)
        seal(self.storage, Change(good=judged.good, bad=judged.bad, dropped=dropped))
        self._note_origins()

    def _note_origins(self) -> None:
        """Rows that were not there before came with the newest version."""
        manifest = newest(self.storage)
        assert manifest is not None
        self.came = {key: self.came.get(key, manifest.version) for key in self.origins()}

    def origins(self) -> dict[Key, int]:
        """The version that brought each row, as the newest manifest says."""
        manifest = newest(self.storage)
        assert manifest is not None
        return {
            key: origin(manifest, ref.path, index)
            for ref in (*manifest.shards, *manifest.quarantine)
            for index, key in enumerate(
                zip(*self.storage.read_table(ref.path, REQUESTS.names).to_pydict().values(), strict=True)
            )
        }

    def _generate(self, chunk: dict[str, Any], run: Run) -> list[Completion]:
        rows = table_rows(self.storage.read_table(chunk["rows"]["path"]))
        known = read_completions(self.storage, chunk["parts"], [key(row) for row in rows])
        assert len(known) == chunk["resumed"]
        for row in rows:
            if key(row) not in known:
                self.asked.append(key(row))
                self.verdicts[key(row)] = BAD if int(row.prompt_id) in run.bad else OK
                known[key(row)] = answer(row)
        made = [known[key(row)] for row in rows]
        self.storage.put_table(completions.FOLDER, completions_table(made))
        return made

    def standing(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = stored_keys(self.storage, newest(self.storage)).to_pylist()
        return rows


def key(row: Row) -> Key:
    return row.row_key, row.attempt


def answer(row: Row) -> Completion:
    length = max(1, 40 * int(row.prompt_id) - row.attempt)
    cut = length > row.max_new_tokens
    ids = ids_array("o", [7] * min(length, row.max_new_tokens))
    finish = "length" if cut else "stop"
    return Completion(row, Answer(ids, None, 2, len(ids), finish, len(ids) if cut else None, None, "e", None, WHEN))


@pytest.fixture
def mill(storage: Storage) -> Mill:
    return Mill(storage)


def test_temperature_away_and_back_asks_nothing_and_brings_the_newest_attempt(mill: Mill) -> None:
    mill.run(Run(bad=frozenset({1})))
    mill.run(Run(again=True))
    before = mill.standing()
    assert {row["attempt"] for row in before} == {0, 1}
    mill.run(Run(temperature=0.5))
    assert not {row["row_key"] for row in before} & {row["row_key"] for row in mill.standing()}
    back = mill.run(Run())
    assert (back["to_ask"], back["resumed"], back["superseded"]) == (0, 3, 3)
    names = ("row_key", "attempt", "good")
    assert sorted([row[name] for name in names] for row in mill.standing()) == sorted(
        [row[name] for name in names] for row in before
    )


def test_a_killed_run_with_a_smaller_budget_leaves_no_cut_row(mill: Mill) -> None:
    mill.run(Run(budget=32, killed=True))
    plan = mill.run(Run(budget=100))
    assert (plan["resumed"], plan["to_ask"]) == (1, 2)
    assert {row["finish_reason"] for row in mill.standing()} == {"stop"}
    assert mill.run(Run(budget=100))["to_ask"] == 0


def test_bad_answers_at_another_temperature_cost_no_good_row(mill: Mill) -> None:
    mill.run(Run())
    mill.run(Run(temperature=0.5, bad=frozenset({0, 2})))
    assert sorted((row["prompt_key"], row["good"]) for row in mill.standing()) == [
        ("p0", False),
        ("p0", True),
        ("p1", True),
        ("p2", False),
        ("p2", True),
    ]
    quiet = mill.run(Run(temperature=0.5))
    assert (quiet["to_ask"], quiet["held"], quiet["carried"], quiet["superseded"]) == (0, 2, 2, 0)
    mill.run(Run(temperature=0.5, again=True))
    assert sorted((row["prompt_key"], row["attempt"], row["good"]) for row in mill.standing()) == [
        ("p0", 1, True),
        ("p1", 0, True),
        ("p2", 1, True),
    ]


def test_five_nights_and_every_row_knows_the_version_that_brought_it(mill: Mill) -> None:
    mill.run(Run(budget=64, bad=frozenset({1})))  # 1: two good ones (one cut), a bad one
    mill.prompts = 5
    mill.run(Run(budget=100, bad=frozenset({3})))  # 2: two new ones, and the cut one again
    mill.rejudge(frozenset({0}))  # 3: by other rules another is bad, and two are good
    mill.run(Run(budget=100, again=True))  # 4: the bad one is asked again
    mill.prompts = 3
    mill.run(Run(temperature=0.5, budget=100))  # 5: another temperature for three of them
    manifest = newest(mill.storage)
    assert manifest is not None
    assert manifest.version == 5
    assert mill.origins() == mill.came
    assert sorted(mill.came.values()) == [2, 2, 5, 5, 5]
    assert {row["object"] for row in mill.standing()} == {ref.path for ref in (*manifest.shards, *manifest.quarantine)}


def test_a_row_judged_anew_keeps_its_origin(mill: Mill) -> None:
    mill.run(Run(bad=frozenset({1})))
    before = mill.origins()
    mill.prompts = 4
    mill.run(Run())
    mill.rejudge(frozenset({0, 3}))
    now = mill.origins()
    assert {key: now[key] for key in before} == before == dict.fromkeys(before, 1)
    assert set(now.values()) == {1, 2}


RUNS = st.builds(
    Run,
    temperature=st.sampled_from([0.5, 1.0]),
    budget=st.sampled_from([32, 64, 100]),
    killed=st.booleans(),
    again=st.booleans(),
    bad=st.frozensets(st.integers(0, 2)),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(RUNS, min_size=2, max_size=5))
def test_whatever_runs_follow_each_other(runs: list[Run]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mill = Mill(open_storage(folder))
        for number, run in enumerate(runs):
            good_before = {row["prompt_key"] for row in mill.standing() if row["good"]}
            plan = mill.run(run)
            assert len(mill.asked) == len(set(mill.asked))
            standing = mill.standing()
            assert not standing or mill.origins() == mill.came
            assert good_before <= {row["prompt_key"] for row in standing if row["good"]}
            if not run.killed:
                planned = {mill.row(n, run).row_key for n in range(mill.prompts)}
                good = {row["prompt_key"] for row in standing if row["good"] and row["row_key"] in planned}
                assert all(row["row_key"] in planned for row in standing if row["prompt_key"] in good)
            # Without attempts made for their reason, the newest has the largest budget: all that was had comes back.
            if not any(each.again for each in runs[: number + 1]) and any(
                each.temperature == run.temperature and each.budget >= run.budget for each in runs[:number]
            ):
                assert plan["to_ask"] == 0
            assert mill.run(replace(run, again=False, killed=True))["to_ask"] == 0
