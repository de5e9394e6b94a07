"""Renderers: what one process gives, from several, whatever dies; nothing for little; no worker outlives its run."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset.schema import LOADED, ROW
from draftmill.errors import DraftmillError, RecipeError
from draftmill.progress import LogListener, listening
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.rendering import processes, renderer
from draftmill.rendering.processes import PIECE_ROWS, Renderers, cores
from draftmill.rendering.render import Rendered, render_prompts
from draftmill.rendering.renderer import Worker
from draftmill.rendering.worker import bytes_of, table_of

PATIENCE_S = 60.0
"""Seconds for a worker to start or to end on a loaded machine."""

CHAT = (
    "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('refused') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant"
)
PRINTS_THE_DAY = "{{ strftime_now('%d') }}{{ messages }}"


def recipe(folder: Path, template: str = CHAT) -> Recipe:
    file = folder / "chat.jinja"
    file.write_text(template)
    model = {"name": "m", "tokenizer": "embedded", "chat_template": str(file), "context_length": 128}
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 16, "samples": 2}
    data = {"dataset": "/nowhere", "prompts": {"path": "p.jsonl"}, "model": model, "sampling": sampling}
    return parse_recipe(data, origin="test")


def loaded(num_rows: int) -> pa.Table:
    """Prompts of every kind: every 7th is refused, every 11th too long, every 13th holds a marker."""

    def text(n: int) -> str:
        if n % 7 == 3:
            return "no"
        return "1" * 200 if n % 11 == 5 else f"prompt {n} <|im_end|>" if n % 13 == 1 else f"prompt {n}"

    rows = [
        {"prompt_id": str(n), "source": "p", "line": n, "messages": json.dumps({"messages": [_user(text(n))]})}
        for n in range(num_rows)
    ]
    return pa.Table.from_pylist(rows, schema=LOADED)


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The workers, as they are started."""
    workers: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            workers.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    return workers


