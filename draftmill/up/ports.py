"""The ports people see, and whether they are free before anything starts; and the S3 server's inner ones."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from draftmill.errors import RecipeError
from draftmill.serving.process import free_ports
from draftmill.serving.seaweed import PORTS

DEFAULT_UI = 4200
"""Prefect's own."""

DEFAULT_S3 = 8333
"""SeaweedFS's own."""

DEFAULT_ENGINE = 30000
"""SGLang's own, and the one in deployments/recipes/demo.yaml."""


@dataclass(frozen=True, slots=True)
class Ports:
    """`engine` is only looked at where an engine is to be started."""

    ui: int = DEFAULT_UI
    s3: int = DEFAULT_S3
    engine: int = DEFAULT_ENGINE


def check_ports(ports: Ports, *, engine: bool) -> None:
    """Raises RecipeError for a port that cannot be listened on, naming its option."""
    named = {"--port": ports.ui, "--s3-port": ports.s3} | ({"--engine-port": ports.engine} if engine else {})
    if len(set(named.values())) < len(named):
        raise RecipeError(
            "two services cannot have one port",
            value=", ".join(f"{option} {port}" for option, port in named.items()),
            expected="a port for each",
            remedy="change one of the options",
        )
    for option, port in named.items():
        if (fault := _fault(port)) is not None:
            raise RecipeError(
                f"a port is not free ({option})",
                value=f"127.0.0.1:{port}: {fault}",
                expected="a port that nobody listens on",
                remedy=f"end what uses it (`ss -ltnp` names it), or give another: {option} {free_ports(1)[0]}",
            )


def _fault(port: int) -> str | None:
    with socket.socket() as probe:
        # As the servers do it: connections of one that has ended do not hold its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError as error:
            return os.strerror(error.errno or 0)
    return None


def inner_ports(path: Path) -> dict[str, int]:
    """A port for each of SeaweedFS's: those of the file, others where one is not free; the file is written anew."""
    kept: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        kept = {name: port for name, port in json.loads(path.read_text(encoding="utf-8")).items() if type(port) is int}
    new = free_ports(len(PORTS))
    ports = {name: kept[name] if name in kept and not _fault(kept[name]) else new.pop() for name in PORTS}
    path.write_text(json.dumps(ports) + "\n", encoding="utf-8")
    return ports
