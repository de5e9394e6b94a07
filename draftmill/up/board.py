"""What `draftmill up` shows: one line for each thing that happens, and below them, on a terminal, what goes on now.

Lines on stderr, with their time; where there is no terminal, only the lines. The
processes' own logs lie in the home and are named, not shown. A terminal that is gone
(its window was closed) costs a line, not the services.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from draftmill.reporting.plain_text import plain
from draftmill.up.runs import Run

STYLES = {
    "COMPLETED": "green",
    "FAILED": "bold red",
    "CRASHED": "bold red",
    "CANCELLED": "yellow",
    "RUNNING": "cyan",
    "PAUSED": "yellow",
}

BAR_WIDTH = 30
"""Columns of a run's bar."""

PARTIAL = "PartialSuccess"
"""A completed run with rows in quarantine."""


class Board:
    """A context manager: the live part is gone when it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            if self._live:
                self._live.stop()
        self._live = None

    def line(self, text: str, style: str = "") -> None:
        """A thing that happened."""
        now = datetime.now().strftime("%H:%M:%S")
        with contextlib.suppress(OSError):
            self._console.print(Text.assemble((f"{now} ", "dim"), (plain(text), style)))

    def waiting(self, names: Sequence[str]) -> None:
        """What has not come up yet; a line where nothing can be painted over."""
        text = f"waiting for: {', '.join(names)}" if names else ""
        if self._live:
            self._paint(Text(text, style="dim"))
        elif text:
            self.line(text)

    def ending(self) -> None:
        """Nothing goes on any more."""
        self._paint(Text(""))

    def run(self, run: Run) -> None:
        """A run that began, or came to an end."""
        if run.kind == "RUNNING":
            self.line(f"{run.name}: begun", STYLES["RUNNING"])
            return
        style = "yellow" if run.state == PARTIAL else STYLES.get(run.kind, "")
        said = f": {run.message}" if run.message else ""
        self.line(f"{run.name}: {run.state} after {run.seconds:.0f} s{said}", style)

    def now(self, runs: Sequence[Run], services: Sequence[tuple[str, bool]]) -> None:
        """The runs and services as they are; nothing where there is no terminal."""
        up = [(f" {'●' if up else '○'} {name} ", "green" if up else "bold red") for name, up in services]
        table = Table.grid(padding=(0, 2))
        for run in runs:
            bar = ProgressBar(total=100, completed=run.percent or 0, width=BAR_WIDTH, pulse=run.percent is None)
            words = run.words or f"{run.seconds:.0f} s"
            table.add_row(Text(plain(run.name)), bar, Text(plain(words), style="dim"))
        self._paint(Group(*([table] if runs else []), Text.assemble(*up, (" Ctrl-C ends all", "dim"))))

    def _paint(self, what: Group | Text) -> None:
        with contextlib.suppress(OSError):
            if self._live:
                self._live.update(what, refresh=True)
