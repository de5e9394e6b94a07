"""The end of a run that does not end by itself: Prefect's client may wait for minutes for a server that is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from prefect.settings import PREFECT_API_URL

STUBBORN = """
import asyncio
from prefect import flow
from flows import launch

@flow
async def stubborn():
    print("running", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", flush=True)

launch.GIVE_UP_S = {give_up_s}
launch.FLOWS["stubborn"] = stubborn
launch.launch("stubborn")
"""


@pytest.mark.parametrize(("give_up_s", "signals"), [(2, 1), (600, 2)])
async def test_a_run_that_will_not_end_is_ended(give_up_s: float, signals: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STUBBORN.format(give_up_s=give_up_s),
        env={**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"running\n"
    for number in range(signals):
        # SIGTERM has a handler of Prefect's beside ours, either of which may be first.
        process.send_signal(signal.SIGINT)
        if number == 0:
            assert await process.stdout.readline() == b"cancelled\n"
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 5
    assert "stopped before all rows were asked" in said.decode()
    assert "finished rows are kept" in said.decode()
