"""The breaker: stops a run whose answers are mostly wrong before it costs a night.

Pure: finished rows are pushed in with their verdicts, in the order they
finished; `tripped` reads out. It looks at the last `window` rows, and only once
that many have finished. The verdicts are those of the one `judge`, and rows are
looked at one by one however they were judged: what trips it between two rows of
a batch has tripped it, and what it says is of that moment.

Keeps reasons and a few lines of text, never a completion.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Literal

from draftmill.errors import RunStopped
from draftmill.generation.causes import likely_cause
from draftmill.recipe import Breaker as BreakerSetting
from draftmill.records import Completion, Failure, Reason, Row, ServerReport, Verdict

EXAMPLES = 2
"""Rows quoted: one may be an accident, two are seldom the same one."""

KEY_SHOWN = 12
"""Characters of an example's row key: enough for `draftmill show` to find it."""

ID_SHOWN = 60
"""Characters of an example's prompt id: some sources have whole prompts there."""

INDENT = "\n" + " " * 12
"""Under the first character of an error's value."""


class Breaker:
    """A rolling share of bad rows against the recipe's bound. Once tripped it stays so."""

    def __init__(self, setting: BreakerSetting | Literal["off"]) -> None:
        self._setting = None if setting == "off" else setting
        self._last: deque[Reason | None] = deque(maxlen=self._setting.window if self._setting else None)
        self._num_bad = 0
        self._examples: dict[Reason, deque[str]] = defaultdict(lambda: deque(maxlen=EXAMPLES))
        self._tripped = False

    @property
    def tripped(self) -> bool:
        """More of the last rows were bad than the recipe allows."""
        return self._tripped

    def push(self, verdicts: Sequence[tuple[Completion, Verdict]]) -> None:
        """More finished rows, in the order they finished."""
        if self._setting is None:
            return
        for completion, verdict in verdicts:
            self._look(completion.row, verdict.reason, verdict.detail, self._setting)

    def fail(self, failure: Failure) -> None:
        """A row that got no answer at all."""
        if self._setting is not None:
            self._look(failure.row, Reason.REQUEST_FAILED, failure.words, self._setting)

    def _look(self, row: Row, reason: Reason | None, detail: str, setting: BreakerSetting) -> None:
        if self._tripped:
            return
        full = len(self._last) == setting.window
        self._num_bad += (reason is not None) - (full and self._last[0] is not None)
        self._last.append(reason)
        if reason is not None:
            self._examples[reason].append(_example(row, reason, detail))
        self._tripped = len(self._last) == setting.window and self._num_bad > setting.share * setting.window

    def error(self, reports: Sequence[ServerReport]) -> RunStopped:
        """Why it tripped: counts by reason, two rows, the bound, and the likely cause by what the servers report."""
        assert self._setting is not None, "a breaker that is off never trips"
        counts = Counter(filter(None, self._last)).most_common()
        num_rows = len(self._last)
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts)
        cause = likely_cause(counts[0][0], reports)
        return RunStopped(
            f"the breaker stopped the run: {self._num_bad} of the last {num_rows} rows are bad",
            value=INDENT.join([reasons, *self._quoted(counts)]),
            expected=f"at most {self._setting.share:.0%} bad (recipe: breaker.share, breaker.window)",
            remedy=f"likely cause: {cause}{INDENT}"
            "docs/reason-codes.md has them all; finished rows are kept, and the next run asks for the others",
            cause=cause,
            everywhere=True,
        )

    def _quoted(self, counts: Sequence[tuple[Reason, int]]) -> list[str]:
        """The newest rows of the commonest reasons that are still in the window."""

        def newest() -> Iterator[str]:
            for reason, count in counts:
                yield from [*self._examples[reason]][-count:]

        return [line for line, _ in zip(newest(), range(EXAMPLES), strict=False)]


def _example(row: Row, reason: Reason, detail: str) -> str:
    prompt_id = row.prompt_id if len(row.prompt_id) <= ID_SHOWN else row.prompt_id[:ID_SHOWN] + "..."
    # repr: a source's own id may hold anything, line ends too.
    return ": ".join(filter(None, [f"{prompt_id!r} (row {row.row_key[:KEY_SHOWN]})", str(reason), detail]))
