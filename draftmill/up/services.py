"""The processes of `draftmill up`: started together where they can be, watched, and ended in order.

Order: the S3 server, the engine and Prefect's server at once; the worker last, since a
late run begins as soon as there is one; at the end the runs first, then the worker, and
what they write to last. A service that dies is started again on its data and port; one
that keeps dying ends everything, with its log's name.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Protocol

from draftmill.errors import DraftmillError
from draftmill.serving.prefect_server import PrefectServer, PrefectWorker
from draftmill.serving.process import Child
from draftmill.serving.seaweed import SeaweedFS
from draftmill.up.credentials import Credentials
from draftmill.up.home import Home
from draftmill.up.ports import Ports, inner_ports

RESTARTS = 3
"""Times that a service is started again within RESTARTS_S: more often, no start will mend it."""

RESTARTS_S = 600.0
"""Seconds after which a restart is forgotten."""

ENGINE_READY_S = 120
"""Seconds for llama.cpp to load: 3 s on a quiet machine."""

ENGINE_ENDS_S = 5
"""Seconds for the engine to end by itself; it keeps nothing."""

ASK_S = 5
"""Seconds for the engine to say who it is."""


class Runnable(Protocol):
    """A `Child`, or what wraps one."""

    @property
    def pid(self) -> int | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(slots=True)
class Service:
    """`name`: in people's words; `log`: its file; `restarts`: when, on the monotonic clock."""

    name: str
    process: Runnable
    log: Path
    restarts: list[float] = field(default_factory=list)

    def may_restart(self, now_s: float) -> bool:
        """Whether one more is within the limit; counts it."""
        self.restarts = [at for at in self.restarts if now_s - at < RESTARTS_S]
        self.restarts.append(now_s)
        return len(self.restarts) <= RESTARTS


class Services:
    """`stop`: once it is set, nothing is waited for any more. Nothing starts here yet. Raises MissingPart."""

    def __init__(
        self, home: Home, credentials: Credentials, ports: Ports, *, engine: bool, stop: threading.Event
    ) -> None:
        self._stop = stop
        logs = home.logs
        s3 = SeaweedFS(
            home.s3,
            key=credentials.key,
            ports=inner_ports(home.s3_ports) | {"s3": ports.s3},
            log=logs / "s3.log",
            stop=stop,
        )
        server = PrefectServer(
            home.prefect, port=ports.ui, auth=credentials.auth, log=logs / "prefect-server.log", stop=stop
        )
        environment = {**s3.environment, "DRAFTMILL_STATE": str(home.state)}
        worker = PrefectWorker(server, home.work, environment=environment, log=logs / "worker.log", stop=stop)
        self.bucket_server, self.server = s3, server
        self.environment = {**server.client_environment, **environment}
        self.s3 = Service("S3 server", s3, logs / "s3.log")
        self.prefect = Service("Prefect server", server, logs / "prefect-server.log")
        self.worker = Service("worker", worker, logs / "worker.log")
        self.engine_url = f"http://127.0.0.1:{ports.engine}"
        self.engine = Service("engine", _engine(ports.engine, logs, stop), logs / "engine.log") if engine else None

    @property
    def all(self) -> list[Service]:
        """In the order in which they end."""
        return [each for each in (self.worker, self.prefect, self.engine, self.s3) if each is not None]

    def start(self, work: dict[str, Callable[[], None]], *, waiting: Callable[[list[str]], None]) -> None:
        """Runs the named pieces at once; `waiting` is told the names that are not done, whenever one is.

        Raises the first error; returns early once `stop` is set.
        """
        with ThreadPoolExecutor(len(work)) as threads:
            names: dict[Future[None], str] = {threads.submit(each): name for name, each in work.items()}
            pending = set(names)
            waiting(list(work))
            while pending and not self._stop.is_set():
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                if done:
                    waiting([name for each, name in names.items() if each in pending])
                if any(each.exception() for each in done):
                    self._stop.set()  # the others need not be waited for
            for each in names:
                each.result()

    def restart_dead(self, say: Callable[[str], None]) -> None:
        """Starts again what has died. Raises DraftmillError for what keeps dying, or does not come up."""
        for service in self.all:
            if service.process.pid is not None or self._stop.is_set():
                continue
            if not service.may_restart(time.monotonic()):
                raise DraftmillError(
                    f"the {service.name} keeps ending",
                    value=f"{RESTARTS} restarts within {RESTARTS_S / 60:.0f} minutes",
                    expected="a service that stays up",
                    remedy=f"see {service.log}",
                )
            say(f"the {service.name} has ended by itself (see {service.log}); starting it again")
            service.process.start()
            if not self._stop.is_set():
                say(f"the {service.name} is up again")

    def end(self, say: Callable[[str], None]) -> None:
        """Ends those that run, in order."""
        for service in self.all:
            if service.process.pid is not None:
                say(f"ending the {service.name}")
            service.process.stop()


def _engine(port: int, logs: Path, stop: threading.Event) -> Child:
    def answers() -> bool:
        connection = HTTPConnection("127.0.0.1", port, timeout=ASK_S)
        try:
            connection.request("GET", "/server_info")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    return Child(
        "the engine",
        [sys.executable, "-m", "draftmill", "engine", "--port", str(port)],
        environment=os.environ,
        log=logs / "engine.log",
        answers=answers,
        ready_s=ENGINE_READY_S,
        ends_s=ENGINE_ENDS_S,
        stop=stop,
    )
