"""A few random interruptions of the run and of its S3 server; `make soak` has fifty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.interruptions import interrupted_nights


@pytest.mark.timeout(600)
async def test_a_few_random_interruptions(
    mill: Any,
    fake_server: Callable[..., Any],
    start_run: Callable[..., Any],
    s3_environment: Callable[[dict[str, str]], None],
    tmp_path: Path,
) -> None:
    told = await interrupted_nights(mill, fake_server, start_run, s3_environment, tmp_path, times=3, seed=4)
    assert told["run killed"] > 0, told
    assert told["server killed"] > 0, told
