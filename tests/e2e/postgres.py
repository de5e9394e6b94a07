"""Debian's PostgreSQL for Prefect's server: a cluster in a temporary folder, on loopback, with a password."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftmill.serving.process import Child, free_ports

OWNER = "postgres"
"""Who runs it when the tests run as root, which PostgreSQL refuses."""


READY_S = 60
"""Seconds for it to start, and to replay what a crash left: 1 s on a quiet machine."""

ENDS_S = 20
"""Seconds for it to end by itself, once its clients are gone."""


def programs() -> Path:
    """The folder of initdb, pg_ctl, pg_dump. Skips where there is none, and fails where all of e2e is asked for."""
    found = [path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    if not found:
        told = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        if os.environ.get("DRAFTMILL_E2E") == "all":
            pytest.fail(told)
        pytest.skip(told)
    return found[-1]


class Postgres:
    """A cluster in `folder`, which must not exist: `url("prefect")` for Prefect, `run("pg_dump", ...)` as its admin."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._bin = folder, programs()
        self._password = secrets.token_hex(12)
        self._port = free_ports(1)[0]
        self._child = Child(
            "PostgreSQL",
            [*self._as_owner(), str(self._bin / "postgres"), "-D", str(folder / "data"), *self._settings()],
            environment=os.environ | {"LC_ALL": "C"},
            log=folder / "log",
            answers=lambda: self._client("pg_isready", check=False).returncode == 0,
            ready_s=READY_S,
            ends_s=ENDS_S,
        )

    def url(self, database: str) -> str:
        """As SQLAlchemy writes it."""
        return f"postgresql+asyncpg://prefect:{self._password}@127.0.0.1:{self._port}/{database}"

    def run(self, program: str, *arguments: str) -> None:
        """One of its client programs, over the network as any client."""
        self._client(program, *arguments)

    def start(self) -> None:
        self._folder.mkdir()
        password = self._folder / "password"
        password.write_text(self._password)
        if os.getuid() == 0:
            for path in (self._folder, password):
                shutil.chown(path, OWNER, OWNER)
        options = ["--username=prefect", "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync", "--locale=C"]
        command = [*self._as_owner(), str(self._bin / "initdb"), f"--pgdata={self._folder / 'data'}", *options]
        subprocess.run(command, cwd=self._folder, check=True, stdout=subprocess.DEVNULL)
        self._child.start()

    def stop(self) -> None:
        self._child.stop()

    def _as_owner(self) -> list[str]:
        return ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"] if os.getuid() == 0 else []

    def _settings(self) -> list[str]:
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        return ["-p", str(self._port), *(f"--{name}={value}" for name, value in settings.items())]

    def _client(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        own = {"PGHOST": "127.0.0.1", "PGPORT": str(self._port), "PGUSER": "prefect", "PGPASSWORD": self._password}
        return subprocess.run([self._bin / program, *arguments], env=os.environ | own, check=check, capture_output=True)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running cluster, which ends with the block. Its folder is not pytest's: that one is for root alone."""
    with tempfile.TemporaryDirectory(prefix="draftmill-postgres-") as folder:
        Path(folder).chmod(0o711)
        server = Postgres(Path(folder) / "cluster")
        server.start()
        try:
            yield server
        finally:
            server.stop()
