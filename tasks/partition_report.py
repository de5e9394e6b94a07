"""How a partition tells its parent that it lives: a report in the dataset, every BEAT_S and at its end.

The report is a lease as well. Where none got through for LEASE_S the parent may
take the partition for dead and deal its rows to another one: so it asks no more,
and no row is asked twice for long. The last report is put when no other is on its way,
so that what stands there at the end is the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from draftmill.dataset.partition_objects import put_report
from draftmill.generation.partitions import BEAT_S, LEASE_S, Report, error_json, unseen
from draftmill.workspace import in_thread, workspace
from tasks.chunks import ChunkOutcome, RunOutcome

LOOK_S = 1.0
"""Seconds between looks at the lease: short beside its margin."""

log = logging.getLogger("draftmill.partition")


class _Lease:
    """When the parent could last see the partition, in monotonic seconds: not later than the report was sent."""

    def __init__(self) -> None:
        self._seen_s = time.monotonic()

    def seen(self, at_s: float) -> None:
        self._seen_s = at_s

    def is_over(self) -> bool:
        return time.monotonic() - self._seen_s >= LEASE_S


@contextlib.asynccontextmanager
async def reporting(path: str, outcome: RunOutcome) -> AsyncIterator[None]:
    """The report inside the block, and its last at the end. A cancelled partition's last is like a killed one's."""
    lease = _Lease()
    tasks = [asyncio.create_task(_beat(path, outcome, lease)), asyncio.create_task(_end_with(lease, outcome))]
    error: BaseException | None = None
    ended = False
    try:
        yield
        error, ended = first_error(outcome), True
    except Exception as caught:
        error, ended = caught, True
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        last = _report(outcome, int(time.time()))
        last.ended, last.stopped = ended, error_json(error) if error else None
        await in_thread(put_report, workspace().storage, path, last)


def first_error(outcome: RunOutcome) -> BaseException | None:
    """What ended it early."""
    return outcome.stopped or next((chunk.error for chunk in outcome.chunks if chunk.error), None)


async def _beat(path: str, outcome: RunOutcome, lease: _Lease) -> None:
    while True:
        sent_s = time.monotonic()
        report = _report(outcome, int(time.time()))
        put = asyncio.create_task(in_thread(put_report, workspace().storage, path, report))
        try:
            await asyncio.shield(put)
            lease.seen(sent_s)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: it would put this report over the last one.
            await asyncio.wait([put])
            put.cancelled() or put.exception()
            raise
        except Exception as error:
            # Silence is the parent's to judge; the rows go on as long as the lease does.
            log.warning("the report could not be written: %s", error)
        await asyncio.sleep(BEAT_S)


async def _end_with(lease: _Lease, outcome: RunOutcome) -> None:
    """Asks no more once the lease is over; one that ends before the pool opens is over, too."""
    over = False
    while not over or outcome.stop is None:
        await asyncio.sleep(LOOK_S)
        over = over or lease.is_over()
    log.error("%s", unseen())
    outcome.stop(unseen())


def _report(outcome: RunOutcome, beat: int) -> Report:
    counts = outcome.counts
    return Report(
        beat=beat,
        requests=counts.requests,
        retries=counts.retries,
        done=counts.done,
        tokens=counts.tokens,
        chunks={chunk.chunk["rows"]["sha256"]: _receipts(chunk) for chunk in outcome.chunks if chunk.over},
        failed=dict(outcome.failed),
    )


def _receipts(chunk: ChunkOutcome) -> dict[str, Any]:
    return {name: getattr(chunk, name) for name in ("opened", "cached", "generated", "validated", "uploaded")}
