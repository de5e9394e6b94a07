"""The commit on a real S3 server whose answers get lost: what the manifest says outranks what the client heard."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from draftmill.dataset.manifest import newest, versions
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.verify import verify
from draftmill.errors import DatasetError
from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS

Rows = Callable[..., pa.Table]


@pytest.fixture
def proxy(seaweed: SeaweedFS, s3_environment: Callable[[dict[str, str]], None]) -> Iterator[S3Proxy]:
    with S3Proxy(seaweed) as between:
        s3_environment(between.environment)
        yield between


@pytest.fixture
def storage(bucket: str, proxy: S3Proxy) -> Storage:
    return open_storage(f"{bucket}/dataset")


def puts(proxy: S3Proxy) -> list[tuple[Trouble | None, int | None]]:
    """What became of the puts of manifests."""
    return [(call.trouble, call.status) for call in proxy.log if call.method == "PUT" and "/manifests/" in call.path]


@pytest.mark.parametrize("trouble", [Trouble.LOST_ANSWER, Trouble.DROPPED, Trouble.ERROR_500, Trouble.SLOW_DOWN])
def test_a_commit_in_trouble_is_ours(storage: Storage, proxy: S3Proxy, stored_rows: Rows, trouble: Trouble) -> None:
    rows = storage.put_table("shards", stored_rows({"key": "a"}))
    proxy.add(trouble, method="PUT", path="/manifests/", times=1)
    sealed = seal(storage, Change(good=[rows]))
    assert (sealed.sealed, versions(storage)) == (True, [1])
    assert newest(storage) == sealed.manifest
    assert puts(proxy)[0][0] is trouble
    if trouble is Trouble.LOST_ANSWER:  # the second put met the first, and was ours all the same
        assert puts(proxy)[1] == (None, 412)


def test_a_stale_listing_builds_on_what_is_there(storage: Storage, proxy: S3Proxy, stored_rows: Rows) -> None:
    proxy.add(Trouble.STALE_LISTING, path="")
    for name in ("a", "b", "c"):
        seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": name}))]))
    assert storage.list("manifests") == []
    assert versions(storage) == [1, 2, 3]
    assert (verify(storage).rows, verify(storage).faults) == (3, [])


def test_without_the_right_to_commit_the_dataset_is_as_it_was(
    storage: Storage, proxy: S3Proxy, stored_rows: Rows
) -> None:
    first = seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}))]))
    rows = storage.put_table("shards", stored_rows({"key": "b"}))
    proxy.add(Trouble.DENIED, method="PUT", path="/manifests/")
    with pytest.raises(DatasetError, match="00000002"):
        seal(storage, Change(good=[rows]))
    assert newest(storage) == first.manifest
    proxy.clear()
    assert seal(storage, Change(good=[rows])).manifest.version == 2
