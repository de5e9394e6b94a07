"""How the command line runs a flow: in this process, on the configured Prefect server or a local one.

Found by the command line through the entry point `draftmill.flows`, so that
draftmill/ imports nothing above it. Refuses a mixture of two installations: a
clone's `tasks` with another's `flows` would run code that nobody tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect import Flow, State
from prefect.client.orchestration import get_client
from prefect.events.worker import EventsWorker
from prefect.exceptions import ObjectNotFound, TerminationSignal
from prefect.flow_engine import run_flow_async
from prefect.logging.handlers import APILogHandler
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Pending
from prefect.utilities.callables import get_call_parameters

import draftmill
import flows
import tasks
from draftmill.errors import DraftmillError, MissingPart, RunStopped
from draftmill.reporting.terminal import print_error
from draftmill.serving.process import ends_with_us
from flows.compact import compact
from flows.pilot import pilot
from flows.refresh import refresh
from flows.rerun import rerun
from tasks.ending import own_ends

FLOWS: dict[str, Flow[..., Any]] = {"refresh": refresh, "rerun": rerun, "compact": compact, "pilot": pilot}

TAG = "draftmill"
"""Of every run of ours; the deployments have it, too. What flows/alarms.py looks at."""

DRAIN_TIMEOUT_S = 5
"""Seconds for the last events to reach the server: they matter to nobody's data."""

START_TIMEOUT_S = 120
"""Seconds for the local Prefect server: its first start makes a database on a busy machine."""


LOOK_EVERY_S = 5.0
"""Seconds until a Cancel in the UI is noticed."""

TELL_S = 3.0
"""Seconds to tell the server that the run is cancelled."""

GIVE_UP_S = 8.0
"""Seconds a stopped run has to end by itself: rows are aborted and kept in far less, but Prefect's client goes on for
minutes to reach a server that is gone."""


def launch(name: str, **parameters: Any) -> dict[str, Any]:
    """The data of the flow's final state (see `tasks.report.report`). Raises what the flow raised."""
    _check_one_installation()
    _quiet_console()
    with _server():
        try:
            state = asyncio.run(_run(FLOWS[name], parameters))
        except (KeyboardInterrupt, TerminationSignal, asyncio.CancelledError):
            raise _stopped() from None
    if state is None or not state.is_final():
        raise _stopped()
    result = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):
        raise result
    return dict(result)


def _stopped() -> RunStopped:
    return RunStopped(
        "stopped before all rows were asked",
        value="interrupted",
        expected="to run to the end",
        remedy="run the same command again: finished rows are kept and only the others are asked",
    )


async def _run(flow: Flow[..., Any], parameters: dict[str, Any]) -> State[Any] | None:
    """The state in which the flow's body ended, or else Prefect's; None when it was stopped."""
    run = asyncio.current_task()
    assert run is not None
    last_resort = threading.Timer(GIVE_UP_S, _give_up)
    last_resort.daemon = True
    stop = functools.partial(_stop, run, last_resort)
    # A supervisor's SIGTERM ends a run as Ctrl-C does: rows in flight are aborted, finished ones kept.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    # Made here for its tag: one from Prefect's context would be each task run's, too, and cost each of them a request.
    async with get_client() as client:
        given = flow.serialize_parameters(parameters)
        flow_run = await client.create_flow_run(flow, parameters=given, tags=[TAG], state=Pending())
    parameters = get_call_parameters(flow.fn, (), parameters)
    ends: list[State[Any]] = []
    own_ends.set(ends)
    heeding = asyncio.create_task(_heed_cancel(flow_run.id, stop))
    state: State[Any] | None = None
    try:
        state = await run_flow_async(flow, flow_run=flow_run, parameters=parameters, return_type="state")
        to_cancel = state is not None and state.is_cancelling()
    except asyncio.CancelledError:
        to_cancel = heeding.done()
    finally:
        heeding.cancel()
    if to_cancel:
        await _tell_cancelled(flow_run.id)
    if not ends:
        return state
    # Stopped in its last moment: the server takes no other state, but the rows are sealed, and this is to be said.
    last_resort.cancel()
    return ends[0]


async def _tell_cancelled(flow_run: UUID) -> None:
    """The server would wait for minutes before it takes a run that is to be cancelled for ended."""
    with contextlib.suppress(HTTPError, ObjectNotFound, TimeoutError):
        async with asyncio.timeout(TELL_S), get_client() as client:
            await client.set_flow_run_state(flow_run, Cancelled(), force=True)


async def _heed_cancel(flow_run: UUID, stop: Callable[[], None]) -> None:
    """Returns once it has stopped the run as the UI's Cancel wants it; a worker would do that for its own runs."""
    async with get_client() as client:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            # A server that is away, or has forgotten the run, is no reason to end.
            with contextlib.suppress(HTTPError, ObjectNotFound):
                state = (await client.read_flow_run(flow_run)).state
                if state is not None and (state.is_cancelling() or state.is_cancelled()):
                    return stop()


def _stop(run: asyncio.Task[Any], last_resort: threading.Timer) -> None:
    """The first signal lets the run end by itself, for a while; the second ends the process."""
    if run.cancelling():
        _give_up()
    run.cancel()
    last_resort.start()


def _give_up() -> None:
    """Ends the process as SIGKILL would, which costs no finished row, and says why."""
    error = _stopped()
    print_error(error)
    os._exit(error.exit_code)


def _check_one_installation() -> None:
    places = {package.__name__: Path(package.__path__[0]).parent for package in (draftmill, tasks, flows)}
    if len(set(places.values())) > 1:
        raise MissingPart(
            "draftmill, tasks and flows come from different installations",
            value=", ".join(f"{package} from {place}" for package, place in places.items()),
            expected="one installation",
            remedy="run from another folder, or uninstall one of them",
        )


def _quiet_console() -> None:
    """Prefect's own log stays in its UI; the terminal is the command's. Errors reach it as the command's message."""
    for logger in (logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)):
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and type(handler).__module__.startswith("prefect."):
                handler.setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _server() -> Iterator[None]:
    """The configured server, or a local one that ends with this process, however that ends."""
    if url := get_current_settings().api.url:
        asyncio.run(check_server(url, otherwise=", or unset PREFECT_API_URL to run on a local one"))
        yield
        return
    server = SubprocessASGIServer()
    server.start(timeout=START_TIMEOUT_S)
    assert server.server_process is not None, "start() returns with a running process, or raises"
    try:
        with ends_with_us(server.server_process.pid):
            yield
    finally:
        # Log lines and events still on their way need the server.
        APILogHandler().flush()
        EventsWorker.drain_all(timeout=DRAIN_TIMEOUT_S)
        server.stop()


async def check_server(url: str, *, otherwise: str = "") -> None:
    """Raises DraftmillError when nobody answers there. `otherwise`: what else is there to do."""
    async with get_client() as client:
        if (fault := await client.api_healthcheck()) is not None:
            raise DraftmillError(
                "the Prefect server does not answer",
                value=f"{url}: {type(fault).__name__}",
                expected="a running server at PREFECT_API_URL (or in Prefect's profile)",
                remedy=f"start it (prefect server start){otherwise}",
            )
