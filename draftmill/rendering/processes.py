"""Rendering on all cores: the rows of a source, piece by piece, in this process and in workers beside it.

Templates run under Python's lock, so threads cannot share them. This process
begins at once and alone; when it has worked as long as a start of workers
costs and there is more to do, they are started and join in as they get ready.
So a small source starts nothing, nor does one whose slices are all cached.

A renderer has one thread here and is free when that is done, also where nobody
waits for it any more (`renderer`). A worker that dies leaves; rendering is pure,
so another one does its piece again. One that cannot be started is done without.

Promises: what `render_prompts` gives for the whole table, in its order; its
errors as they are. A piece that costs two workers is an error, never missing rows.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa

from draftmill.dataset.schema import ROW
from draftmill.errors import DraftmillError
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.render import Rendered
from draftmill.rendering.renderer import Died, Here, Renderer, Worker

PIECE_ROWS = 500
"""Prompts: about half a second of work, against milliseconds to send it there and back."""

ALONE_S = 3.0
"""Seconds of a worker's start (imports, tokenizer): who has rendered that long alone loses no more by starting some."""

LANES_AT_MOST = 32
"""Renderers side by side: each takes 200 to 300 MB, and beyond that the writing of slices is what takes the time."""

DEATHS_AT_MOST = 2
"""Workers that one piece may cost: the first is the system's want of memory or chance, the second is the piece."""

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Linux control groups: a container's processor time and the period it is granted for, in microseconds."""

Result = TypeVar("Result")


class Renderers:
    """Renders tables for the time of a context, on `lanes` renderers at most, this process among them.

    `alone_s`: seconds of work after which workers are started. `num_rows` and
    `num_ids`: source rows rendered so far, and prompt ids in them.
    """

    def __init__(self, recipe: Recipe, *, lanes: int | None = None, alone_s: float = ALONE_S) -> None:
        self.lanes = lanes or cores()
        self.num_rows = self.num_ids = 0
        self._recipe = recipe
        self._alone_s = alone_s
        self._busy_s = 0.0
        self._waiting = 0
        self._alone = True
        self._here = Here(recipe)
        self._workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        self._free: asyncio.Queue[Renderer] = asyncio.Queue()
        self._free.put_nowait(self._here)
        return self

    async def __aexit__(self, *_: object) -> None:
        workers, self._workers = self._workers, []
        self._here.end()
        for worker in workers:
            worker.end()

    @property
    def num_workers(self) -> int:
        """Processes started."""
        return len(self._workers)

    @property
    def num_free(self) -> int:
        """Renderers that are ready and have nothing to do."""
        return self._free.qsize()

    async def render(self, loaded: pa.Table) -> Rendered:
        """`render_prompts` of a LOADED table. Raises what it raises, and DraftmillError for a piece that kills."""
        starts = range(0, loaded.num_rows, PIECE_ROWS)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._piece(loaded.slice(start, PIECE_ROWS))) for start in starts]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        pieces = [task.result() for task in tasks]
        return Rendered(
            pa.concat_tables([ROW.empty_table(), *(piece.rows for piece in pieces)]),
            [rejection for piece in pieces for rejection in piece.rejected],
            sum(piece.special_text for piece in pieces),
        )

    async def _piece(self, piece: pa.Table) -> Rendered:
        deaths: list[Died] = []
        while len(deaths) < DEATHS_AT_MOST:
            renderer = await self._next()
            started_s = time.monotonic()
            try:
                rendered = await self._by(renderer, partial(renderer.render, piece))
            except Died as death:
                deaths.append(death)
                continue
            self._busy_s += time.monotonic() - started_s
            self.num_rows += piece.num_rows
            self.num_ids += sum(len(chunk.flatten()) for chunk in rendered.rows["prompt_ids"].chunks)
            if self._alone and self._waiting and self._busy_s >= self._alone_s:
                self._start()
            return rendered
        raise _kills(piece, deaths)

    async def _next(self) -> Renderer:
        """A free renderer that lives. What died while it had nothing to do was not killed by the next piece."""
        self._waiting += 1
        try:
            while (renderer := await self._free.get()).death:
                self._leaves(renderer.death)
            return renderer
        finally:
            self._waiting -= 1

    async def _by(self, renderer: Renderer, work: Callable[[], Result]) -> Result:
        future = self._begin(renderer, work)
        # Unlike `await future`, this leaves the thread to its work when it is cancelled itself.
        await asyncio.wait([future])
        return future.result()

    def _begin(self, renderer: Renderer, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """`work` in the renderer's thread; when it is done, and only then, the renderer is free again or leaves."""
        future = asyncio.get_running_loop().run_in_executor(renderer.thread, work)
        future.add_done_callback(partial(self._done, renderer))
        return future

    def _done(self, renderer: Renderer, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if not isinstance(error, Died):
            self._free.put_nowait(renderer)
        elif renderer in self._workers:  # else it was ended on purpose
            self._leaves(error)

    def _leaves(self, death: Died) -> None:
        left = 1 + sum(worker.death is None for worker in self._workers)
        listener().wait(f"warning: {death}; its prompts are rendered again. Processes left: {left}, with this one")

    def _start(self) -> None:
        self._alone = False
        wanted = self.lanes - 1
        try:
            while len(self._workers) < wanted:
                self._workers.append(worker := Worker(self._recipe))
                self._begin(worker, worker.load)  # one that fails says so when it is given a piece
        except (OSError, RuntimeError) as error:  # no more files, processes or, a RuntimeError, threads
            # Whatever it is that has run out, this process needs some of it too.
            kept = len(self._workers) // 2
            spared, self._workers = self._workers[kept:], self._workers[:kept]
            for worker in spared:
                worker.end()
            here = f"{kept} of {wanted} processes render prompts beside this one"
            listener().wait(f"warning: {here}; no more can be started: {error}")


def cores() -> int:
    """Cores this process may use: its affinity, and the quota of its container."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(affinity, _quota(), LANES_AT_MOST))


def _quota() -> int:
    try:
        quota, period = CPU_QUOTA.read_text(encoding="ascii").split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):  # no control group, or "max": no quota
        return LANES_AT_MOST


def _kills(piece: pa.Table, deaths: list[Died]) -> DraftmillError:
    first, last = (piece["prompt_id"][row].as_py() for row in (0, -1))
    return DraftmillError(
        f"prompts that no process survives: {first!r} to {last!r} of {piece['source'][0].as_py()}",
        value="; ".join(map(str, deaths)),
        expected=f"at most {DEATHS_AT_MOST - 1} process lost to the same {piece.num_rows} prompts",
        remedy="run again: finished slices are kept. Where it is memory, fewer processes are started where fewer cores "
        "are given (taskset, a container's limit); else look at these prompts: tokenizer or template fall over them",
    )
