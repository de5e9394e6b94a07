"""The home: whose it is, who may look in, and that one `up` has it at a time."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from draftmill.errors import DraftmillError
from draftmill.up.home import Home, Standing, held, open_home

HOLDS = """
import sys
from pathlib import Path
from draftmill.up.home import held, open_home
with held(open_home(Path(sys.argv[1]))) as ours:
    print(ours, flush=True)
    sys.stdin.read()
"""


def hold(root: Path) -> subprocess.Popen[str]:
    """Another process that has the home."""
    command = [sys.executable, "-c", HOLDS, str(root)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    return other


@pytest.mark.parametrize("before", ["nothing", "an empty folder"])
def test_only_its_owner_may_look_in(tmp_path: Path, before: str) -> None:
    root = tmp_path / "a" / "home"
    if before == "an empty folder":
        root.mkdir(parents=True, mode=0o755)
    assert stat.S_IMODE(open_home(root).root.stat().st_mode) == 0o700


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DraftmillError, match="holds other things") as refused:
        open_home(tmp_path)
    assert "thesis.tex" in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_home_open_to_others_is_refused(tmp_path: Path) -> None:
    with held(open_home(tmp_path / "home")):
        pass
    (tmp_path / "home").chmod(0o755)
    with pytest.raises(DraftmillError, match="others can look") as refused:
        open_home(tmp_path / "home")
    assert refused.value.remedy == f"chmod 700 {tmp_path / 'home'}"


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DraftmillError, match="cannot be used"):
        open_home(tmp_path / "file")


def test_a_home_that_was_left_half_made_is_used(tmp_path: Path) -> None:
    """As a kill leaves it: locked, and none of the folders is there yet."""
    root = tmp_path / "home"
    open_home(root).lock.touch()
    with held(open_home(root)) as ours:
        assert ours
        assert open_home(root).logs.is_dir()


def test_one_at_a_time_and_a_killed_one_leaves_it_free(tmp_path: Path) -> None:
    root = tmp_path / "home"
    other = hold(root)
    with held(open_home(root)) as ours:
        assert not ours
    other.kill()
    other.communicate()
    with held(open_home(root)) as ours:
        assert ours


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    said = Standing(1, "http://127.0.0.1:1", "http://127.0.0.1:2", None, True)
    with held(home):
        assert home.standing() is None
        home.stand(said)
        assert Home(home.root).standing() == said
    assert home.standing() is None


def test_what_a_killed_one_said_is_forgotten(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    home.stand(Standing(1, "", "", None, True))
    with held(home):
        assert home.standing() is None


def test_a_second_one_does_not_take_away_what_the_first_said(tmp_path: Path) -> None:
    root = tmp_path / "home"
    other = hold(root)
    home = open_home(root)
    home.stand(Standing(1, "", "", None, True))
    with held(home) as ours:
        assert not ours
    assert home.standing() is not None
    other.communicate()
