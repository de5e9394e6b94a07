"""Rendering on all cores: the rows of a source, piece by piece, in this process and in workers beside it.

Templates run under Python's lock, so threads cannot share them. This process
begins at once and alone; when it has worked as long as a start of workers
costs and there is more to do, they are started and join in as they get ready.
So a small source starts nothing, nor does one whose slices are all cached.

A worker is a plain child (`worker`) with a pipe: neither forked (threads live
here) nor spawned by multiprocessing, which would run the program's main module
again, guarded or not. It is a session of its own, so Ctrl-C is this process's
to handle, and ends with its pipe, whatever becomes of this process.

Promises: what `render_prompts` gives for the whole table, in its order; its
errors as they are. A worker that dies is an error, never missing rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self, TypeVar, TypeVarTuple

import pyarrow as pa

from draftmill.dataset.schema import ROW
from draftmill.errors import DraftmillError
from draftmill.recipe import Recipe
from draftmill.rendering.render import Rendered, render_prompts
from draftmill.rendering.worker import bytes_of

PIECE_ROWS = 500
"""Prompts: about half a second of work, against milliseconds to send it there and back."""

ALONE_S = 3.0
"""Seconds of a worker's start (imports, tokenizer): who has rendered that long alone loses no more by starting some."""

LANES_AT_MOST = 32
"""Renderers side by side: each takes some 300 MB, and beyond that the writing of slices is what takes the time."""

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Linux control groups: a container's processor time and the period it is granted for, in microseconds."""

Render = Callable[[pa.Table], Rendered]
Arguments = TypeVarTuple("Arguments")
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
        self._workers: list[_Worker] = []
        self._entering: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._threads = ThreadPoolExecutor(self.lanes, thread_name_prefix="render")
        self._free: asyncio.Queue[Render] = asyncio.Queue()
        self._free.put_nowait(lambda piece: render_prompts(piece, self._recipe))
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        for task in self._entering:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def num_workers(self) -> int:
        """Processes started."""
        return len(self._workers)

    @property
    def num_free(self) -> int:
        """Renderers that are ready and have nothing to do."""
        return self._free.qsize()

    async def render(self, loaded: pa.Table) -> Rendered:
        """`render_prompts` of a LOADED table. Raises what it raises, and DraftmillError when a worker dies."""
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
        self._waiting += 1
        try:
            render = await self._free.get()
        finally:
            self._waiting -= 1
        started_s = time.monotonic()
        try:
            rendered = await self._in_thread(render, piece)
        finally:
            self._free.put_nowait(render)
        self._busy_s += time.monotonic() - started_s
        self.num_rows += piece.num_rows
        self.num_ids += sum(len(chunk.flatten()) for chunk in rendered.rows["prompt_ids"].chunks)
        if self._waiting and not self._workers and self._busy_s >= self._alone_s:
            self._workers = [_Worker(self._recipe) for _ in range(self.lanes - 1)]
            self._entering = [asyncio.create_task(self._enter(worker)) for worker in self._workers]
        return rendered

    async def _enter(self, worker: _Worker) -> None:
        # One that did not get as far says so when it is given a piece.
        with contextlib.suppress(DraftmillError):
            await self._in_thread(worker.load)
        self._free.put_nowait(worker.render)

    async def _in_thread(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


class _Worker:
    """A process that renders, and this end of the pipe to it. One thread at a time talks to it."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "draftmill.rendering.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a command's stdout is data
                start_new_session=True,
            )

    def load(self) -> None:
        """Returns when the worker can render."""
        self._reply(lambda: self._pipe.send(self._recipe))

    def render(self, loaded: pa.Table) -> Rendered:
        """`render_prompts` over there."""
        rendered: Rendered = self._reply(lambda: self._pipe.send_bytes(bytes_of(loaded)))
        return rendered

    def end(self) -> None:
        """Ends it, whatever it does. The pipe closes with the last thread that uses it."""
        self._process.kill()
        self._process.wait()

    def _reply(self, send: Callable[[], None]) -> Any:
        try:
            send()
            reply = self._pipe.recv()
        except (EOFError, OSError):
            raise _died(self._process.wait()) from None
        if isinstance(reply, Exception):
            raise reply
        return reply


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


def _environment() -> dict[str, str]:
    # What this process imports, and no threads inside of a tokenizer: the cores have a process each.
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}


def _died(status: int) -> DraftmillError:
    return DraftmillError(
        "a process that renders prompts died",
        value=f"killed by signal {-status}" if status < 0 else f"exit status {status}",
        expected="a process that lives until all prompts are rendered",
        remedy="run again: finished slices are kept. Signal 9 is most often the system's want of memory; "
        "fewer processes are started where fewer cores are given (taskset, a container's limit)",
    )
