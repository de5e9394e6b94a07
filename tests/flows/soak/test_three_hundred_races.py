"""300 races of two runs that seal at the same moment, in a folder and on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dataset.racing import ROUNDS, run_races

RACES = 300


@pytest.mark.timeout(900)
def test_three_hundred_races_in_a_folder(tmp_path: Path) -> None:
    run_races(str(tmp_path), RACES // ROUNDS)


@pytest.mark.timeout(1800)
def test_three_hundred_races_on_s3(bucket: str) -> None:
    run_races(bucket, RACES // ROUNDS)
