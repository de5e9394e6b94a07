"""A taken port is named with its option before anything starts."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.errors import RecipeError
from draftmill.serving.process import free_ports
from draftmill.serving.seaweed import PORTS
from draftmill.up.ports import Ports, check_ports, inner_ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(("place", "option"), [(0, "--port"), (1, "--s3-port"), (2, "--engine-port")])
def test_a_taken_port_names_its_option(taken: int, place: int, option: str) -> None:
    ports = free_ports(3)
    ports[place] = taken
    with pytest.raises(RecipeError) as refused:
        check_ports(Ports(*ports), engine=True)
    assert f"({option})" in refused.value.what
    assert f"127.0.0.1:{taken}" in str(refused.value.value)
    assert f"{option} " in refused.value.remedy


def test_a_port_on_all_addresses_is_taken_too() -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        ui, s3, engine = free_ports(3)
        with pytest.raises(RecipeError):
            check_ports(Ports(other.getsockname()[1], s3, engine), engine=True)
        check_ports(Ports(ui, s3, engine), engine=True)


def test_an_engine_of_your_own_may_be_there(taken: int) -> None:
    ui, s3 = free_ports(2)
    check_ports(Ports(ui, s3, taken), engine=False)


def test_two_services_cannot_have_one_port() -> None:
    (port,) = free_ports(1)
    with pytest.raises(RecipeError, match="one port"):
        check_ports(Ports(port, port, free_ports(1)[0]), engine=True)


def test_inner_ports_stay_unless_one_is_taken(tmp_path: Path, taken: int) -> None:
    path = tmp_path / "ports.json"
    first = inner_ports(path)
    assert set(first) == set(PORTS)
    assert inner_ports(path) == first
    path.write_text(json.dumps({**first, "filer": taken}))
    again = inner_ports(path)
    assert again["filer"] != taken
    assert again == {**first, "filer": again["filer"]}
    assert len(set(again.values())) == len(PORTS)


@pytest.mark.parametrize("text", ["", "[1]", '{"filer": "x", "s3": null}'])
def test_an_odd_file_of_inner_ports_is_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ports.json"
    path.write_text(text)
    assert set(inner_ports(path)) == set(PORTS)
    assert json.loads(path.read_text()) == inner_ports(path)
