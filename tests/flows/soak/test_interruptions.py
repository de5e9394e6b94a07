"""50 random interruptions, SIGKILL of the run or of the S3 server, over refreshes of a growing prompt file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.soak.interruptions import interrupted_nights

TIMES = 50


@pytest.mark.timeout(3600)
async def test_fifty_random_interruptions(
    mill: Any,
    fake_server: Callable[..., Any],
    start_run: Callable[..., Any],
    s3_environment: Callable[[dict[str, str]], None],
    tmp_path: Path,
    told: Callable[..., None],
) -> None:
    figures = await interrupted_nights(mill, fake_server, start_run, s3_environment, tmp_path, times=TIMES, seed=50)
    told(**figures)
    assert figures["run killed"] > TIMES / 4
    assert figures["server killed"] > TIMES / 4
