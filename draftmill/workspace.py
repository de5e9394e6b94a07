"""What the stages of one run share: the dataset, the journal, the pool.

Prefect passes receipts only; live things (a lock, a session, a loop) live here,
in context variables that a flow sets and its tasks read. A flow opens the
workspace first and the pool once it knows that something is to be asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp

from draftmill import plugins
from draftmill.dataset import completions
from draftmill.dataset.journal import Journal, journal_path
from draftmill.dataset.storage import Commit, Storage, open_storage
from draftmill.dataset.tails import upload_tails
from draftmill.errors import DatasetError
from draftmill.gate import look_again
from draftmill.generation.conversations import NextTurn
from draftmill.generation.http import open_http
from draftmill.generation.night import NO_END, Night
from draftmill.generation.pool import Pool
from draftmill.generation.rolling import Judge
from draftmill.generation.unasked import Unasked
from draftmill.generation.ways import ways_of
from draftmill.judging.judged import Rules, judge_completions
from draftmill.recipe import Recipe
from draftmill.records import Completion, ServerReport, Verdict
from draftmill.rendering.next_turn import next_turns
from draftmill.rendering.prepare import Variants

PART_EVERY_S = 60.0
"""Seconds of new rows that a lost machine may cost: how often the journal's tail goes to the dataset."""

HELD_S = 60.0
"""Seconds a partition waits for its journal: an upload of what was left in it is done in less."""

THREADS = 16
"""Threads that read and write the dataset: a chunk keeps one at a time busy, and few chunks are between their stages
at once. In an outage all may wait for the storage; what comes later then waits for a thread, and costs no memory."""

log = logging.getLogger("draftmill.workspace")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A dataset, the threads that read and write it, and this machine's journal of it; a plan has none."""

    storage: Storage
    held: Journal | None
    threads: ThreadPoolExecutor

    @property
    def journal(self) -> Journal:
        assert self.held is not None, "only a run that holds the journal may write to it"
        return self.held


@dataclass(frozen=True, slots=True)
class Conversing:
    """What turns are judged with before others are asked on top of them, and what makes those."""

    judge: Judge
    next_turn: NextTurn


_WORKSPACE: ContextVar[Workspace] = ContextVar("draftmill_workspace")
_POOL: ContextVar[Pool] = ContextVar("draftmill_pool")
_CONVERSING: ContextVar[Conversing] = ContextVar("draftmill_conversing")


def workspace() -> Workspace:
    """The workspace of the running flow."""
    return _WORKSPACE.get()


def pool() -> Pool:
    """The pool of the running flow."""
    return _POOL.get()


def conversing() -> Conversing:
    """What a running flow asks the later turns of conversations with; only where its recipe asks for them."""
    return _CONVERSING.get()


