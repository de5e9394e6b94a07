"""A store that lets two writers create one object is found out, refused, or used under a lock that one run holds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from draftmill.dataset import create_only
from draftmill.dataset.create_only import LOCK, PROBE, honours_create_only, locked
from draftmill.dataset.objects import Entry, Outcome, StorageFault
from draftmill.dataset.patience import Patience
from draftmill.dataset.storage import Storage, open_storage
from draftmill.errors import DatasetError
from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS

UseS3 = Callable[[dict[str, str]], None]


@pytest.fixture
def proxy(bucket: str, seaweed: SeaweedFS, s3_environment: UseS3) -> Iterator[S3Proxy]:
    with S3Proxy(seaweed) as proxy:
        s3_environment(proxy.environment)
        yield proxy


class Careless:
    """A place in memory that honours no condition; `conditional` off, it looks first."""

    def __init__(self, fault: StorageFault | None = None) -> None:
        self.conditional = True
        self.objects: dict[str, bytes] = {}
        self._fault = fault

    def create(self, path: str, data: bytes) -> Outcome:
        if self._fault is not None:
            raise self._fault
        self.objects[path] = data
        return Outcome.CREATED

    def replace(self, path: str, data: bytes) -> None:
        self.objects[path] = data

    def read(self, path: str) -> bytes:
        try:
            return self.objects[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def remove(self, path: str) -> None:
        self.objects.pop(path, None)

    def check(self) -> None: ...
    def entry(self, path: str) -> Entry:
        return Entry(path, len(self.read(path)), datetime.now(UTC))

    def entries(self, folder: str) -> list[Entry]:
        return []

    def open(self, path: str) -> None:  # type: ignore[override]
        raise NotImplementedError


def refused(*, unsupported: bool) -> StorageFault:
    return StorageFault("no", value="501", expected="yes", remedy="another", unsupported=unsupported)


class Pauses:
    """A pause that takes no time; `then` happens in the first."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.seconds: list[float] = []
        self._then = then

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == 1:
            self._then()


def lock_of(who: str) -> bytes:
    return json.dumps({"id": "x", "who": who, "since": "2026-01-02T03:04:05+00:00"}).encode()


def test_a_store_that_honours_it_is_asked_once_more_only(bucket: str, proxy: S3Proxy) -> None:
    for requests in (2, 1):
        before = len(proxy.log)
        open_storage(f"{bucket}/data").check_writing()
        assert len(proxy.log) == before + requests
    assert open_storage(bucket).list("") == []
    assert open_storage(bucket).exists(f"data/{PROBE}")


def test_a_store_that_does_not_is_refused(bucket: str, proxy: S3Proxy) -> None:
    proxy.add(Trouble.NOT_CREATE_ONLY)
    with pytest.raises(DatasetError) as caught:
        open_storage(bucket).check_writing()
    assert "two writers" in caught.value.what
    assert "commit: lock" in caught.value.remedy


def test_an_answer_lost_on_the_way_does_not_deceive_the_probe(bucket: str, proxy: S3Proxy) -> None:
    proxy.add(Trouble.LOST_ANSWER, method="PUT", times=1)
    open_storage(bucket).check_writing()


def test_one_that_knows_no_conditions_does_not_honour_them() -> None:
    assert not honours_create_only(Careless())
    assert not honours_create_only(Careless(refused(unsupported=True)))
    with pytest.raises(StorageFault):
        honours_create_only(Careless(refused(unsupported=False)))


def test_where_the_store_decides_there_is_no_lock(bucket: str, proxy: S3Proxy) -> None:
    storage = open_storage(bucket)
    storage.check_writing("lock")
    before = len(proxy.log)
    with storage.exclusive():
        assert len(proxy.log) == before


def test_else_one_writer_at_a_time_creates(bucket: str, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_only, "SETTLE_S", 0.5)
    monkeypatch.setattr(create_only, "POLL_S", 0.05)
    proxy.add(Trouble.NOT_CREATE_ONLY)
    together = threading.Barrier(3)

    def writer(name: bytes) -> list[Outcome]:
        storage = open_storage(bucket)
        storage.check_writing("lock")
        together.wait(60)
        outcomes = []
        for number in range(2):
            with storage.exclusive():
                outcomes.append(storage.create(f"manifests/{number}", name))
        return outcomes

    names = [b"one", b"two", b"three"]
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(writer, names))
    storage = open_storage(bucket)
    for number in range(2):
        won = [name for name, each in zip(names, outcomes, strict=True) if each[number] is Outcome.CREATED]
        assert won == [storage.read(f"manifests/{number}")]
    assert not storage.exists(LOCK)


def test_a_lock_is_held_by_who_reads_his_own_id_back() -> None:
    place, pauses = Careless(), Pauses()
    with locked(place, Patience(sleep=pauses), "s3://b"):  # type: ignore[arg-type]
        assert json.loads(place.read(LOCK))["who"].count("@") == 1
    assert LOCK not in place.objects
    assert pauses.seconds == [create_only.SETTLE_S]


def test_who_was_overwritten_waits_for_the_other() -> None:
    place = Careless()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:  # the other put his lock just after ours
            place.replace(LOCK, lock_of("other@there"))
        elif len(pauses) == 4:
            place.remove(LOCK)

    with locked(place, Patience(sleep=pause), "s3://b"):  # type: ignore[arg-type]
        assert len(pauses) > 4
    assert LOCK not in place.objects


def test_a_lock_that_is_kept_is_named_and_stays() -> None:
    place, pauses = Careless(), Pauses()
    place.replace(LOCK, lock_of("night@machine-7"))
    with pytest.raises(DatasetError) as caught, locked(place, Patience(sleep=pauses), "s3://b/x"):  # type: ignore[arg-type]
        pass
    assert "night@machine-7 since 2026-01-02T03:04:05+00:00" in str(caught.value.value)
    assert f"remove s3://b/x/{LOCK}" in caught.value.remedy
    assert sum(pauses.seconds) >= create_only.LOCK_PATIENCE_S
    assert place.read(LOCK) == lock_of("night@machine-7")


def test_what_another_put_into_the_lock_is_somebodys() -> None:
    place = Careless()
    place.replace(LOCK, b"\xff no json")
    with pytest.raises(DatasetError), locked(place, Patience(sleep=Pauses()), "s3://b"):  # type: ignore[arg-type]
        pass


def test_another_lock_is_never_removed() -> None:
    place = Careless()
    with locked(place, Patience(sleep=Pauses()), "s3://b"):  # type: ignore[arg-type]
        place.replace(LOCK, lock_of("other@there"))
    assert place.read(LOCK) == lock_of("other@there")


def test_what_fails_under_the_lock_gives_it_back() -> None:
    place = Careless()
    with pytest.raises(ZeroDivisionError), locked(place, Patience(sleep=Pauses()), "s3://b"):  # type: ignore[arg-type]
        raise ZeroDivisionError
    assert LOCK not in place.objects


def test_a_lock_that_cannot_be_given_back_undoes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    place = Careless()

    def remove(path: str) -> None:
        raise refused(unsupported=False)

    place.remove = remove  # type: ignore[method-assign]
    with locked(place, Patience(sleep=Pauses()), "s3://b"):  # type: ignore[arg-type]
        pass
    assert f"s3://b/{LOCK}" in caplog.text


def test_a_folder_needs_no_lock(storage: Storage) -> None:
    storage.check_writing("lock")
    with storage.exclusive():
        assert storage.list("") == []
