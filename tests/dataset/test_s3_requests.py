"""Requests to S3: sent again while it is away, large objects in one put, of a table only the bytes asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from s3fs.core import S3File

from draftmill.dataset import s3_objects
from draftmill.dataset.patience import Patience
from draftmill.dataset.storage import Outcome, Storage, open_storage
from draftmill.errors import DatasetError
from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS

LARGE = 120 * 2**20
"""Bytes; s3fs makes a multipart upload of what is larger than 100 MB."""

TIMES = 2

OTHERS = (Trouble.ERROR_500, Trouble.DROPPED)


@pytest.fixture
def proxy(bucket: str, seaweed: SeaweedFS, s3_environment: Callable[[dict[str, str]], None]) -> Iterator[S3Proxy]:
    with S3Proxy(seaweed) as proxy:
        s3_environment(proxy.environment)
        yield proxy


@pytest.fixture
def storage(bucket: str, proxy: S3Proxy) -> Storage:
    return Storage(f"{bucket}/data", patience=Patience(sleep=lambda _: None, clock=itertools.count(0, 5).__next__))


def table(num_rows: int) -> pa.Table:
    ids = np.random.default_rng(0).integers(0, 150_000, (num_rows, 1000), np.int32)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(ids.ravel()), 1000)
    return pa.table({"row_key": [f"{n:064}" for n in range(num_rows)], "input_ids": rows})


DOES: dict[str, Callable[[Storage], Any]] = {
    "create": lambda storage: storage.create("new", b"1"),
    "replace": lambda storage: storage.replace("a", b"1"),
    "read": lambda storage: storage.read("a"),
    "size": lambda storage: storage.size("a"),
    "list": lambda storage: storage.list(""),
    "remove": lambda storage: storage.remove("a"),
    "read_table": lambda storage: storage.read_table("t/table"),
    "check": lambda storage: storage.check(),
}


@pytest.mark.parametrize(
    ("does", "trouble"),
    [*((does, Trouble.SLOW_DOWN) for does in DOES), *itertools.product(("create", "read_table"), OTHERS)],
)
def test_what_is_away_for_a_while_is_asked_again(does: str, trouble: Trouble, storage: Storage, proxy: S3Proxy) -> None:
    storage.create("a", b"1")
    storage.replace("t/table", storage.read(storage.put_table("t", table(3)).path))
    proxy.add(trouble, times=TIMES)
    DOES[does](storage)
    assert sum(call.trouble is trouble for call in proxy.log) == TIMES
    assert storage.read_table("t/table").num_rows == 3


@pytest.mark.parametrize("does", DOES)
def test_nothing_below_sends_a_refused_request_again(does: str, storage: Storage, proxy: S3Proxy) -> None:
    storage.create("a", b"1")
    storage.stop_waiting()
    proxy.add(Trouble.SLOW_DOWN)
    before = len(proxy.log)
    with pytest.raises(DatasetError, match="cannot serve requests now"):
        DOES[does](storage)
    assert len(proxy.log) == before + 1


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_table_is_read_again_when_it_breaks_off(skip: int, storage: Storage, proxy: S3Proxy) -> None:
    ref = storage.put_table("t", table(1500))
    proxy.add(Trouble.DROPPED, method="GET", path=ref.path, skip=skip, times=TIMES)
    assert storage.read_table(ref.path, ["row_key"]).num_rows == 1500
    assert sum(call.trouble is Trouble.DROPPED for call in proxy.log) == TIMES


def test_a_put_in_the_way_is_waited_for(storage: Storage, proxy: S3Proxy) -> None:
    proxy.add(Trouble.CONFLICT, method="PUT", times=TIMES)
    assert storage.create("a", b"1") is Outcome.CREATED


def test_a_lost_answer_leaves_the_object_as_it_was_sent(storage: Storage, proxy: S3Proxy) -> None:
    proxy.add(Trouble.LOST_ANSWER, method="PUT", times=1)
    storage.create("a", b"1")
    assert storage.read("a") == b"1"
    proxy.add(Trouble.LOST_ANSWER, method="PUT", times=1)
    ref = storage.put_table("shards", table(3))
    assert storage.read_table(ref.path).num_rows == 3


def test_rights_taken_away_are_not_waited_for(storage: Storage, proxy: S3Proxy) -> None:
    storage.create("a", b"1")
    proxy.add(Trouble.DENIED)
    for does in DOES.values():
        with pytest.raises(DatasetError, match="no right to do so"):
            does(storage)


def test_a_large_object_has_one_winner_and_is_whole(bucket: str, seaweed: SeaweedFS) -> None:
    storage = open_storage(bucket)
    data = bytes(LARGE - 8) + b"the end!"
    assert storage.create("large", data) is Outcome.CREATED
    assert storage.create("large", data[::-1]) is Outcome.EXISTS
    assert storage.size("large") == LARGE
    assert storage.read("large") == data
    assert seaweed._client().list_multipart_uploads(Bucket=bucket.removeprefix("s3://")).get("Uploads", []) == []


def test_what_no_put_takes_is_refused(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_objects, "LARGEST_PUT", 10)
    with pytest.raises(DatasetError, match="too large"):
        storage.create("a", b"12345678901")


def test_of_a_table_only_the_columns_asked_for_are_fetched(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(bucket)
    ref = storage.put_table("shards", table(5000))
    fetched: list[int] = []
    fetch = S3File._fetch_range

    def counted(file: S3File, start: int, end: int) -> bytes:
        fetched.append(end - start)
        return bytes(fetch(file, start, end))

    monkeypatch.setattr(S3File, "_fetch_range", counted)
    keys = storage.read_table(ref.path, ["row_key"])
    assert (keys.num_rows, keys.column_names) == (5000, ["row_key"])
    # The footer comes with the 64 KB at the end.
    assert sum(fetched) < 0.05 * ref.bytes
    assert len(fetched) <= 2 + 5


def test_an_object_that_is_put_again_while_it_is_read_is_read_on(storage: Storage) -> None:
    """The same bytes have another ETag where the bucket's keys are its own. Here others stand for that."""
    size = 3 * 2**20
    storage.create("a", b"1" * size)

    def read(file: Any) -> bytes:
        first: bytes = file.read(2**20)
        storage.replace("a", b"2" * size)
        return first + file.read(2**20)

    assert storage.read_open("a", read) == b"1" * 2**20 + b"2" * 2**20


@pytest.mark.parametrize("does", DOES)
def test_a_condition_that_failed_is_an_answer_to_create_alone(
    does: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        answer = {"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": {"HTTPStatusCode": 412}}
        raise ClientError(answer, "any")

    async def refuses_too(*_: Any, **__: Any) -> Any:
        refuses()

    fs = storage._objects._fs  # type: ignore[attr-defined]
    monkeypatch.setattr(fs, "call_s3", refuses)
    monkeypatch.setattr(fs, "_call_s3", refuses_too)
    if does == "create":
        assert storage.create("a", b"1") is Outcome.EXISTS
    else:
        with pytest.raises(DatasetError, match="412"):
            DOES[does](storage)
