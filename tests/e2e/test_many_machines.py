"""A fan-out over two machines: two workers that share nothing but Prefect's server, the dataset and the engine."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from draftmill.dataset.manifest import newest
from draftmill.dataset.partition_objects import FOLDER
from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import Latency

ROWS = 64
IN_FLIGHT = 5
"""Of both together; not even: one partition gets 3, the other 2."""

A_ROW_S = 0.4
A_CHUNK = 4

LAST_SECOND_S = 1.3
"""The journal commits every second; a commit on a busy disk takes a moment."""

WAIT_S = 90
"""Seconds for the middle of a run."""

CANARIES = 3
"""The fan-out's gate and that of each partition."""


class Machines:
    """Two workers: `one` has room for the fan-out and a partition, `two` for a partition alone."""

    def __init__(self, stack, mill, fake) -> None:
        self.stack, self.mill, self.fake = stack, mill, fake
        self.states = [mill.folder / "one", mill.folder / "two"]
        self.workers: list[Any] = []

    async def begin(self) -> str:
        """A fan-out whose partitions both wait for a server that is ready: neither is done before the other begins."""
        self.mill.prompts([f"prompt {n}" for n in range(ROWS)])
        self.mill.url = self.fake.url
        await self._join(0, limit=2)
        recipe = self.mill.data(engine__in_flight=IN_FLIGHT, engine__wait_s=WAIT_S, chunk_rows=A_CHUNK)
        run: str = self.stack.start("fan-out/fan-out", recipe=recipe, partitions=2)
        await asyncio.to_thread(self.stack.wait, run, lambda found: found["state"]["type"] == "RUNNING")
        await self._join(1, limit=1)
        await self.until(lambda: bool(self.fake.log))
        self.fake.loaded = lambda: False
        await asyncio.to_thread(self._both_look, run)
        self.fake.loaded = lambda: True
        return run

    def _both_look(self, run: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while sum(self._looks_at_the_server(child["id"]) for child in self.children(run)) < 2:
            assert time.monotonic() < deadline, "no two partitions"
            time.sleep(0.5)

    def _looks_at_the_server(self, run: str) -> bool:
        lines = self.stack.server.ask("POST", "/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}})
        return any("looking at the server" in line["message"] for line in lines)

    async def _join(self, number: int, *, limit: int) -> None:
        name, environment = f"{self.mill.folder.name}-{number}", {"DRAFTMILL_STATE": str(self.states[number])}
        self.workers.append(await asyncio.to_thread(self.stack.worker, name, limit=limit, environment=environment))

    async def said(self, number: int, words: str) -> None:
        """A worker has these words in its log: it may tell of a dead run later than others do, and end its retry."""
        log = self.stack.folder / f"{self.workers[number].name}.log"
        await self.until(lambda: words in log.read_text())

    async def __aenter__(self) -> Machines:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Also of a test that failed: its workers would take the runs of the next."""
        for worker in self.workers:
            await asyncio.to_thread(worker.stop)

    def children(self, run: str) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.stack.server.ask(
            "POST", "/flow_runs/filter", {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}}
        )
        return sorted(runs, key=lambda found: (found["created"], found["name"]))

    def requests(self) -> dict[tuple[int, ...], list[Any]]:
        """Each row's requests; the canary's prompt is none of them."""
        entries: dict[tuple[int, ...], list[Any]] = {}
        for entry in self.fake.log:
            entries.setdefault(tuple(entry.input_ids or ()), []).append(entry)
        if self.fake.log:
            del entries[tuple(self.fake.log[0].input_ids or ())]
        return entries

    async def in_the_middle(self) -> None:
        """Both partitions ask, some rows are answered and some are not."""
        await self.until(lambda: self.canaries() >= CANARIES and self.answered() >= IN_FLIGHT and self.in_flight() > 0)

    async def until(self, moment: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not moment():
            assert time.monotonic() < deadline, f"{len(self.fake.log)} requests and no more"
            await asyncio.sleep(0.05)

    def canaries(self) -> int:
        return sum(entry.input_ids == self.fake.log[0].input_ids for entry in self.fake.log)

    def answered(self) -> int:
        return sum(bool(found[0].status) for found in self.requests().values())

    def in_flight(self) -> int:
        return sum(entry.ended_at is None for found in self.requests().values() for entry in found)

    def again(self) -> list[Any]:
        """The requests whose rows were asked again after them."""
        return [entry for found in self.requests().values() for entry in found[:-1]]

    def of(self, number: int, run: str) -> tuple[dict[str, Any], int]:
        """The partition that runs on machine `number`, and its process."""
        for child in self.children(run):
            pid = int(child["infrastructure_pid"].rpartition(":")[2])
            if self.states[number] == Path(_environment(pid)["DRAFTMILL_STATE"]):
                return child, pid
        raise AssertionError("no partition is there")

    def most_in_flight(self) -> int:
        entries = [entry for found in self.requests().values() for entry in found]
        moments = [(entry.started_at, 1) for entry in entries] + [(entry.ended_at, -1) for entry in entries]
        most = now = 0
        for _, change in sorted(moments):
            now += change
            most = max(most, now)
        return most

    def sealed_once(self) -> None:
        """One manifest with every row once, and nothing that is not as it says."""
        manifest = newest(open_storage(self.mill.dataset))
        assert manifest is not None
        assert manifest.version == 1
        keys = [row["row_key"] for row in self.mill.rows()]
        assert (len(keys), len(set(keys))) == (ROWS, ROWS)
        assert verify(open_storage(self.mill.dataset)).ok


async def test_two_machines_ask_each_row_once_and_one_manifest_is_sealed(stack, mill, fake_server) -> None:
    async with (
        fake_server(slots=IN_FLIGHT, latency=Latency(first_s=A_ROW_S)) as fake,
        Machines(stack, mill, fake) as machines,
    ):
        run = await machines.begin()
        found = await asyncio.to_thread(stack.wait, run)
        assert found["state"]["name"] == "Completed"
        children = machines.children(run)
        assert [child["name"] for child in children] == [f"partition {n}/2 of dataset" for n in (1, 2)]
        assert {child["state"]["name"] for child in children} == {"Completed"}
        assert [len(entries) for entries in machines.requests().values()] == [1] * ROWS
        assert len(fake.log) == ROWS + CANARIES
        assert machines.most_in_flight() <= IN_FLIGHT
    for state in machines.states:
        assert list(state.glob("*/partition-*.lock")), "a machine had no partition"
        assert not list(state.glob("*/partition-*.sqlite"))
    machines.sealed_once()
    rows = mill.manifest.counts["rows"]
    assert (rows["generated"], rows["resumed"], mill.manifest.counts["requests"]) == (ROWS, 0, ROWS)
    assert not open_storage(mill.dataset).list(FOLDER)


async def test_what_a_dead_machine_had_not_finished_is_asked_by_the_other(stack, mill, fake_server) -> None:
    async with (
        fake_server(slots=IN_FLIGHT, latency=Latency(first_s=4 * A_ROW_S)) as fake,
        Machines(stack, mill, fake) as machines,
    ):
        run = await machines.begin()
        await machines.in_the_middle()
        child, pid = machines.of(1, run)
        machines.workers[1].kill()
        os.kill(pid, signal.SIGKILL)
        state = {"type": "CRASHED", "name": "Crashed", "message": "as the automation does it"}
        stack.server.ask("POST", f"/flow_runs/{child['id']}/set_state", {"state": state, "force": True})
        found = await asyncio.to_thread(stack.wait, run)
        again = machines.again()
        assert found["state"]["name"] == "Completed"
        assert len(machines.requests()) == ROWS
    assert [each["name"] for each in machines.children(run)][2:] == ["partition 1/1 of dataset"]
    # A machine that is gone takes along what it had not brought into the dataset: the rows of its open chunks.
    assert 0 < len(again) <= IN_FLIGHT + 2 * A_CHUNK
    machines.sealed_once()
    assert mill.manifest.counts["rows"]["generated"] == ROWS


async def test_of_a_killed_process_only_the_last_second_is_asked_again(stack, mill, fake_server) -> None:
    async with (
        fake_server(slots=IN_FLIGHT, latency=Latency(first_s=4 * A_ROW_S)) as fake,
        Machines(stack, mill, fake) as machines,
    ):
        run = await machines.begin()
        await machines.in_the_middle()
        _, pid = machines.of(0, run)
        os.kill(pid, signal.SIGKILL)
        killed_at = time.time()
        found = await asyncio.to_thread(stack.wait, run)
        assert found["state"]["name"] == "Completed"
        again = machines.again()
    assert again, "nothing was in flight"
    assert not [entry for entry in again if entry.ended_at < killed_at - LAST_SECOND_S]
    machines.sealed_once()


async def test_a_cancelled_fan_out_cancels_its_partitions_and_a_retry_asks_the_rest(stack, mill, fake_server) -> None:
    async with (
        fake_server(slots=IN_FLIGHT, latency=Latency(first_s=A_ROW_S)) as fake,
        Machines(stack, mill, fake) as machines,
    ):
        run = await machines.begin()
        await machines.in_the_middle()
        stack.cancel(run)
        cancelled_at = time.time()
        found = await asyncio.to_thread(stack.wait, run)
        assert found["state"]["type"] == "CANCELLED"
        for child in machines.children(run):
            ended = await asyncio.to_thread(stack.wait, child["id"])
            assert ended["state"]["type"] == "CANCELLED"
        assert machines.in_flight() == 0
        assert mill.manifest is None
        stack.retry(run)
        found = await asyncio.to_thread(stack.wait, run, lambda found: found["state"]["type"] == "COMPLETED")
        again = machines.again()
    assert not [entry for entry in again if entry.ended_at < cancelled_at]
    assert len(again) <= IN_FLIGHT
    machines.sealed_once()


async def test_partitions_of_a_killed_fan_out_are_ended_by_its_retry(stack, mill, fake_server) -> None:
    async with (
        fake_server(slots=IN_FLIGHT, latency=Latency(first_s=4 * A_ROW_S)) as fake,
        Machines(stack, mill, fake) as machines,
    ):
        run = await machines.begin()
        await machines.in_the_middle()
        os.kill(int(stack.run(run)["infrastructure_pid"].rpartition(":")[2]), signal.SIGKILL)
        killed_at = time.time()
        # The worker says Crashed twice; a retry in between would be hit by the second.
        await machines.said(0, "prefect.flow_runs.worker - Check whether the flow run")
        await asyncio.sleep(1)
        stack.retry(run)
        found = await asyncio.to_thread(stack.wait, run, lambda found: found["state"]["type"] == "COMPLETED")
        assert found["run_count"] == 2
        # One that came to its end before the retry looked is not ended.
        assert {child["state"]["name"] for child in machines.children(run)[:2]} <= {"Cancelled", "Completed"}
        again = machines.again()
    # They went on until the retry ended them: what they had in flight then is asked again, and nothing else.
    assert not [entry for entry in again if entry.ended_at < killed_at]
    assert len(again) <= IN_FLIGHT
    machines.sealed_once()


def _environment(pid: int) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return {name: value for name, _, value in pairs}
