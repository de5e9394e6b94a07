"""Watched: a run whose process is gone is Crashed within seconds, whoever ended it.

Prefect's worker says so of a child that dies; nobody does where the worker dies
too, is stopped (its children go with it), or never was: the run would be Running
for ever, without a Retry button, and hold its deployment's slot for minutes. So a
run has a small process beside it, in a session of its own, that reads from a pipe
until the run's process ends and then tells the server, unless somebody else has.

It cannot help where it goes as well: a machine that is lost, a container that ends
with its worker. For those there is the automation of `draftmill alarms`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from uuid import UUID

# Prefect takes seconds and 60 MB to import: the process beside a run does so once it has something to tell.
if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

PAUSE_S = 5.0
"""Seconds for a worker to say it first, which knows the exit status; and between two tries to reach the server."""

TELL_FOR_S = 600.0
"""Seconds to go on trying to reach the server: what ended the run may have ended that, too."""

GONE = (
    "The run's process is gone: it was killed, or its worker was stopped. Finished rows are kept; Retry, or a new run, "
    "asks only for the others."
)

log = logging.getLogger("draftmill.watched")


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[None]:
    """Inside, somebody tells of the running flow's sudden end. Nobody where the server is this process's own."""
    watcher = _start()
    try:
        yield
    finally:
        # Whatever it was, the run tells of it itself.
        if watcher is not None:
            watcher.kill()
            watcher.communicate()


def _start() -> subprocess.Popen[bytes] | None:
    from prefect.context import FlowRunContext
    from prefect.settings import get_current_settings

    context, settings = FlowRunContext.get(), get_current_settings()
    if context is None or context.flow_run is None or context.flow_run.state is None or settings.api.url is None:
        return None
    # By its file, whose folder is no place for imports: where the run was started another `tasks` may be nearer.
    # By its state: Retry makes another of the same run.
    command = [sys.executable, "-P", __file__, str(context.flow_run.id), str(context.flow_run.state.id), str(PAUSE_S)]
    environment = {**os.environ, **settings.to_environment_variables(exclude_unset=True)}
    # Its output to nobody: a worker takes its child for alive as long as anybody holds the child's output.
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
    except OSError as error:
        log.warning("nobody watches over this run: %s", error)
        return None


def _report(run: UUID, state: UUID, pause_s: float) -> None:
    from httpx import HTTPError
    from prefect.client.orchestration import get_client

    time.sleep(pause_s)
    deadline = time.monotonic() + TELL_FOR_S
    while time.monotonic() < deadline:
        try:
            with get_client(sync_client=True) as client:
                return _tell(client, run, state)
        except HTTPError:
            time.sleep(pause_s)


def _tell(client: SyncPrefectClient, run: UUID, state: UUID) -> None:
    """Crashed, unless the run is in another state by now."""
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    with contextlib.suppress(ObjectNotFound):
        found = client.read_flow_run(run)
        if found.state is not None and found.state.id == state:
            client.set_flow_run_state(run, Crashed(message=GONE))


if __name__ == "__main__":
    # Whoever stops everything at once (systemd, a shell) stops the run; this is to tell of it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    _report(UUID(sys.argv[1]), UUID(sys.argv[2]), float(sys.argv[3]))
