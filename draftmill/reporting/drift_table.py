"""Two groups of rows beside each other, as the lines of a table: shares, then lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from draftmill.dataset.statistics import Lengths, Numbers, Statistics
from draftmill.records import OF_AN_ANSWER

PARTS = ("prompt", "reasoning", "content", "output")

BRIEF = ("rows", "share of the prompts", "reasoning, mean", "content, mean", "cut by length", "cut inside reasoning")
"""What a person looks at first; the reasons of bad rows follow."""


class Line(NamedTuple):
    """One line; empty where there is nothing to say."""

    what: str
    now: str
    before: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """One variant's numbers, or those of all, with the prompts of all variants together."""

    numbers: Numbers
    prompts: int

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """By name: how many of how many."""
        found = self.numbers
        shares = {} if found.share is None else {"share of the prompts": (found.prompts, self.prompts)}
        reasons = {str(code): (found.reasons.get(code, 0), found.rows) for code in OF_AN_ANSWER}
        of_answers = {
            "cut by length": found.cut,
            "cut inside reasoning": found.cut_in_reasoning,
            "without reasoning": found.no_reasoning,
        }
        return shares | reasons | {what: (count, found.answers) for what, count in of_answers.items()}


def groups(now: Statistics, before: Statistics | None) -> dict[str, tuple[Group, Group | None]]:
    """All rows together and, where there are several variants, each of them; beside what they were."""
    last_total = Group(before.total, before.total.prompts) if before else None
    found: dict[str, tuple[Group, Group | None]] = {"all": (Group(now.total, now.total.prompts), last_total)}
    if len(now.variants) == 1:
        return found
    for name, numbers in now.variants.items():
        last = before.variants.get(name) if before else None
        beside = Group(last, before.total.prompts) if before and last else None
        found[f"variant {name}"] = (Group(numbers, now.total.prompts), beside)
    return found


def table_lines(now: Group, before: Group | None) -> list[Line]:
    """Every number; reasons only where one of the two has them."""
    shares, last = now.shares, before.shares if before else {}
    silent = {code for code in map(str, OF_AN_ANSWER) if not shares[code][0] and not last.get(code, (0, 0))[0]}
    lines = [Line("rows", f"{now.numbers.rows:,}", f"{before.numbers.rows:,}" if before else "")]
    lines += [_share(what, share, last.get(what)) for what, share in shares.items() if what not in silent]
    for part in PARTS:
        new, old = now.numbers.lengths.get(part), before.numbers.lengths.get(part) if before else None
        lines += _lengths(part, new, old)
    return lines


def brief_line(now: Group, before: Group | None) -> str:
    """The first few of them in a line, what was in brackets; shares that are and were nothing are not told."""
    shown = {line.what: line for line in table_lines(now, before)}
    wanted = [*BRIEF, *map(str, OF_AN_ANSWER)]
    told = [line for what in wanted if (line := shown.get(what)) and {line.now, line.before} - {"", _share_text(0)}]
    return "; ".join(f"{line.what} {line.now}" + (f" ({line.before})" if line.before else "") for line in told)


def number(mean: float) -> str:
    """A mean length for people."""
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.1f}"


def _share_text(share: float) -> str:
    return f"{share:.1%}"


def _share(what: str, now: tuple[int, int], before: tuple[int, int] | None) -> Line:
    (count, total), (old, of_old) = now, before or (0, 0)
    return Line(
        what,
        _share_text(count / total) if total else "",
        _share_text(old / of_old) if of_old else "",
        f"{100 * (count / total - old / of_old):+.1f} points" if total and of_old else "",
    )


def _lengths(part: str, now: Lengths | None, before: Lengths | None) -> Iterator[Line]:
    if now is None and before is None:
        return
    change = f"x{now.mean / before.mean:.2f}" if now and before and before.mean else ""
    yield Line(f"{part}, mean", number(now.mean) if now else "", number(before.mean) if before else "", change)
    yield Line(f"{part}, p10 / p50 / p90 / p99 / max", _ranks(now), _ranks(before))


def _ranks(lengths: Lengths | None) -> str:
    if lengths is None:
        return ""
    return " / ".join(f"{n:,}" for n in (lengths.p10, lengths.p50, lengths.p90, lengths.p99, lengths.max))
