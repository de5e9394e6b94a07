"""The progress bar: rows, tokens per second, time left; plain lines where there is no terminal."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from draftmill.progress import Rows
from draftmill.reporting.plain_text import plain

LINE_EVERY_S = 10.0
"""Seconds between progress lines when stderr is a file."""


class BarListener:
    """A `progress.Listener` for a person: one bar, one line a stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last_s = 0.0
        self._last_wait = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def stage(self, text: str) -> None:
        self._close()
        self._console.print(text)

    def wait(self, text: str) -> None:
        # A server loads for minutes and is looked at every two seconds.
        if self._due() or text.split(";")[0] != self._last_wait:
            self._last_wait = text.split(";")[0]
            self._console.print(plain(text))  # a server's words may be in it

    def rows(self, rows: Rows) -> None:
        words = f"{rows.tokens_per_s:,.0f} tokens/s" + ("" if rows.left_s is None else f", {_clock(rows.left_s)} left")
        if not self._console.is_terminal:
            if self._due() or rows.done == rows.total:
                self._console.print(f"  {rows.done:,} of {rows.total:,} rows, {words}")
            return
        if self._bar is None:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("rows, {task.description}"))
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task(words, total=rows.total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=rows.done, total=rows.total, description=words)

    def _due(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._last_s < LINE_EVERY_S:
            return False
        self._last_s = now_s
        return True

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
