"""A plan in plain words, before anything is generated: what is asked and why, what is not, and what has changed.

One text, three readers: the terminal, the run's page in Prefect's UI, the log.
Only kinds that have rows are named. Numbers are rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftmill.reporting.plain_text import plain
from draftmill.reporting.recipe_changes import Effect
from draftmill.reporting.since import Since
from draftmill.reporting.summary import Summary

KINDS = {
    "new": "new prompts",
    "samples": "further samples of known prompts",
    "changed": "known prompts under another key: other ids, sampling, model or revision",
    "longer": "cut by length at a smaller budget: asked again with more",
    "again": "asked again on purpose",
}
"""Why a row is missing, by its name in a plan."""


def plan_lines(
    plan: Mapping[str, Any], since: Since, *, removed: str, again: Sequence[str] = (), rejudged: Summary | None = None
) -> list[str]:
    """`plan`: `dataset.chunks.plan_run`'s. `removed`: the recipe's. `again`: the reasons whose rows are asked once
    more. `rejudged`: what the new rules did, if they were applied."""
    if since.manifest is None:
        head = "plan for a new dataset"
    else:
        head = f"plan on manifest {plan['manifest']}"
    head += f": {_number(plan['planned'])} rows, {_number(plan['to_ask'])} to ask"
    if plan["to_send"] != plan["to_ask"]:
        head += f" ({_number(plan['to_send'])} requests)"
    return [head, *(f"  {line}" for line in (*_changes(since), *_rules(since, rejudged), *_rows(plan, removed, again)))]


def _changes(since: Since) -> Iterator[str]:
    """Every changed field by name, and what it does; the fields that do nothing on one line."""
    idle = [plain(change.path) for change in since.recipe if change.effect is Effect.NONE]
    named = [f"{change} ({change.effect})" for change in since.recipe if change.effect is not Effect.NONE]
    named += [f"{what}: {old} -> {new} ({Effect.IDS})" for what, old, new in since.rendering]
    if since.manifest is not None and (named or idle):
        yield f"changed since manifest {since.manifest.version}:"
    yield from (f"  {line}" for line in named)
    if idle:
        yield f"  {Effect.NONE}: {', '.join(idle)}"


def _rules(since: Since, rejudged: Summary | None) -> Iterator[str]:
    stored = f"{_number(since.stored_rows)} stored rows"
    if since.rules:
        stored = f"rules changed ({', '.join(plain(name) for name in since.rules)}): {stored}"
    if rejudged is not None:
        to_bad = rejudged.rejudged_bad
        to_good = rejudged.rows["rejudged"] - to_bad
        yield f"{stored} judged again, 0 requests: {_number(to_good)} are good now, {_number(to_bad)} bad"
    elif since.rules:
        yield f"{stored} are judged again first, 0 requests; the numbers below are those before it"


def _rows(plan: Mapping[str, Any], removed: str, again: Sequence[str]) -> Iterator[str]:
    for kind, words in KINDS.items():
        if number := plan["kinds"].get(kind):
            named = f" ({', '.join(again)})" if kind == "again" and again else ""
            yield f"{words}{named}: {_number(number)}"
    if plan["resumed"]:
        yield f"of these generated already by an unfinished run, 0 requests: {_number(plan['resumed'])}"
    yield f"kept as they are: {_number(plan['kept'])}"
    if plan["held"]:
        yield f"held in quarantine, not asked again: {_number(plan['held'])}{_by_reason(plan['held_reasons'])}"
    if plan["num_rejected"]:
        yield f"rejected, cannot be sent: {_number(plan['num_rejected'])}{_by_reason(plan['rejected_reasons'])}"
    if gone := sum(plan["removed"].values()):
        fate = "kept" if removed == "keep" else "dropped"
        yield f"gone from the source: {_number(gone)}, {fate} (removed: {removed})"
    if spared := plan.get("spared"):
        yield f"kept, though no longer asked (rejected by now, or more samples than the recipe's): {_number(spared)}"
    if plan["superseded"]:
        yield f"superseded, each leaves once its successor is good: {_number(plan['superseded'])}"


def _by_reason(reasons: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name} {_number(number)}' for name, number in reasons.items())})" if reasons else ""


def _number(number: int) -> str:
    return f"{number:,}"
