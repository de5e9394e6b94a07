"""Prefect's server, and a worker, as child processes on loopback: for `draftmill up` and for tests.

Only commands are run and the API is asked over HTTP: draftmill/ imports nothing
of Prefect. A server has a home of its own (database, settings), so that nobody's
other Prefect is touched, and may be killed and started again on it.

Promises: it listens on 127.0.0.1 only; with `auth` its API answers nobody without
it, and the secret is in the environment only, never on a command line.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

from draftmill.errors import DraftmillError
from draftmill.serving.process import LOOK_EVERY_S, Child, free_ports

SETTINGS = {
    # Prefect would report usage to its makers.
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # The newer UI asks a host of Amplitude's at every start, whatever is said above; no setting stops it.
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # Our log lines belong to the run's page in the UI.
    "PREFECT_LOGGING_EXTRA_LOGGERS": "draftmill",
    # SQLite writes one at a time: with batches no task run is missing in the UI.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    # In memory, the leases of running runs would end with the server: a restart would end every run of a deployment
    # with a concurrency limit, at its next renewal.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
}
"""For every Prefect server and client that draftmill starts; the environment wins."""

POOL = "draftmill"
"""The work pool of deployments/prefect.yaml."""

READY_S = 120
"""Seconds for the first start, which makes a database on a busy machine."""

SERVER_ENDS_S = 10
"""Seconds for the server to end by itself."""

WORKER_ENDS_S = 30
"""Seconds for a worker to end by itself, its runs with it."""

ASK_S = 10
"""Seconds for an answer of the API."""


BUSY_S = 30
"""Seconds a 503 is asked again: SQLite is locked for a moment under load."""


class PrefectServer:
    """A context manager: `with PrefectServer(home) as server: ... server.url, server.environment`. Blocks.

    `port`: a free one when None. `auth`: "user:password". `database`: an SQLAlchemy URL; SQLite in `home` when None.
    `settings`: more PREFECT_ variables of the server. `log`: where its output goes, a file in `home` when None.
    `stop`: once set, starting waits no longer.
    """

    def __init__(
        self,
        home: Path,
        *,
        port: int | None = None,
        auth: str | None = None,
        database: str | None = None,
        settings: dict[str, str] | None = None,
        log: Path | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.home = home
        self.port = free_ports(1)[0] if port is None else port
        self._auth = auth
        self._stop = stop or threading.Event()
        own = {
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": str(self.port),
            # The UI asks where it came from, not port 4200.
            "PREFECT_UI_API_URL": "/api",
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": self.url,
        }
        if auth:
            own["PREFECT_SERVER_API_AUTH_STRING"] = auth
        if database:
            own["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database
        self._child = Child(
            "the Prefect server",
            [sys.executable, "-m", "prefect", "server", "start"],
            environment={**_without_prefect(), **self.environment, **own, **(settings or {})},
            log=log or home / "server.log",
            answers=self._answers,
            ready_s=READY_S,
            ends_s=SERVER_ENDS_S,
            stop=stop,
        )

    @property
    def url(self) -> str:
        """Where the UI is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client, a worker, or `draftmill run` needs to use it."""
        return {**SETTINGS, "PREFECT_HOME": str(self.home), **self.client_environment}

    @property
    def client_environment(self) -> dict[str, str]:
        """Where it is, and its password: what somebody's own shell needs, whose Prefect is theirs otherwise."""
        auth = {"PREFECT_API_AUTH_STRING": self._auth} if self._auth else {}
        return {"PREFECT_API_URL": f"{self.url}/api", **auth}

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._child.pid

    def __enter__(self) -> PrefectServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it, on the data and port it had. Raises DraftmillError when it does not come up."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._child.start()

    def stop(self) -> None:
        """Ends it in order."""
        self._child.stop()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._child.kill()

    def command(self, *arguments: str, folder: Path, log: Path) -> None:
        """Runs `prefect ARGUMENTS` on this server, in `folder`; `stop` ends it. Raises DraftmillError when it fails."""
        command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        environment = {**_without_prefect(), **self.environment}
        with log.open("ab") as file:
            running = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for whoever started it
            )
        while running.poll() is None:
            if self._stop.wait(LOOK_EVERY_S):
                running.kill()
                running.wait()
                return
        if running.returncode:
            raise DraftmillError(
                "a command of Prefect's fails",
                value=f"prefect {' '.join(arguments)}: exit status {running.returncode}",
                expected="exit status 0",
                remedy=f"see {log}",
            )

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The API's answer as JSON: `ask("POST", "/flow_runs/filter", {"limit": 1})`; None without a body.

        Raises DraftmillError for a refusal, OSError or HTTPException when nobody answers.
        """
        status, data = self._exchange(method, path, body)
        deadline = time.monotonic() + BUSY_S
        while status == 503 and time.monotonic() < deadline:
            time.sleep(0.5)
            status, data = self._exchange(method, path, body)
        if status >= 400:
            raise DraftmillError(
                "Prefect's API refuses a request",
                value=f"{method} {path}: {status} {data[:500].decode(errors='replace')}",
                expected="an answer",
                remedy=f"see {self._child.log}",
            )
        return json.loads(data) if data else None

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ASK_S)
        headers = {"Content-Type": "application/json"}
        if self._auth:
            headers["Authorization"] = f"Basic {base64.b64encode(self._auth.encode()).decode()}"
        try:
            connection.request(method, f"/api{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _answers(self) -> bool:
        try:
            return self._exchange("GET", "/health", None)[0] == 200
        except (OSError, HTTPException):
            return False


class PrefectWorker:
    """A process worker of a server's work pool, which it makes: `with PrefectWorker(server, folder) as worker`.

    `folder`: where its log lies and its runs begin. `environment`: more variables for it and its runs (the keys of
    object storage, DRAFTMILL_STATE). `limit`: runs at once. `log`: where its output goes, a file in `folder` when None.
    `stop`: once set, starting waits no longer.
    """

    def __init__(
        self,
        server: PrefectServer,
        folder: Path,
        *,
        name: str = "worker",
        pool: str = POOL,
        limit: int | None = None,
        environment: dict[str, str] | None = None,
        log: Path | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.name, self.pool = name, pool
        self._server = server
        command = ["worker", "start", "--pool", pool, "--type", "process", "--name", name]
        if limit is not None:
            command += ["--limit", str(limit)]
        # A run is to begin a moment after it is due.
        soon = {"PREFECT_WORKER_QUERY_SECONDS": "2"}
        self._child = Child(
            f"the worker {name}",
            [sys.executable, "-m", "prefect", *command],
            environment={**_without_prefect(), **server.environment, **soon, **(environment or {})},
            log=log or folder / f"{name}.log",
            answers=self._online,
            ready_s=READY_S,
            ends_s=WORKER_ENDS_S,
            folder=folder,
            stop=stop,
        )

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._child.pid

    def __enter__(self) -> PrefectWorker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it. Raises DraftmillError when it does not come up."""
        self._child.start()

    def stop(self) -> None:
        """Ends it in order."""
        self._child.stop()

    def kill(self) -> None:
        """Ends it, and not its runs, as the kernel out of memory would."""
        self._child.kill()

    def _online(self) -> bool:
        try:
            workers = self._server.ask("POST", f"/work_pools/{self.pool}/workers/filter", {})
        except (OSError, HTTPException, DraftmillError):
            return False
        return any(worker["name"] == self.name and worker["status"] == "ONLINE" for worker in workers)


def _without_prefect() -> dict[str, str]:
    """This process's environment, less what would point a child at another Prefect."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
