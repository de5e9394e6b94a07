"""Who renders a piece: this process (`Here`) or one beside it (`Worker`), each with one thread that waits for it.

A worker is a plain child (`worker`) with a pipe: neither forked (threads live
here) nor spawned by multiprocessing, which would run the program's main module
again, guarded or not. It is a session of its own, so Ctrl-C is this process's
to handle, and ends with its pipe, whatever becomes of this process.

Promises: a reply is the reply to what was asked. Requests are numbered, and
since all go through the one thread, none is sent before the last is answered.
A worker that ends before its answer raises `Died`.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pyarrow as pa

from draftmill.errors import DraftmillError
from draftmill.recipe import Recipe
from draftmill.rendering.render import Rendered, render_prompts
from draftmill.rendering.worker import bytes_of

LEAVING_S = 5.0
"""Seconds that a process whose pipe is closed already may take to end: an interpreter's shutdown."""


class Died(Exception):
    """A worker ended before it answered; the words say how. Never leaves the pool of `processes`."""


class Here:
    """This process."""

    death = None

    def __init__(self, recipe: Recipe) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._recipe = recipe

    def render(self, loaded: pa.Table) -> Rendered:
        """`render_prompts`."""
        return render_prompts(loaded, self._recipe)

    def end(self) -> None:
        """No more pieces; the one in work is rendered to its end."""
        self.thread.shutdown(wait=False, cancel_futures=True)


class Worker:
    """A process that renders, and this end of the pipe to it. Only `thread` talks to it.

    Raises OSError when it cannot be started.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._recipe = recipe
        self._numbers = itertools.count()
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "draftmill.rendering.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_environment(),
                cwd=None if _current_folder() else "/",  # libraries cannot be imported in a folder that is no more
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a command's stdout is data
                start_new_session=True,
            )

    @property
    def death(self) -> Died | None:
        """How it ended; None while it lives."""
        status = self._process.poll()
        return None if status is None else self._died(status)

    def load(self) -> None:
        """Returns when the worker can render. Raises what loading raised there, or Died."""
        self._ask(self._recipe)

    def render(self, loaded: pa.Table) -> Rendered:
        """`render_prompts` over there. Raises what it raised there, or Died."""
        rendered: Rendered = self._ask(bytes_of(loaded))
        return rendered

    def end(self) -> None:
        """Ends it, whatever it does. The pipe closes with the thread."""
        self._process.kill()
        self._process.wait()
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _ask(self, request: Recipe | bytes) -> Any:
        number = next(self._numbers)
        try:
            self._pipe.send((number, request))
            answered, reply = self._pipe.recv()
        except (EOFError, OSError):
            raise self._died(self._ended()) from None
        if answered != number:
            self.end()  # all of its answers are late now
            raise _mistaken(number, answered)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _ended(self) -> int:
        try:
            return self._process.wait(LEAVING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _died(self, status: int) -> Died:
        return Died(f"process {self._process.pid}, which renders prompts, {_how(status)}")


Renderer = Here | Worker


def _environment() -> dict[str, str]:
    # What this process imports, and no threads inside of a tokenizer: the cores have a process each.
    entries = (entry or _current_folder() for entry in sys.path)
    path = os.pathsep.join(entry for entry in entries if entry)
    return os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}


def _current_folder() -> str:
    """Empty where it is no more: nothing is imported from it then."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    name = next((known.name for known in signal.Signals if known == -status), "no name")
    cause = ": most often the system's want of memory" if -status == signal.SIGKILL else ""
    return f"was killed by signal {-status} ({name}{cause})"


def _mistaken(number: int, answered: object) -> DraftmillError:
    return DraftmillError(
        "a process that renders prompts answered another question",
        value=f"answer {answered}",
        expected=f"answer {number}",
        remedy="run again: finished slices are kept. This is a fault of draftmill: please report it",
    )