async def in_thread(function: Callable[..., T], *arguments: object, **named: object) -> T:
    """What the function gives, from a thread of the workspace: for all that touches the dataset.

    Not asyncio.to_thread: a storage that is away for minutes would hold all of its threads, in which the event loop
    also looks up the names of the engine's hosts. Raises what the function raises.
    """
    call = functools.partial(copy_context().run, function, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(workspace().threads, call)


@contextlib.asynccontextmanager
async def open_workspace(dataset: str, commit: Commit = "create") -> AsyncIterator[Workspace]:
    """The dataset and its journal, which one run at a time holds; the journal's tail is uploaded first.

    `commit`: the recipe's. Raises DatasetError when another run on this machine holds it, or when the storage cannot
    be read and written, or lets two writers create one object.
    """
    storage = open_storage(dataset)
    with Journal(journal_path(dataset)) as journal:
        async with _opened(storage, journal) as space:
            await in_thread(storage.check)
            await in_thread(storage.check_writing, commit)
            await in_thread(completions.upload, storage, journal)
            await in_thread(upload_tails, storage, held=journal.path)
            yield space


@contextlib.asynccontextmanager
async def open_partition(dataset: str, commit: Commit = "create", *, number: int) -> AsyncIterator[list[str]]:
    """The dataset and a journal of the partition's own; the parts that were made of what others left on this machine.

    At the end, however it ends, the journal is in the dataset: whoever sealed would not find it elsewhere. Raises as
    `open_workspace`; another run of this partition alone is in its way.
    """
    storage = open_storage(dataset)
    async with _opened(storage, None):
        await in_thread(storage.check)
        await in_thread(storage.check_writing, commit)
        tails = await in_thread(upload_tails, storage)
    with ExitStack() as opened:
        journal = await _own_journal(opened, journal_path(dataset, f"partition-{number}"))
        # Another one: the first has been told that its run is over.
        storage = open_storage(dataset)
        async with _opened(storage, journal):
            await in_thread(storage.check_writing, commit)
            try:
                yield tails
            finally:
                await in_thread(completions.upload, storage, journal)
                journal.discard()


async def _own_journal(opened: ExitStack, path: Path) -> Journal:
    """A partition's. Another one on this machine may just be uploading what an earlier run left in it."""
    deadline_s = time.monotonic() + HELD_S
    while True:
        try:
            return opened.enter_context(Journal(path))
        except DatasetError:
            if time.monotonic() >= deadline_s:
                raise
        await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def open_for_plan(dataset: str) -> AsyncIterator[Workspace]:
    """The dataset without its journal, also while a run holds that: its last minute then counts as to be asked.

    Raises DatasetError when the storage cannot be read.
    """
    storage = open_storage(dataset)
    async with _opened(storage, None) as space:
        await in_thread(storage.check)
        with contextlib.suppress(DatasetError):
            await in_thread(upload_tails, storage)
        yield space


@contextlib.asynccontextmanager
async def _opened(storage: Storage, journal: Journal | None) -> AsyncIterator[Workspace]:
    """The workspace inside the block. No thread outlives it: they would go on with a journal that is closed."""
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dataset")
    space = Workspace(storage, journal, threads)
    token = _WORKSPACE.set(space)
    try:
        yield space
    finally:
        _WORKSPACE.reset(token)
        storage.stop_waiting()
        threads.shutdown(wait=False, cancel_futures=True)
        # Off the loop, where the requests of others still end; what waits has been told, a request has its timeout.
        await asyncio.to_thread(threads.shutdown)


@contextlib.asynccontextmanager
async def open_pool(
    recipe: Recipe,
    variants: Variants,
    reports: Sequence[ServerReport],
    num_rows: int,
    *,
    night: Night = NO_END,
    unasked: Mapping[str, str] | None = None,
) -> AsyncIterator[Pool]:
    """The pool on the recipe's servers; meanwhile the journal's tail goes to the dataset every PART_EVERY_S.

    `reports`: the servers as the gate saw them; empty when nothing is to be asked, and then neither a server nor its
    key is needed. `num_rows`: rows to be asked. `night`: when generation ends, whatever is left. `unasked`: nothing is
    asked, others did; the words of those rows that failed there (`generation.unasked`).
    """
    space = workspace()
    protocol = plugins.load("engines", recipe.engine.kind)

    structures = {name: prepared.structure for name, prepared in variants.items()}
    rules = Rules(recipe.on_truncated, recipe.degenerate)

    def judge_rows(completions: Sequence[Completion]) -> list[Verdict]:
        return judge_completions(completions, structures, rules)

    async with open_http(recipe.engine) if reports else aiohttp.ClientSession() as http:
        async with (Pool if unasked is None else functools.partial(Unasked, failed=unasked))(
            recipe,
            protocol=protocol,
            http=http,
            reports=reports,
            keeper=space.journal,
            judge=judge_rows,
            look_again=functools.partial(look_again, recipe, variants, protocol=protocol, http=http),
            num_rows=num_rows,
            ways=ways_of(recipe, {name: structure.end_ids for name, structure in structures.items()}),
            night=night,
        ) as pool:
            if recipe.prompts.turns == "all":
                made = {name: (prepared.recipe, prepared.structure) for name, prepared in variants.items()}
                _CONVERSING.set(Conversing(judge_rows, await asyncio.to_thread(next_turns, made)))
            token = _POOL.set(pool)
            parts = asyncio.create_task(_upload_parts(space))
            # A full collection walks everything that lives (0.3 s), while no answer is read. Nearly all of it stays.
            gc.collect()
            gc.freeze()
            try:
                yield pool
            except BaseException:
                # The run is over: nobody sits through an outage of the storage before it may end.
                space.storage.stop_waiting()
                raise
            finally:
                gc.unfreeze()
                _POOL.reset(token)
                parts.cancel()
                await asyncio.gather(parts, return_exceptions=True)


async def _upload_parts(space: Workspace) -> None:
    while True:
        await asyncio.sleep(PART_EVERY_S)
        upload = asyncio.create_task(in_thread(completions.upload, space.storage, space.journal))
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: it would go on with a journal that is closed under its hands.
            await asyncio.wait([upload])
            upload.exception()
            raise
        except Exception as error:
            # Whatever it was: the rows are safe in the journal; the next round, or the next run, uploads them.
            log.warning("completions could not be uploaded and stay in the journal: %s", error)
