"""Servers as processes: ours end on SIGTERM and Ctrl-C quickly, with status 0 and nothing on stderr; those that we
start end with us."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any


def run_until_signalled(serving: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine that serves until cancelled, and cancels it on SIGTERM or SIGINT.

    Call it from the main thread. Errors of the coroutine itself pass through.
    """
    asyncio.run(_until_signalled(serving))


async def _until_signalled(serving: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@contextlib.contextmanager
def ends_with_us(pid: int) -> Iterator[None]:
    """Ends `pid` when this process is gone, SIGKILL included: clean-up of one's own needs a living process."""
    code = "import os, sys; sys.stdin.read(); os.kill(int(sys.argv[1]), 15)"
    watcher = subprocess.Popen(
        [sys.executable, "-c", code, str(pid)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()
