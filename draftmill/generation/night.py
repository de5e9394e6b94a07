"""`--until`: a night that ends in time, with what is done sealed.

    now ......... no row is sent any more that could not finish ......... end of generation ... the time given
                                                         rows in flight may finish | aborted | sealing

Between its start and the time given, a run keeps a small reserve for sealing; the
rest is for generation. A row is not sent when as long as nearly all recent rows
took would go past that end. Rows in flight may finish until then; those still in
flight at the end are aborted, and stay pending like those never sent.

Pure: the clocks are passed in. The wall clock is read once, for the length of
the night; after that only monotonic seconds count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from draftmill.errors import RecipeError, RunStopped

SEAL_RESERVE = 0.02
"""Share of a night kept for sealing, which grows with the rows made in it."""

SEAL_RESERVE_MIN_S, SEAL_RESERVE_MAX_S = 5.0, 300.0
"""Seconds: the least for a few rounds to a distant storage, the most since a seal reads keys and moves no ids."""

_TIME = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)
_SPAN = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", re.ASCII)


def parse_until(text: str, now: datetime) -> datetime:
    """The moment that `HH:MM` (the next such time) or a span such as `90m`, `1h30m`, `45s` means at `now`.

    `now`: local wall time, naive, or aware with the zone that HH:MM means. Same
    kind out. Raises RecipeError for anything else.
    """
    if (time := _TIME.fullmatch(text)) and int(time[1]) < 24 and int(time[2]) < 60:
        at = now.replace(hour=int(time[1]), minute=int(time[2]), second=0, microsecond=0, fold=0)
        return at if at.timestamp() > now.timestamp() else at + timedelta(days=1)
    if seconds := span_s(text):
        return datetime.fromtimestamp(now.timestamp() + seconds, now.tzinfo)
    raise RecipeError(
        "until is no time",
        value=repr(text),
        expected="a time of day (06:00) or a span from now (90m, 2h, 1h30m)",
        remedy="correct it; in a deployment's file it stands in quotes",
    )


def span_s(text: str) -> int:
    """Seconds of a span such as `90m`, `1h30m`, `45s`; 0 for what is none."""
    span = _SPAN.fullmatch(text)
    return _seconds(span) if span else 0


def _seconds(span: re.Match[str]) -> int:
    hours, minutes, seconds = (int(number or 0) for number in span.groups())
    return hours * 3600 + minutes * 60 + seconds


@dataclass(frozen=True, slots=True)
class Night:
    """When generation ends, in monotonic seconds; None: when all rows are asked. `until`: as it was given."""

    ends_s: float | None = None
    until: str = ""

    def may_send(self, now_s: float, usual_s: float | None) -> bool:
        """Whether a new row could still finish.

        `usual_s`: seconds that nearly all (95 %) of the recent rows took; None while none is known: then it is tried.
        """
        left_s = self.left_s(now_s)
        return left_s is None or (left_s > 0 and (usual_s or 0.0) <= left_s)

    def left_s(self, now_s: float) -> float | None:
        """Seconds until rows in flight are aborted, 0 when that time has come; None without an end."""
        return None if self.ends_s is None else max(0.0, self.ends_s - now_s)

    def error(self) -> RunStopped:
        """Why rows are pending."""
        return RunStopped(
            "the time given is over",
            value=f"--until {self.until}".strip(),
            expected="all rows asked before then",
            remedy="run the same command again: finished rows are kept and only the pending ones are asked",
            everywhere=True,
        )


NO_END = Night()
"""Until all rows are asked."""


def night_until(until: str | None, *, now: datetime, now_s: float) -> Night:
    """The night that ends at `until` (see parse_until), its reserve for sealing taken off; None: no end.

    `now` and `now_s` are one moment, by the wall and by the monotonic clock. Raises RecipeError.
    """
    if until is None:
        return NO_END
    # Timestamps: a clock change in the night makes it an hour longer or shorter.
    span_s = parse_until(until, now).timestamp() - now.timestamp()
    return Night(now_s + span_s - seal_reserve_s(span_s), until)


def seal_reserve_s(span_s: float) -> float:
    """Seconds of a night of `span_s` seconds that are kept for sealing; at most half of it."""
    return min(max(SEAL_RESERVE * span_s, SEAL_RESERVE_MIN_S), SEAL_RESERVE_MAX_S, span_s / 2)
