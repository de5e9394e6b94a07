"""A server as a process: it ends on SIGTERM and Ctrl-C quickly, with status 0 and nothing on stderr."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
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
