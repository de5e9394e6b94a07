"""Processes that seal at the same moment: each round all of them create the same version, and only then go on.

They meet twice a round: before they look for the newest manifest, and in front of their first create of the next
one. So every round is a race, on any machine.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from typing import Any

from draftmill.arrays import ids_array
from draftmill.dataset.manifest import newest, read_manifest, versions
from draftmill.dataset.origin import row_versions
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import Outcome, Storage, open_storage
from draftmill.dataset.stored import stored_keys
from draftmill.dataset.verify import verify
from draftmill.records import Answer, Completion, Reason, Row, Verdict

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
OK, BAD = Verdict(None, "", None, None, 2), Verdict(Reason.DEGENERATE, "a loop", None, None, 2)

ROUNDS = 5
"""Races on one dataset: the first from nothing, the others on top of what there is."""

TOGETHER_S = 120.0
"""Seconds until a racer that waits for the others gives up: they have crashed."""


@dataclass(frozen=True)
class Result:
    """What one racer has of one round."""

    url: str
    round: int
    racer: int
    version: int
    seal_id: str
    lost: int


class AtOnce(Storage):
    """Its first create of a manifest in a round waits for the other racers'."""

    def __init__(self, url: str, barrier: Barrier) -> None:
        super().__init__(url)
        self.barrier, self.armed, self.lost = barrier, False, 0

    def start(self) -> None:
        self.barrier.wait(TOGETHER_S)
        self.armed, self.lost = True, 0

    def create(self, path: str, data: bytes) -> Outcome:
        is_manifest = path.startswith("manifests/")
        if is_manifest and self.armed:
            self.armed = False
            self.barrier.wait(TOGETHER_S)
        outcome = super().create(path, data)
        self.lost += is_manifest and outcome is Outcome.EXISTS
        return outcome


def key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def own(racer: int, number: int) -> tuple[str, str]:
    """The names of the rows that only this racer brings: a good one, a bad one."""
    return f"good {racer} {number}", f"bad {racer} {number}"


def shared(number: int) -> str:
    """The name of the row that all racers bring, each with an answer of its own."""
    return f"shared {number}"


def completed(name: str, output: int) -> Completion:
    row = Row(
        key(name), 0, key(f"prompt {name}"), name, "default", 0, ids_array("p", [1, 3]), 64, None, "prompts.jsonl"
    )
    return Completion(row, Answer(ids_array("o", [output, 2]), None, 2, 2, "stop", None, 2, "e", None, WHEN))


def change(storage: Storage, racer: int, number: int) -> Change:
    """A racer's rows of a round. Every third shared row is good for one and bad for the other."""
    good, bad = own(racer, number)
    made = [completed(good, 10), completed(bad, 11), completed(shared(number), 20 + racer)]
    verdicts = [OK, BAD, BAD if number % 3 == 0 and racer == 0 else OK]
    tables = zip(("shards", "quarantine"), dataset_rows(made, verdicts), strict=True)
    shards, quarantine = ([storage.put_table(folder, table)] for folder, table in tables)
    return Change(good=shards, bad=quarantine)


def racer(number: int, urls: Sequence[str], rounds: int, barrier: Barrier, results: Any) -> None:
    """One process: all rounds on all datasets."""
    try:
        for url in urls:
            storage = AtOnce(url, barrier)
            for round_ in range(rounds):
                brought = change(storage, number, round_)
                storage.start()
                manifest = seal(storage, brought).manifest
                results.put(Result(url, round_, number, manifest.version, manifest.seal_id, storage.lost))
    except BaseException:
        barrier.abort()
        raise


def race(urls: Sequence[str], *, rounds: int, racers: int = 2) -> list[Result]:
    """All that the racers have of all rounds on all datasets. Raises when one of them crashed."""
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(racers), spawn.SimpleQueue()
    processes = [spawn.Process(target=racer, args=(n, urls, rounds, barrier, results)) for n in range(racers)]
    for process in processes:
        process.start()
    found: list[Result] = []
    waiting = len(urls) * rounds * racers
    while waiting > len(found) and (any(process.is_alive() for process in processes) or not results.empty()):
        if results.empty():
            processes[0].join(0.05)
        else:
            found.append(results.get())
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * racers
    return found


def check(results: Sequence[Result]) -> None:
    """What is promised of every race, and of the dataset at the end."""
    of_round: dict[tuple[str, int], list[Result]] = defaultdict(list)
    for result in results:
        of_round[result.url, result.round].append(result)
    for (_, number), both in of_round.items():
        assert sorted(result.version for result in both) == [2 * number + 1, 2 * number + 2]
        # The winner lost nothing; the loser lost once, and sealed on top.
        assert [result.lost for result in sorted(both, key=lambda result: result.version)] == [0, 1]
    for url in {url for url, _ in of_round}:
        check_dataset(url, [result for result in results if result.url == url])


def check_dataset(url: str, results: Sequence[Result]) -> None:
    storage = open_storage(url)
    assert versions(storage) == list(range(1, 2 * ROUNDS + 1))
    sealed = {result.version: result for result in results}
    for version, result in sealed.items():
        manifest = read_manifest(storage, version)
        assert manifest.seal_id == result.seal_id
        if manifest.parent is not None:
            assert manifest.parent.sha256 == read_manifest(storage, version - 1).sha256
    manifest = newest(storage)
    assert manifest is not None
    rows = stored_keys(storage, manifest).to_pylist()
    brought = [int(version) for ref in (*manifest.shards, *manifest.quarantine) for version in row_versions(ref)]
    origins = {row["row_key"]: version for row, version in zip(rows, brought, strict=True)}
    names = {name: result.version for result in results for name in own(result.racer, result.round)}
    # Of the row that both bring, the winner's stands.
    names |= {shared(number): 2 * number + 1 for number in range(ROUNDS)}
    assert origins == {key(name): version for name, version in names.items()}
    assert len(rows) == len(names)
    assert verify(storage).faults == []


def run_races(place: str, datasets: int) -> None:
    """So many datasets with ROUNDS races each, below `place`."""
    urls = [f"{place}/dataset-{number}" for number in range(datasets)]
    results = race(urls, rounds=ROUNDS)
    assert len(results) == 2 * ROUNDS * datasets
    check(results)
