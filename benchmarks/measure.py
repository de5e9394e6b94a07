"""One run of one contestant on a fresh fake server, and what is measured of it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.contestants import CONTESTANTS, Match
from benchmarks.process import Course, run_watched
from benchmarks.prompts import write_prompts
from benchmarks.scenario import Scenario
from benchmarks.seen import Seen, read_log, seen
from benchmarks.servers import PrefectServer, fake_server


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Processor milliseconds are per row.

    `busy_ms`: of the contestant's process from the first request to the last
    answer; `total_ms`: of its whole life. `prefect_ms`: of the Prefect server in
    the contestant's life. `fake_share`: of one core that the fake server used
    between first request and last answer: near 1 it is the fake that is measured.
    """

    rows_per_s: float
    of_perfect: float
    busy_ms: float
    total_ms: float
    prefect_ms: float
    fake_share: float
    peak_mib: float
    start_s: float
    seal_s: float


@dataclass(frozen=True, slots=True)
class Arena:
    """What all runs of a scenario share: its prompts, written once, and the Prefect server."""

    scenario: Scenario
    texts: Path
    ids: Path
    prefect: PrefectServer
    folder: Path


def open_arena(scenario: Scenario, prefect: PrefectServer, folder: Path) -> Arena:
    place = folder / scenario.name
    place.mkdir()
    texts, ids = write_prompts(scenario, place)
    return Arena(scenario, texts, ids, prefect, place)


def measure(arena: Arena, contestant: str) -> Measured:
    """Runs it once. Raises Failed or ValueError when it did not ask every row once and end well."""
    arena.prefect.wait_until_idle()
    folder = Path(tempfile.mkdtemp(prefix=f"{contestant}-", dir=arena.folder))
    with fake_server(arena.scenario.fake) as (url, fake_pid):
        match = Match(arena.scenario, folder, arena.texts, arena.ids, url)
        course = run_watched(
            CONTESTANTS[contestant](match),
            env=arena.prefect.env | {"DRAFTMILL_STATE": str(folder / "state")},
            others={"fake": [fake_pid], "prefect": arena.prefect.pids},
            output=folder / "output.txt",
        )
        return measured(arena.scenario, course, seen(read_log(url), _prompt_ids(arena.ids)))


def measured(scenario: Scenario, course: Course, seen: Seen) -> Measured:
    """What a course and the server's view of it say together."""

    def per_row_ms(seconds: float) -> float:
        return 1000 * seconds / seen.rows

    return Measured(
        rows_per_s=seen.rows_per_s,
        of_perfect=seen.of_perfect(scenario.at_once),
        busy_ms=per_row_ms(course.cpu_between("client", seen.first_at, seen.last_at)),
        total_ms=per_row_ms(course.cpu_s),
        prefect_ms=per_row_ms(course.cpu_between("prefect", course.started_at, course.ended_at)),
        fake_share=course.cpu_between("fake", seen.first_at, seen.last_at) / seen.seconds,
        peak_mib=course.peak_bytes / 2**20,
        start_s=seen.first_at - course.started_at,
        seal_s=course.ended_at - seen.last_at,
    )


def _prompt_ids(path: Path) -> Sequence[Sequence[int]]:
    return [ids for ids, _ in orjson.loads(path.read_bytes())]
