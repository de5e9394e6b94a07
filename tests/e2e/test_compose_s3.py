"""SeaweedFS as the compose file starts it: its one key opens it, nothing else does, and a bucket can be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from draftmill.dataset.storage import Outcome, open_storage
from draftmill.serving.process import Child, free_ports
from draftmill.serving.seaweed import PORTS
from tests.infra.claims import ROOT

SERVICES = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text(encoding="utf-8"))["services"]
KEY, SECRET = "an-access-key", "a-secret-key"
WEED = Path(sys.executable).with_name("weed")


def client(port: int, secret: str = SECRET) -> Any:
    return Session().create_client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=KEY,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1}),
    )


def _parts(ports: dict[str, int]) -> list[tuple[tuple[str, str, str], int]]:
    return [(name.partition("."), number) for name, number in ports.items()]


def test_it_is_open_to_its_key_only(tmp_path: Path, s3_environment) -> None:
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    port, master = ports["s3"], f"127.0.0.1:{ports['master']}.{ports['master.grpc']}"
    service = SERVICES["seaweedfs"]
    mapped = {
        "-dir=/data": f"-dir={tmp_path}",
        "-ip=seaweedfs": "-ip=127.0.0.1",
        "-ip.bind=0.0.0.0": "-ip.bind=127.0.0.1",
    }
    mapped["-s3.port=8333"] = ""
    assert set(mapped) <= set(service["command"])
    words = [mapped.get(word, word) for word in service["command"] if mapped.get(word, word)]
    words += [f"-{part}.port{'.' + kind if kind else ''}={number}" for (part, _, kind), number in _parts(ports)]
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    assert set(keys) == set(service["environment"])
    # The entrypoint's shell, with compose's $$ as compose passes it on.
    entrypoint = [word.replace("$$", "$").replace("exec weed", f"exec {WEED}") for word in service["entrypoint"]]
    empty = subprocess.run([*entrypoint, *words], env=os.environ | {"AWS_SECRET_ACCESS_KEY": ""}, capture_output=True)
    assert empty.returncode == 1

    def answers() -> bool:
        try:
            client(port).list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    server = Child(
        "SeaweedFS", [*entrypoint, *words], environment=os.environ | keys, log=tmp_path / "log", answers=answers,
        ready_s=60, ends_s=3,
    )  # fmt: skip
    server.start()
    try:
        bucket = SERVICES["bucket"]
        here = f"{WEED} shell -master={master}"
        script = bucket["command"][0].replace("weed shell -master=seaweedfs:9333", here)
        assert script.count(here) == 2
        for _ in range(2):
            subprocess.run([*bucket["entrypoint"], script], check=True, capture_output=True)
        with pytest.raises(ClientError):
            client(port, "another-secret").list_buckets()
        s3_environment({**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_DEFAULT_REGION": "us-east-1"})
        storage = open_storage("s3://draftmill/night")
        assert storage.create("one", b"1") is Outcome.CREATED
        assert storage.create("one", b"2") is Outcome.EXISTS
    finally:
        server.stop()
