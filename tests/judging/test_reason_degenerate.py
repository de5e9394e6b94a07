"""Loops told from repetition that is meant, on real texts in a real tokenizer's ids, and the rule's own borders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from draftmill.arrays import flatten, ids_array
from draftmill.judging import phrases
from draftmill.judging.answers import Answers
from draftmill.judging.judge import Verdicts, judge
from draftmill.judging.loops import AUTO_BOUND
from draftmill.judging.phrases import PHRASE_IDS, repetition_starts
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Reason, Thinking

GOLDEN = Path(__file__).parents[1] / "golden" / "loops"
END = 50_000
"""An id that none of the texts has."""

STEP_IDS = 61
"""Ids between two places where a text is cut: a prime, so that rows of a table are cut everywhere."""

SHORT_CYCLES = {"line", "word"}

Judge = Callable[..., Verdicts]


def named(kind: str) -> list[str]:
    return sorted(path.stem for path in (GOLDEN / kind).glob("*.txt"))


@pytest.fixture
def judged(structure_of: Callable[..., Structure], completion_of: Callable[..., Completion]) -> Judge:
    """`judged(outputs, finish_type=..., degenerate=...)`: as a plain model's answers."""
    structure = structure_of(Thinking.NONE, end_ids=(END,), foreign_ids=(), blank_ids=(), highest_id=END)

    def judge_outputs(
        outputs: list[list[int]], *, finish_type: str = "length", degenerate: object = "auto"
    ) -> Verdicts:
        completions = [completion_of([5], ids, finish_type=finish_type, max_new_tokens=9999) for ids in outputs]
        answers = Answers.of_completions(completions)
        return judge(answers, structure, on_truncated="keep", degenerate=degenerate)  # type: ignore[arg-type]

    return judge_outputs


