"""What travels through Prefect: receipts, and the cache that is made of them.

A receipt is small JSON: counts and references to content-named objects of the
dataset. A stage's key is its version plus the content it reads and the recipe
fields it uses, never a run, a chunk's number or a URL; so a second run, a retry
and another night all find what is already done. A receipt is a hint: one whose
objects are gone is made again, and so is one of rows that nobody sealed for so
long that `gc` may take them meanwhile (made again they are young).

Prefect's own retries are off: what may be retried is decided once, per row, in
`draftmill.generation.retry`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import State, Task, task

from draftmill.dataset.gc import DATA
from draftmill.dataset.journal import state_folder
from draftmill.dataset.manifest import ObjectRef
from draftmill.dataset.schema import FORMAT
from draftmill.dataset.storage import Entry
from draftmill.identity import digest
from draftmill.workspace import in_thread, workspace

Receipt = dict[str, Any]


def _receipts_folder() -> Path:
    return state_folder() / "receipts"


_GIVES: dict[str, frozenset[str]] = {}
"""The keys of each stage's receipt, by the stage's name."""


def stage(
    *, name: str, run_name: str, version: int, key: Callable[[dict[str, Any]], object], gives: set[str]
) -> Callable[[Callable[..., Awaitable[Any]]], Task[..., Any]]:
    """A cached stage. `key` makes, of the task's parameters, the JSON that decides about equality.

    `gives`: the keys of its receipt; a stored one with others is no receipt of
    ours. Raise `version` when the stage's code would give another receipt for
    the same input.
    """
    _GIVES[name] = frozenset(gives)

    def cache_key(_: object, parameters: dict[str, Any]) -> str:
        content = {"dataset": workspace().storage.url, "format": FORMAT, "key": key(parameters)}
        return f"{name}-v{version}-{digest(content)}"

    return task(
        name=name,
        task_run_name=run_name,
        cache_key_fn=cache_key,
        persist_result=True,
        result_storage=_receipts_folder(),
        result_serializer="json",
    )


async def run(stage: Task[..., Any], *arguments: Any) -> State[Any]:
    """The stage's state: Cached when a receipt holds, else from running it (again)."""
    state: State[Any] = await stage(*arguments, return_state=True)
    if state.name == "Cached" and not await in_thread(_holds, stage.name, await state.aresult()):
        state = await stage.with_options(refresh_cache=True)(*arguments, return_state=True)
    return state


async def result(stage: Task[..., Any], *arguments: Any) -> Receipt:
    """The stage's receipt. Raises what the stage raised."""
    receipt: Receipt = await (await run(stage, *arguments)).aresult()
    return receipt


def artifact_key(dataset: str, what: str) -> str:
    """An artifact's key, the dataset's own: lower case, digits and dashes are all that Prefect takes."""
    return re.sub(r"[^a-z0-9]+", "-", f"{dataset.rstrip('/').rsplit('/', 1)[-1]} {what}".lower()).strip("-")


def references(receipt: Any) -> Iterator[ObjectRef]:
    """Every object that a receipt names, however deep."""
    if isinstance(receipt, dict) and receipt.keys() == ObjectRef.model_fields.keys():
        yield ObjectRef.model_validate(receipt)
    elif isinstance(receipt, dict | list):
        for item in receipt.values() if isinstance(receipt, dict) else receipt:
            yield from references(item)


def _holds(name: str, receipt: Any) -> bool:
    storage = workspace().storage
    if not isinstance(receipt, dict) or receipt.keys() != _GIVES[name]:
        return False
    now = datetime.now(UTC)
    try:
        return all(_stays(storage.entry(ref.path), ref, now) for ref in references(receipt))
    except FileNotFoundError:
        return False


def _stays(entry: Entry, ref: ObjectRef, now: datetime) -> bool:
    """Whether it is the object, and here until the run is sealed. Of working objects `gc` takes none while parts are
    young."""
    return entry.bytes == ref.bytes and (entry.is_fresh(now) or ref.path.split("/")[0] not in DATA)