@pytest.fixture
def only_first_here(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """This process renders one piece and holds its second until the event: all others are the workers'."""
    release, calls = threading.Event(), []

    def here(piece: pa.Table, recipe: Recipe) -> Rendered:
        calls.append(piece)
        if len(calls) > 1:
            assert release.wait(PATIENCE_S)
        return render_prompts(piece, recipe)

    monkeypatch.setattr(renderer, "render_prompts", here)
    return release


class Heard(LogListener):
    """The lines of a run, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def wait(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def heard() -> Iterator[Heard]:
    with listening(heard := Heard()):
        yield heard


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_several_processes_give_what_one_gives(
    tmp_path: Path, started: list[Any], only_first_here: threading.Event
) -> None:
    asked, table = recipe(tmp_path), loaded(7 * PIECE_ROWS + 1)
    async with Renderers(asked, lanes=3, alone_s=0) as renderers:
        task = asyncio.create_task(renderers.render(table))
        # All but the piece that is held, be it the short last one.
        await until(lambda: renderers.num_rows >= table.num_rows - PIECE_ROWS)
        only_first_here.set()
        several = await task
        assert renderers.num_workers == len(started) == 2
    one = render_prompts(table, asked)
    assert several.rows.equals(one.rows)
    assert several.rejected == one.rejected
    assert several.special_text == one.special_text > 0
    assert (renderers.num_rows, renderers.num_ids) == (
        table.num_rows,
        sum(len(ids) for ids in one.rows["prompt_ids"].to_pylist()),
    )
    assert all(worker.returncode is not None for worker in started)


async def test_several_tables_at_once_do_not_mix(tmp_path: Path) -> None:
    asked, table = recipe(tmp_path), loaded(3 * PIECE_ROWS)
    tables = [table.slice(start, 700) for start in (0, 700)]
    async with Renderers(asked, lanes=2) as renderers:
        several = await asyncio.gather(*map(renderers.render, tables))
    for part, rendered in zip(tables, several, strict=True):
        assert rendered.rows.equals(render_prompts(part, asked).rows)


async def test_little_work_starts_nothing(tmp_path: Path, started: list[Any]) -> None:
    async with Renderers(recipe(tmp_path), lanes=8) as renderers:
        assert (await renderers.render(loaded(2 * PIECE_ROWS))).rows.num_rows
        assert (await renderers.render(LOADED.empty_table())).rows.schema == ROW
    assert started == []


async def test_one_piece_starts_nothing_however_long_it_takes(tmp_path: Path, started: list[Any]) -> None:
    async with Renderers(recipe(tmp_path), lanes=8, alone_s=0) as renderers:
        await renderers.render(loaded(PIECE_ROWS))
    assert started == []


async def test_one_core_never_starts_any(tmp_path: Path, started: list[Any]) -> None:
    async with Renderers(recipe(tmp_path), lanes=1, alone_s=0) as renderers:
        await renderers.render(loaded(3 * PIECE_ROWS))
    assert started == []


async def test_a_recipe_that_serves_no_row_is_refused_as_ever(tmp_path: Path) -> None:
    asked = recipe(tmp_path, PRINTS_THE_DAY)
    with pytest.raises(RecipeError, match=r"set model\.date"):
        async with Renderers(asked, lanes=2, alone_s=0) as renderers:
            await renderers.render(loaded(2 * PIECE_ROWS))


async def test_a_worker_s_refusal_comes_through(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], only_first_here: threading.Event
) -> None:
    asked = recipe(tmp_path)

    async def run() -> None:
        async with Renderers(asked, lanes=2, alone_s=0) as renderers:
            await renderers.render(loaded(4 * PIECE_ROWS))

    task = asyncio.create_task(run())
    await until(lambda: bool(started))
    (tmp_path / "chat.jinja").unlink()  # before the worker has imported what reads it
    with pytest.raises(RecipeError, match="cannot be read"):
        await task
    only_first_here.set()
    assert [worker.returncode for worker in started] == [-signal.SIGKILL]


@pytest.mark.parametrize("at_work", [False, True])
async def test_what_a_killed_worker_had_is_rendered_again(
    tmp_path: Path, only_first_here: threading.Event, heard: Heard, monkeypatch: pytest.MonkeyPatch, at_work: bool
) -> None:
    """Killed while it loads, or with its first piece."""
    asked, table = recipe(tmp_path), loaded(6 * PIECE_ROWS)
    victims: list[Worker] = []

    def killed_once(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked_and_killed(worker: Worker, *piece: pa.Table) -> Any:
            if not victims:
                victims.append(worker)
                worker._process.kill()
                only_first_here.set()
            return ask(worker, *piece)

        return asked_and_killed

    name = "render" if at_work else "load"
    monkeypatch.setattr(Worker, name, killed_once(getattr(Worker, name)))
    async with Renderers(asked, lanes=3, alone_s=0) as renderers:
        several = await renderers.render(table)
        await until(lambda: renderers.num_free == 2)
        again = await renderers.render(table)
        assert renderers.num_free == 2, "the dead one is out"
    one = render_prompts(table, asked)
    assert several.rows.equals(one.rows)
    assert again.rows.equals(one.rows)
    assert several.rejected == again.rejected == one.rejected
    (line,) = heard.lines
    for words in (str(victims[0]._process.pid), "signal 9 (SIGKILL", "want of memory", "Processes left: 2"):
        assert words in line


async def test_workers_that_died_while_idle_are_not_given_anything(
    tmp_path: Path, only_first_here: threading.Event, heard: Heard, started: list[subprocess.Popen[bytes]]
) -> None:
    """Not even two of them, which would look like prompts that kill."""
    asked, table = recipe(tmp_path), loaded(6 * PIECE_ROWS)
    async with Renderers(asked, lanes=3, alone_s=0) as renderers:
        only_first_here.set()
        await renderers.render(table)
        await until(lambda: renderers.num_free == 3)
        for worker in started:
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE_S)
        free = sorted((renderers._free.get_nowait() for _ in range(3)), key=lambda each: not isinstance(each, Worker))
        for each in free:  # the two are next in turn, for one piece
            renderers._free.put_nowait(each)
        piece = table.slice(0, PIECE_ROWS)
        assert (await renderers.render(piece)).rows.equals(render_prompts(piece, asked).rows)
        assert renderers.num_free == 1
    assert [line.count("signal 15 (SIGTERM)") for line in heard.lines] == [1, 1]


async def test_a_piece_that_kills_two_workers_is_an_error_in_four_parts(
    tmp_path: Path, only_first_here: threading.Event, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    render = Worker.render

    def killing(worker: Worker, piece: pa.Table) -> Rendered:
        worker._process.kill()
        worker._process.wait(PATIENCE_S)
        return render(worker, piece)

    monkeypatch.setattr(Worker, "render", killing)

    async def run() -> None:
        async with Renderers(recipe(tmp_path), lanes=3, alone_s=0) as renderers:
            await renderers.render(loaded(3 * PIECE_ROWS))

    with pytest.raises(DraftmillError, match="'1000' to '1499' of p") as caught:
        await run()
    only_first_here.set()
    assert str(caught.value).count("killed by signal 9 (SIGKILL") == 2
    assert "to do:" in str(caught.value)
    assert len(heard.lines) == 2


@pytest.mark.parametrize(
    "error", [OSError(errno.EAGAIN, "again"), OSError(errno.EMFILE, "files"), RuntimeError("can't start new thread")]
)
@pytest.mark.parametrize(("starts", "kept"), [(0, 0), (1, 0), (2, 1)])
async def test_workers_that_cannot_be_started_are_done_without(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch, error: Exception, starts: int, kept: int
) -> None:
    popen = subprocess.Popen
    workers: list[subprocess.Popen[bytes]] = []

    def limited(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        if len(workers) == starts:
            raise error
        workers.append(popen(*arguments, **named))
        return workers[-1]

    monkeypatch.setattr(subprocess, "Popen", limited)
    asked, table = recipe(tmp_path), loaded(4 * PIECE_ROWS)
    async with Renderers(asked, lanes=5, alone_s=0) as renderers:
        assert (await renderers.render(table)).rows.equals(render_prompts(table, asked).rows)
        assert renderers.num_workers == kept
        assert sum(worker.poll() is None for worker in workers) == kept
    (line,) = heard.lines
    assert f"{kept} of 4 processes" in line
    assert str(error) in line


async def test_a_worker_is_free_only_when_its_thread_has_its_answer(
    tmp_path: Path, only_first_here: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slice that asked is cancelled; the next one's piece must wait, or it would be given the other's rows."""
    render, answered, given = Worker.render, threading.Event(), []

    def held(worker: Worker, piece: pa.Table) -> Rendered:
        given.append(piece)
        assert answered.wait(PATIENCE_S)
        return render(worker, piece)

    monkeypatch.setattr(Worker, "render", held)
    asked, table = recipe(tmp_path), loaded(5 * PIECE_ROWS)
    first, second = table.slice(0, 3 * PIECE_ROWS), table.slice(3 * PIECE_ROWS)
    async with Renderers(asked, lanes=2, alone_s=0) as renderers:
        cancelled = asyncio.create_task(renderers.render(first))
        await until(lambda: len(given) == 1)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        task = asyncio.create_task(renderers.render(second))
        await asyncio.sleep(0.1)
        assert renderers.num_free == 0
        assert len(given) == 1
        answered.set()
        await until(lambda: len(given) == 3)  # this process still holds the cancelled slice's second piece
        only_first_here.set()
        assert (await task).rows.equals(render_prompts(second, asked).rows)


def test_an_answer_to_another_question_is_an_error(tmp_path: Path) -> None:
    worker, table = Worker(recipe(tmp_path)), loaded(20)
    try:
        worker.load()
        worker._pipe.send((99, bytes_of(table.slice(0, 10))))
        with pytest.raises(DraftmillError, match="another question") as caught:
            worker.render(table.slice(10))
        assert worker.death, "its next answer would be late too"
    finally:
        worker.end()
    assert caught.value.value == "answer 99"


def _gone(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "gone").mkdir()
    patch.chdir(folder / "gone")
    patch.syspath_prepend("")
    (folder / "gone").rmdir()


def _shadowed(folder: Path, patch: pytest.MonkeyPatch) -> None:
    for name in ("json", "draftmill", "pyarrow"):
        (folder / f"{name}.py").write_text("raise SystemExit(3)")
    patch.chdir(folder)


def _other_path(folder: Path, patch: pytest.MonkeyPatch) -> None:
    _shadowed(folder, patch)
    patch.setenv("PYTHONPATH", str(folder))


def _safe_path(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PYTHONSAFEPATH", "1")


@pytest.mark.parametrize("place", [_gone, _shadowed, _other_path, _safe_path])
def test_a_worker_imports_what_this_process_does_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    asked, table = recipe(tmp_path), loaded(20)
    one = render_prompts(table, asked)  # what it takes is imported in good times
    place(tmp_path, monkeypatch)
    worker = Worker(asked)
    try:
        worker.load()
        assert worker.render(table).rows.equals(one.rows)
    finally:
        worker.end()


async def test_a_cancelled_run_ends_its_workers(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], only_first_here: threading.Event
) -> None:
    async def run() -> None:
        async with Renderers(recipe(tmp_path), lanes=3, alone_s=0) as renderers:
            await renderers.render(loaded(20 * PIECE_ROWS))

    task = asyncio.create_task(run())
    await until(lambda: len(started) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    only_first_here.set()
    assert [worker.returncode for worker in started] == [-signal.SIGKILL] * 2


UNGUARDED = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_processes import loaded, recipe
from draftmill.rendering import processes
from draftmill.rendering.processes import PIECE_ROWS, Renderers

print("main", flush=True)

async def run():
    async with Renderers(recipe(Path({folder!r})), lanes=2, alone_s=0) as renderers:
        for _ in range({times}):
            await renderers.render(loaded(4 * PIECE_ROWS))
            print(*(worker._process.pid for worker in renderers._workers), flush=True)

asyncio.run(run())
"""


def _script(folder: Path, *, times: int) -> list[str]:
    """A program without a guard around its main part, as notebooks and small scripts are."""
    file = folder / "unguarded.py"
    file.write_text(UNGUARDED.format(tests=str(Path(__file__).parent), folder=str(folder), times=times))
    return [sys.executable, str(file)]


def test_the_program_is_not_run_again_in_the_workers(tmp_path: Path) -> None:
    done = subprocess.run(_script(tmp_path, times=1), capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[0] == "main"
    assert done.stdout.count("main") == 1
    assert len(done.stdout.splitlines()[1].split()) == 1, "a worker had been started"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_a_run_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C goes to all of a terminal's processes, of which the workers are none."""
    command, silent = _script(tmp_path, times=10**6), subprocess.DEVNULL
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=silent,
        text=True,
        start_new_session=True,
        # A shell's background job ignores SIGINT and hands that on; a person's terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "main\n"
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) == 1
        assert all(map(_lives, pids))
        os.killpg(run.pid, number)
        run.wait(PATIENCE_S)
    end_s = time.monotonic() + PATIENCE_S
    while any(map(_lives, pids)):
        assert time.monotonic() < end_s, "a worker is left"
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    """Whether it runs; one that has ended and is not reaped yet does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_slice_travels_without_what_is_around_it() -> None:
    table = loaded(1000)
    piece = bytes_of(table.slice(500, 10))
    assert table_of(piece).equals(table.slice(500, 10))
    assert len(piece) < len(bytes_of(table)) / 10


@pytest.mark.parametrize(
    ("limits", "wanted"), [("150000 100000\n", 2), ("50000 100000", 1), ("max 100000", 3), (None, 3)]
)
def test_the_cores_of_a_container_are_its_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: str | None, wanted: int
) -> None:
    if limits is not None:
        (tmp_path / "cpu.max").write_text(limits)
    monkeypatch.setattr(processes, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 6}, raising=False)
    assert cores() == wanted