@pytest.fixture
def golden(text_ids: Callable[[str], list[int]]) -> Callable[[str, str], list[int]]:
    return lambda kind, name: text_ids((GOLDEN / kind / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", named("looping"))
def test_loops_are_found(judged: Judge, golden: Callable[[str, str], list[int]], name: str) -> None:
    """Cut by the budget. One that ended by itself got out of it, but for a short cycle's last 256 ids.

    The two last ids are the white space at the file's end.
    """
    ids = golden("looping", name)
    cut, stopped = judged([ids[:-2]]), judged([[*ids[:-2], END]], finish_type="stop")
    assert cut.reason(0) is Reason.DEGENERATE
    assert stopped.reason(0) is (Reason.DEGENERATE if name in SHORT_CYCLES else None)
    assert judged([ids[:-2]], degenerate="off").reason(0) is None


@pytest.mark.parametrize("name", named("fine"))
def test_repetition_that_is_meant_is_no_loop_wherever_it_is_cut(
    judged: Judge, golden: Callable[[str, str], list[int]], name: str
) -> None:
    ids = golden("fine", name)
    beginnings = [ids[:num] for num in range(len(ids), 200, -STEP_IDS)]
    if name != "zero_grid":  # cut inside, it is one cycle and nothing else
        assert judged(beginnings).counts() == {}
    assert judged([[*ids, END]], finish_type="stop").counts() == {}


@pytest.mark.parametrize("name", named("alike"))
def test_what_cannot_be_told_apart(judged: Judge, golden: Callable[[str, str], list[int]], name: str) -> None:
    """Where it is cut; whole it is good."""
    ids = golden("alike", name)
    assert judged([ids[:-100]]).reason(0) is Reason.DEGENERATE
    assert judged([[*ids, END]], finish_type="stop").reason(0) is None


def test_the_verdict_says_which_loop(judged: Judge, golden: Callable[[str, str], list[int]]) -> None:
    line, step = golden("looping", "line")[:-1], golden("looping", "counter_step")
    verdicts = judged([line, step])
    assert verdicts.verdict(0).detail.startswith("the last 256 ids are one cycle of 9; at ")
    assert verdicts.verdict(1).detail.startswith(
        f"of the last {len(step)} ids most lie in phrases said 8 times or more"
    )
    assert verdicts.verdict(1).position == 1  # shorter than the window: all of the answer


# The rule's borders, on made-up ids: a sentence of `constant` ids, and between two of them a number that never comes
# again; with `between`, twice, and enough ids that are always the same to fill the gap.


def rounds(constant: int, num_ids: int, *, between: int = 1) -> list[int]:
    """Sentences up to `num_ids` ids, the end of the last one at the end."""
    numbers = iter(range(1000, 10**6))
    ids: list[int] = []
    while len(ids) < num_ids:
        number = next(numbers)
        gap = [number] if between == 1 else [number, *range(500, 500 + between - 2), number]
        ids += [*gap, *range(10, 10 + constant)]
    return ids[len(ids) - num_ids :]


def found(*rows: list[int], bound: int = AUTO_BOUND) -> list[int]:
    """Where in its row each window of phrases begins; -1 for none."""
    ids_T, offsets_B1 = flatten(ids_array("o", row) for row in rows)
    at_B = repetition_starts(ids_T, offsets_B1[:-1], offsets_B1[1:], bound=bound)
    return np.where(at_B < 0, -1, at_B - offsets_B1[:-1]).tolist()


def test_a_phrase_has_sixteen_ids() -> None:
    assert found(rounds(PHRASE_IDS, 1200), rounds(PHRASE_IDS - 1, 1200)) == [0, -1]


def test_three_quarters_must_lie_in_phrases() -> None:
    assert found(rounds(30, 1200, between=10), rounds(29, 1200, between=11)) == [0, -1]
    half = [*range(10**6, 10**6 + 600), *rounds(40, 600)]
    assert found(half) == [-1]


def test_at_least_1024_ids_and_the_last_2048_of_a_longer_answer() -> None:
    assert found(rounds(30, 1023), rounds(30, 1024)) == [-1, 0]
    fresh = list(range(10**6, 10**6 + 3000))
    assert found([*fresh, *rounds(30, 2048)], [*rounds(30, 4000), *fresh]) == [3000, -1]


def test_a_phrase_is_said_eight_times() -> None:
    """In 1,040 ids, 130 to a round: eight rounds. In 1,040 of 148: seven and a bit."""
    assert found(rounds(129, 1040), rounds(147, 1040)) == [0, -1]


@pytest.mark.parametrize(("two_in", "wanted"), [(1, -1), (2, -1), (5, 0), (100, 0)])
def test_hardly_more_than_one_id_is_new_in_a_round(two_in: int, wanted: int) -> None:
    """One round in `two_in` has two new ids, the others one."""
    numbers = iter(range(1000, 10**6))
    row = [
        index
        for number in range(60)
        for index in (*(next(numbers) for _ in range(1 + (number % two_in == 0))), *range(10, 40))
    ]
    assert found(row) == [wanted]


def test_a_new_id_counts_once_in_a_round() -> None:
    """A counter said three times, or with the next number beside it, is one new id; three counters are three."""

    def said(*values: Callable[[int], int]) -> list[int]:
        gaps = [[index for value in values for index in (value(number), 7)] for number in range(40)]
        return [index for gap in gaps for index in (*gap, *range(10, 45))]

    same = said(*[lambda number: 1000 + number] * 3)
    followed = said(lambda number: 1000 + number, lambda number: 1001 + number)
    three = said(*[lambda number, first=first: first + number for first in (1000, 2000, 3000)])  # type: ignore[misc]
    assert found(same, followed, three) == [0, 0, -1]


def test_a_phrase_has_thirteen_different_ids() -> None:
    def sentence(different: int) -> list[int]:
        return [10 + index % different for index in range(40)]

    def many(different: int) -> list[int]:
        return [index for number in range(40) for index in (1000 + number, *sentence(different))]

    assert found(many(13), many(12)) == [0, -1]


def test_random_digits_are_no_phrases() -> None:
    digits = np.random.default_rng(3).integers(10, 19, size=(4, 3000)).tolist()
    bits = np.random.default_rng(3).integers(10, 12, size=(4, 3000)).tolist()
    assert found(*digits, *bits) == [-1] * 8


def test_a_larger_bound_asks_for_more() -> None:
    assert found(rounds(30, 4000), rounds(30, 3999), bound=1000) == [0, -1]
    assert found(rounds(30, 9000), bound=1000) == [1000]
    assert found(rounds(30, 1024), rounds(30, 1023), bound=16) == [0, -1]


def test_many_rows_in_several_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [rounds(20 + number, 1100) if number % 3 else list(range(1100)) for number in range(10)]
    wanted = [0 if number % 3 else -1 for number in range(10)]
    assert found(*rows) == wanted
    monkeypatch.setattr(phrases, "PIECE_IDS", 1)
    assert found(*rows) == wanted


def test_the_filter_by_hash_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows near the border, with and without the filter that spares the others the count."""
    rng = np.random.default_rng(5)
    sizes = zip(rng.integers(12, 90, 60), rng.integers(1, 20, 60), strict=True)
    rows = [rounds(int(constant), 1100, between=int(between)) for constant, between in sizes]
    with_filter = found(*rows)
    monkeypatch.setattr(phrases, "_may_repeat", lambda windows: np.ones(len(windows), np.bool_))
    assert found(*rows) == with_filter
    assert 5 < sum(start >= 0 for start in with_filter) < 55
