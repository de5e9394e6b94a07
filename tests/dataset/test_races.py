"""Two runs that seal at the same moment: one has the version, the other seals on top of it, and nothing is lost.

Real processes, in a folder and on a real S3 server; `make soak` has 300 of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS
from tests.dataset.racing import ROUNDS, check_dataset, race, run_races


def test_fifty_races_in_a_folder(tmp_path: Path) -> None:
    run_races(str(tmp_path), 10)


def test_fifteen_races_on_s3(bucket: str) -> None:
    run_races(bucket, 3)


def test_races_in_which_every_second_answer_to_a_commit_gets_lost(
    bucket: str, seaweed: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has made the version; the client hears of it only that it exists."""
    with S3Proxy(seaweed) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        lost = proxy.add(Trouble.LOST_ANSWER, method="PUT", path="/manifests/", every=2)
        results = race([f"{bucket}/dataset"], rounds=ROUNDS)
        assert lost.seen >= 2 * ROUNDS
        check_dataset(f"{bucket}/dataset", results)
