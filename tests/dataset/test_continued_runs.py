"""Runs one after the other that ask rows on: whoever is killed when, each id of an answer is generated once."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.dataset import completions
from draftmill.dataset.chunks import plan_run
from draftmill.dataset.commit import commit
from draftmill.dataset.completions import read_completions
from draftmill.dataset.journal import Journal, Key
from draftmill.dataset.manifest import newest
from draftmill.dataset.priors import read_priors
from draftmill.dataset.schema import completions_table, rows_table, table_rows
from draftmill.dataset.seal import Change
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import Storage, open_storage
from draftmill.generation.continuing import first_request, goes_on, joined, slice_of, total_of
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Answer, Completion, Reason, Row, Verdict

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OK, CUT = Verdict(None, "", None, None, None), Verdict(Reason.TRUNCATED, "", None, None, None)
PROMPTS = 3
END = 2


@dataclass(frozen=True)
class Run:
    """`rounds`: the requests after which the run is killed, before its seal; None: it ends well."""

    slice_tokens: int
    times: int
    on_truncated: str = "continue"
    rounds: int | None = None


class NoJournal:
    """A journal that everything has left already."""

    def forget(self, keys: Any) -> None:
        pass


def said(number: int) -> list[int]:
    """What the model answers to prompt `number`."""
    return [*range(100 * (number + 1), 100 * (number + 1) + 9 * number + 3), END]


@dataclass
class Mill:
    """`generated`: by prompt, how often each id of its answer came from the server."""

    storage: Storage
    generated: Counter[tuple[int, int]] = field(default_factory=Counter)

    def run(self, run: Run) -> None:
        recipe = self._recipe(run)
        rows = [self._row(number, total_of(recipe)) for number in range(PROMPTS)]
        paths = [self.storage.put_table("prompts", rows_table(rows)).path]
        plan = plan_run(self.storage, recipe, rows=paths, rejected=[], again=frozenset())
        rounds = iter(range(10**6 if run.rounds is None else run.rounds))
        made = [item for chunk in plan["chunks"] for item in self._generate(chunk, slice_of(recipe), rounds)]
        if run.rounds is None and made:
            quarantine = run.on_truncated == "quarantine"
            verdicts = [CUT if quarantine and item.answer.finish_type == "length" else OK for item in made]
            good, bad = (
                [self.storage.put_table(folder, table)] if table.num_rows else []
                for folder, table in zip(("shards", "quarantine"), dataset_rows(made, verdicts), strict=True)
            )
            commit(self.storage, cast(Journal, NoJournal()), Change(good=good, bad=bad))

    def _recipe(self, run: Run) -> Recipe:
        data = {
            "dataset": "unused",
            "prompts": {"path": "unused"},
            "model": {"name": "m", "context_length": 4096},
            "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": run.slice_tokens},
            "on_truncated": run.on_truncated,
            "continue_times": run.times,
            "chunk_rows": 2,
        }
        return parse_recipe(data, origin="the test")

    def _row(self, number: int, budget: int) -> Row:
        key = hashlib.sha256(str(number).encode()).hexdigest()
        ids = ids_array("p", [number, 7])
        return Row(key, 0, f"p{number}", str(number), "default", 0, ids, budget, None, "prompts.jsonl")

    def _generate(self, chunk: dict[str, Any], slice_tokens: int | None, rounds: Iterator[int]) -> list[Completion]:
        rows = table_rows(self.storage.read_table(chunk["rows"]["path"]))
        known = read_completions(self.storage, chunk["parts"], [row.key for row in rows])
        reference = chunk["priors"]
        priors = read_priors(self.storage, self.storage.read_table(reference["path"])) if reference else {}
        assert len(known) == chunk["resumed"]
        done = [known[row.key] for row in rows if row.key in known]
        for row in rows:
            if row.key not in known:
                done += [made] if (made := self._ask(row, priors, slice_tokens, rounds)) else []
        return done

    def _ask(
        self, row: Row, priors: dict[Key, Answer], slice_tokens: int | None, rounds: Iterator[int]
    ) -> Completion | None:
        """All rounds of a row, each of them a part at once; None when the run was killed between them."""
        step: tuple[Row, Answer | None] | None = (row, priors.get(row.key))
        made = None
        while step is not None:
            if next(rounds, None) is None:
                return None
            sent = first_request(*step, slice_tokens)
            made = joined(*step, self._answer(sent), sent=sent)
            self.storage.put_table(completions.FOLDER, completions_table([made]))
            step = goes_on(step[0], made, slice_tokens)
        return made

    def _answer(self, sent: Row) -> Answer:
        number, done = int(sent.prompt_id), len(sent.prompt_ids) - 2
        new = said(number)[done : done + sent.max_new_tokens]
        self.generated.update((number, done + position) for position in range(len(new)))
        finish, length = ("stop", None) if new[-1:] == [END] else ("length", len(new))
        return Answer(ids_array("o", new), None, len(sent.prompt_ids), len(new), finish, length, None, "e", None, WHEN)

    def answers(self) -> dict[int, list[int]]:
        """By prompt the ids that stand, good or bad."""
        manifest = newest(self.storage)
        refs = [*manifest.shards, *manifest.quarantine] if manifest else []
        rows = [row for ref in refs for row in self.storage.read_table(ref.path).to_pylist()]
        assert len({row["row_key"] for row in rows}) == len(rows)
        return {int(row["prompt_id"]): row["input_ids"][row["prompt_len"] :] for row in rows}


RUNS = st.builds(
    Run,
    slice_tokens=st.integers(1, 12),
    times=st.integers(1, 4),
    on_truncated=st.sampled_from(["continue", "continue", "keep", "quarantine"]),
    rounds=st.none() | st.integers(0, 6),
)


@settings(max_examples=12)
@given(st.lists(RUNS, min_size=1, max_size=3), RUNS)
def test_the_rounds_of_all_runs_make_one_answer_and_no_id_comes_twice(runs: list[Run], last: Run) -> None:
    first = runs[0]
    last = Run(last.slice_tokens, last.times)
    with tempfile.TemporaryDirectory() as folder:
        mill = Mill(open_storage(folder))
        # Only a first run may ask otherwise: what it has cut is asked on by all that follow.
        for run in [first, *(Run(run.slice_tokens, run.times, rounds=run.rounds) for run in runs[1:]), last]:
            mill.run(run)
        answers, total = mill.answers(), last.slice_tokens * (1 + last.times)
        assert sorted(answers) == [*range(PROMPTS)]
        for number, answer in answers.items():
            assert answer == said(number)[: len(answer)]
            assert len(answer) >= min(total, len(said(number)))
        assert set(mill.generated.values()) <= {1}
        before = mill.generated.total()
        mill.run(last)
        assert mill.generated.total() == before
