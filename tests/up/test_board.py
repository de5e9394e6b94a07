"""What the terminal is shown of runs: one line each, and nobody's control characters."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from draftmill.up.board import Board
from draftmill.up.runs import Run


def run(**changes: object) -> Run:
    values = {"id": "1", "name": "refresh demo v1", "state": "Completed", "kind": "COMPLETED", "message": ""}
    return Run(**{**values, "seconds": 9.2, "deployment": "d", **changes})  # type: ignore[arg-type]


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200, color_system=None)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (run(state="Running", kind="RUNNING"), "refresh demo v1: begun"),
        (run(message="6 new rows, manifest 1"), "refresh demo v1: Completed after 9 s: 6 new rows, manifest 1"),
        (run(state="RowsMissing", kind="FAILED"), "refresh demo v1: RowsMissing after 9 s"),
    ],
)
def test_a_run_is_a_line(console: Console, shown: Run, line: str) -> None:
    with Board(console) as board:
        board.run(shown)
    (written,) = text(console).splitlines()
    assert written.partition(" ")[2] == line


def test_control_characters_of_a_message_do_not_reach_the_terminal(console: Console) -> None:
    with Board(console) as board:
        board.run(run(message="\x1b[2Jgone"))
    assert "\x1b" not in text(console)


def test_without_a_terminal_there_are_lines_only(console: Console) -> None:
    with Board(console) as board:
        board.waiting(["engine"])
        board.waiting([])
        board.now([run(kind="RUNNING", percent=50.0)], [("engine", True)])
    assert len(text(console).splitlines()) == 1


def test_on_a_terminal_runs_and_services_are_painted() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    with Board(console) as board:
        board.now([run(kind="RUNNING", percent=50.0, words="24 of 48 rows")], [("engine", True), ("worker", False)])
        shown = text(console)
    assert "24 of 48 rows" in shown
    assert "● engine" in shown
    assert "○ worker" in shown


def test_a_terminal_that_is_gone_costs_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    with Board(Console(file=Gone(), force_terminal=False)) as board:
        board.line("anything")
