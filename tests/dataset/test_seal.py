"""Which rows stand after a seal, and that a seal is all or nothing."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset.manifest import Manifest, newest, versions
from draftmill.dataset.plan import SUCCESSION
from draftmill.dataset.schema import completions_table
from draftmill.dataset.seal import Change, Sealed, Tally, seal
from draftmill.dataset.storage import ObjectRef, Outcome, Storage
from draftmill.dataset.stored import requests_table, stored_keys
from draftmill.dataset.verify import verify
from draftmill.errors import DatasetError

Rows = Callable[..., pa.Table]


class Dataset:
    """Seals rows given as dicts, and tells what stands: {(key, attempt): "good" or the reason}."""

    def __init__(self, storage: Storage, rows: Rows, key_of: Callable[[str], str]) -> None:
        self.storage, self.rows, self.key_of = storage, rows, key_of

    def good(self, *rows: dict[str, Any]) -> ObjectRef:
        return self.storage.put_table("shards", self.rows(*rows))

    def bad(self, *rows: dict[str, Any], reason: str = "degenerate") -> ObjectRef:
        return self.storage.put_table("quarantine", self.rows(*rows, reason=reason))

    def request(self, key: str, attempt: int = 0) -> tuple[str, int]:
        return self.key_of(key), attempt

    def to(self, successor: str, *names: str) -> dict[tuple[str, int], str]:
        """The succession from these rows to another."""
        return {self.request(name): self.key_of(successor) for name in names}

    def seal(
        self,
        *good: dict[str, Any],
        dropped: Collection[tuple[str, int]] = (),
        succession: Mapping[tuple[str, int], str] = MappingProxyType({}),
        **change: Any,
    ) -> Sealed:
        shards = [self.good(*good)] if good else []
        left = [[*request, successor] for request, successor in succession.items()]
        successors = pa.Table.from_pylist([dict(zip(SUCCESSION.names, row, strict=True)) for row in left], SUCCESSION)
        return seal(self.storage, Change(good=shards, dropped=requests_table(dropped), succession=successors, **change))

    def standing(self) -> dict[tuple[str, int], str]:
        names = {self.key_of(name): name for name in ("a", "b", "c", "d", "new", "old")}
        rows = stored_keys(self.storage, newest(self.storage)).to_pylist()
        found = {(names[row["row_key"]], row["attempt"]): row["reason"] or "good" for row in rows}
        assert len(found) == len(rows)
        assert verify(self.storage).faults == []
        return found


@pytest.fixture
def dataset(storage: Storage, stored_rows: Rows, key_of: Callable[[str], str]) -> Dataset:
    return Dataset(storage, stored_rows, key_of)


def test_a_first_seal(dataset: Dataset) -> None:
    sealed = dataset.seal({"key": "a"}, {"key": "b"}, bad=[dataset.bad({"key": "c"})], recipe={"x": 1})
    assert sealed.sealed
    manifest = sealed.manifest
    assert (manifest.version, manifest.parent, manifest.recipe) == (1, None, {"x": 1})
    assert manifest.counts == {
        "good_rows": 2,
        "quarantined_rows": 1,
        "held_rows": 1,
        "attempts": {"0": 2},
        "quarantined": {"degenerate": 1},
    }
    assert newest(dataset.storage) == manifest
    assert dataset.standing() == {("a", 0): "good", ("b", 0): "good", ("c", 0): "degenerate"}


def test_the_next_is_chained_and_leaves_old_shards_as_they_are(dataset: Dataset) -> None:
    first = dataset.seal({"key": "a"}).manifest
    second = dataset.seal({"key": "b"}).manifest
    assert second.parent is not None
    assert (second.parent.version, second.parent.sha256) == (1, first.sha256)
    assert second.shards[0] == first.shards[0]
    assert second.counts["good_rows"] == 2


def test_the_same_change_twice_is_one_manifest(dataset: Dataset) -> None:
    first = dataset.seal({"key": "a"}, {"key": "b"})
    again = dataset.seal({"key": "a"}, {"key": "b"})
    inside = dataset.seal({"key": "b"})
    assert (again.sealed, inside.sealed) == (False, False)
    assert again.manifest == inside.manifest == first.manifest
    assert (again.tally.yielded, again.tally.good_rows) == ({(None, True): 2}, 2)
    assert versions(dataset.storage) == [1]


def test_a_good_successor_supersedes_the_slots_old_rows(dataset: Dataset) -> None:
    dataset.seal({"key": "old", "slot": "s"}, {"key": "b"}, bad=[dataset.bad({"key": "d", "slot": "s"})])
    sealed = dataset.seal({"key": "new", "slot": "s"}, succession=dataset.to("new", "old", "d"))
    assert dataset.standing() == {("b", 0): "good", ("new", 0): "good"}
    assert sealed.tally.superseded == 2
    assert sealed.manifest.quarantine == []


def test_a_bad_successor_never_removes_a_good_row(dataset: Dataset) -> None:
    dataset.seal({"key": "old", "slot": "s"}, {"key": "b"}, bad=[dataset.bad({"key": "d", "slot": "s"})])
    successors = dataset.to("new", "old", "d")
    sealed = dataset.seal(bad=[dataset.bad({"key": "new", "slot": "s"})], succession=successors)
    assert dataset.standing() == {("old", 0): "good", ("b", 0): "good", ("new", 0): "degenerate"}
    assert (sealed.tally.superseded, sealed.tally.good_rows, sealed.tally.held) == (1, 2, 1)
    sealed = dataset.seal({"key": "new", "attempt": 1, "slot": "s"}, succession=successors)
    assert dataset.standing() == {("b", 0): "good", ("new", 1): "good"}
    assert (sealed.tally.superseded, sealed.tally.held) == (1, 0)


def test_a_successor_sealed_already_supersedes_without_new_rows(dataset: Dataset) -> None:
    dataset.seal({"key": "a"}, {"key": "old", "slot": "s"})
    dataset.seal({"key": "new", "slot": "s"})
    assert len(dataset.standing()) == 3
    sealed = dataset.seal(succession=dataset.to("new", "old"))
    assert (sealed.sealed, sealed.tally.superseded) == (True, 1)
    assert dataset.standing() == {("a", 0): "good", ("new", 0): "good"}
    assert not dataset.seal(succession=dataset.to("new", "old")).sealed


def test_a_successor_that_is_not_there_supersedes_nothing(dataset: Dataset) -> None:
    dataset.seal({"key": "old", "slot": "s"})
    assert not dataset.seal(succession=dataset.to("new", "old")).sealed
    dataset.seal({"key": "new", "slot": "s"}, dropped={dataset.request("old")}, succession=dataset.to("d", "new"))
    assert dataset.standing() == {("new", 0): "good"}


def test_without_succession_the_rows_of_a_slot_stand_side_by_side(dataset: Dataset) -> None:
    dataset.seal({"key": "old", "slot": "s"})
    dataset.seal({"key": "new", "slot": "s"})
    assert dataset.standing() == {("old", 0): "good", ("new", 0): "good"}


def test_a_circle_of_successors_removes_nothing(dataset: Dataset) -> None:
    dataset.seal({"key": "a"}, {"key": "b"})
    assert not dataset.seal(succession=dataset.to("a", "b") | dataset.to("b", "a")).sealed


def test_the_row_that_replaces_the_successor_counts_for_it(dataset: Dataset) -> None:
    dataset.seal({"key": "old", "slot": "s"}, {"key": "new", "slot": "s", "finish": "length"})
    bad = dataset.bad({"key": "new", "attempt": 1, "slot": "s"})
    dataset.seal(bad=[bad], succession=dataset.to("new", "old"))
    assert dataset.standing() == {("new", 0): "good", ("new", 1): "degenerate"}


def test_a_raised_budget_replaces_the_cut_row(dataset: Dataset) -> None:
    dataset.seal({"key": "a", "finish": "length"}, {"key": "b"})
    sealed = dataset.seal({"key": "a", "attempt": 1, "budget": 128})
    assert dataset.standing() == {("a", 1): "good", ("b", 0): "good"}
    assert (sealed.tally.replaced, sealed.tally.superseded, sealed.tally.good_rows) == (1, 0, 2)


def test_a_bad_attempt_stands_beside_the_good_one_until_a_newer(dataset: Dataset) -> None:
    dataset.seal({"key": "a", "finish": "length"})
    dataset.seal(bad=[dataset.bad({"key": "a", "attempt": 1})])
    assert dataset.standing() == {("a", 0): "good", ("a", 1): "degenerate"}
    dataset.seal(bad=[dataset.bad({"key": "a", "attempt": 2}, reason="truncated")])
    assert dataset.standing() == {("a", 0): "good", ("a", 2): "truncated"}
    dataset.seal({"key": "a", "attempt": 3})
    assert dataset.standing() == {("a", 3): "good"}


def test_a_held_row_is_replaced_by_its_next_attempt(dataset: Dataset) -> None:
    dataset.seal({"key": "b"}, bad=[dataset.bad({"key": "a"}, {"key": "c"})])
    dataset.seal({"key": "a", "attempt": 1}, bad=[dataset.bad({"key": "c", "attempt": 1}, reason="truncated")])
    assert dataset.standing() == {("b", 0): "good", ("a", 1): "good", ("c", 1): "truncated"}


def test_dropped_rows_leave_and_an_emptied_shard_with_them(dataset: Dataset) -> None:
    dataset.seal({"key": "a"})
    dataset.seal({"key": "b"}, {"key": "c"}, bad=[dataset.bad({"key": "d"})])
    sealed = dataset.seal(dropped={dataset.request("a"), dataset.request("b"), dataset.request("d")})
    assert dataset.standing() == {("c", 0): "good"}
    assert (sealed.sealed, sealed.tally.dropped, len(sealed.manifest.shards)) == (True, 3, 1)


def test_rows_judged_anew_move_without_a_request(dataset: Dataset) -> None:
    dataset.seal({"key": "a"}, {"key": "b"}, bad=[dataset.bad({"key": "c"})])
    change = {
        "bad": [dataset.bad({"key": "b"}, reason="truncated")],
        "dropped": {dataset.request("b"), dataset.request("c")},
    }
    sealed = dataset.seal({"key": "c"}, **change)
    assert dataset.standing() == {("a", 0): "good", ("c", 0): "good", ("b", 0): "truncated"}
    assert (sealed.tally.moved, sealed.tally.dropped, sealed.tally.yielded) == (2, 0, {})
    assert not dataset.seal({"key": "c"}, **change).sealed


def test_a_change_of_nothing_makes_no_manifest(dataset: Dataset) -> None:
    dataset.seal({"key": "a"})
    assert not dataset.seal(rejected=[], dropped={("unknown", 0)}, recipe={"other": 1}).sealed


def test_never_a_manifest_without_rows(dataset: Dataset) -> None:
    with pytest.raises(DatasetError, match="no rows"):
        dataset.seal()
    assert versions(dataset.storage) == []
    dataset.seal({"key": "a"})
    with pytest.raises(DatasetError, match="no rows"):
        dataset.seal(dropped={dataset.request("a")})
    assert versions(dataset.storage) == [1]


def test_counts_are_completed_with_the_final_numbers(dataset: Dataset) -> None:
    def counts(tally: Tally) -> dict[str, int]:
        return {"superseded": tally.superseded, "good_rows": -1}

    dataset.seal({"key": "old", "slot": "s"})
    sealed = dataset.seal({"key": "new", "slot": "s"}, succession=dataset.to("new", "old"), counts=counts)
    assert sealed.manifest.counts == {"superseded": 1, **sealed.tally.to_counts()}
    assert sealed.manifest.counts["good_rows"] == 1


def test_good_rows_are_counted_by_attempt(dataset: Dataset) -> None:
    dataset.seal({"key": "a"}, {"key": "b"}, {"key": "c"}, bad=[dataset.bad({"key": "d"})])
    again = dataset.seal(
        {"key": "b", "attempt": 1}, {"key": "d", "attempt": 2}, bad=[dataset.bad({"key": "c", "attempt": 1})]
    )
    assert again.tally.attempts == again.manifest.counts["attempts"] == {"0": 2, "1": 1, "2": 1}
    assert dataset.seal(dropped={dataset.request("a")}).tally.attempts == {"0": 1, "1": 1, "2": 1}


def test_consumed_parts_add_up_and_removed_ones_are_forgotten(dataset: Dataset, completion: Callable[..., Any]) -> None:
    parts = [
        dataset.storage.put_table("completions", completions_table([completion(name)])).path for name in ("a", "b")
    ]
    assert dataset.seal({"key": "a"}).manifest.consumed == parts[:1]
    assert dataset.seal({"key": "b"}).manifest.consumed == sorted(parts)
    dataset.storage.remove(parts[0])
    assert dataset.seal({"key": "c"}).manifest.consumed == parts[1:]


def test_failed_rows_are_named_up_to_a_bound(dataset: Dataset) -> None:
    sealed = dataset.seal({"key": "a"}, failed=[{"row_key": str(number)} for number in range(300)])
    assert len(sealed.manifest.failed) == 100


@pytest.mark.parametrize("name", ["shards", "quarantine"])
def test_an_object_gone_or_changed_stops_the_seal(dataset: Dataset, tmp_path: Path, name: str) -> None:
    dataset.seal({"key": "a"}, bad=[dataset.bad({"key": "b"})])
    ref = getattr(newest(dataset.storage), name)[0]
    file = tmp_path / "dataset" / ref.path
    whole = file.read_bytes()
    file.unlink()
    with pytest.raises(DatasetError, match=ref.path):
        dataset.seal({"key": "c"})
    # Parquet reads from its end: longer in front, and still readable.
    file.write_bytes(whole[:4] + whole)
    with pytest.raises(DatasetError, match=ref.path):
        dataset.seal({"key": "c"})
    assert versions(dataset.storage) == [1]


class Killed(BaseException):
    """As SIGKILL: nobody catches it."""


def test_a_crash_before_the_commit_leaves_the_old_manifest(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.seal({"key": "a"}, {"key": "b"})
    before = newest(dataset.storage)
    create = Storage.create

    def killed_at_the_manifest(self: Storage, path: str, data: bytes) -> Outcome:
        if path.startswith("manifests/"):
            raise Killed
        return create(self, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "create", killed_at_the_manifest)
        with pytest.raises(Killed):
            dataset.seal({"key": "c"}, dropped={dataset.request("a")})
    assert newest(dataset.storage) == before
    assert dataset.standing() == {("a", 0): "good", ("b", 0): "good"}
    dataset.seal({"key": "c"}, dropped={dataset.request("a")})
    assert dataset.standing() == {("b", 0): "good", ("c", 0): "good"}


def _meanwhile(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let another run seal in the moment before the first commit of ours."""
    create = Storage.create
    left = [other]

    def lost(self: Storage, path: str, data: bytes) -> Outcome:
        if path.startswith("manifests/") and left:
            left.pop()()
        return create(self, path, data)

    monkeypatch.setattr(Storage, "create", lost)


def test_a_lost_race_is_merged_onto_the_winner(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.seal({"key": "old", "slot": "s"})
    _meanwhile(monkeypatch, lambda: dataset.seal({"key": "a", "messages": "winner's"}, {"key": "b"}))
    ours = [{"key": "a", "messages": "ours"}, {"key": "c"}, {"key": "new", "slot": "s"}]
    sealed = dataset.seal(*ours, succession=dataset.to("new", "old"))
    assert (sealed.sealed, sealed.manifest.version) == (True, 3)
    assert (sealed.tally.yielded, sealed.tally.superseded) == ({(None, True): 1}, 1)
    assert dataset.standing() == {("a", 0): "good", ("b", 0): "good", ("c", 0): "good", ("new", 0): "good"}
    texts = [m for ref in sealed.manifest.shards for m in dataset.storage.read_table(ref.path)["messages"].to_pylist()]
    assert sorted(text for text in texts if text) == ["winner's"]


def test_a_race_lost_to_rows_of_the_slot_keeps_the_winners_and_ours(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.seal({"key": "old", "slot": "s"}, {"key": "c"})
    successors = dataset.to("new", "old")
    # The winner brings the good successor; ours of the same request is bad.
    _meanwhile(monkeypatch, lambda: dataset.seal({"key": "new", "slot": "s"}, succession=successors))
    sealed = dataset.seal({"key": "a"}, bad=[dataset.bad({"key": "new", "slot": "s"})], succession=successors)
    assert dataset.standing() == {("a", 0): "good", ("c", 0): "good", ("new", 0): "good"}
    assert (sealed.tally.superseded, sealed.tally.yielded) == (0, {("degenerate", True): 1})


def test_rows_sealed_before_are_counted_by_their_sides(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def winner() -> None:
        dataset.seal({"key": "a"}, {"key": "b"}, bad=[dataset.bad({"key": "c"}, {"key": "d"})])

    _meanwhile(monkeypatch, winner)
    sealed = dataset.seal({"key": "a"}, {"key": "c"}, {"key": "new"}, bad=[dataset.bad({"key": "b"}, {"key": "d"})])
    assert sealed.tally.yielded == {
        (None, True): 1,
        (None, False): 1,
        ("degenerate", True): 1,
        ("degenerate", False): 1,
    }
    assert (sealed.tally.good_rows, sealed.tally.held) == (3, 2)


def fresh(sealed: Sealed) -> tuple[int, int, dict[str, int]]:
    """The manifest whose rows the statistics are of, how many, and their reasons."""
    found = sealed.manifest.statistics
    assert found is not None
    return found.manifest, found.total.rows, found.total.reasons


def test_statistics_are_of_the_rows_that_are_new(dataset: Dataset) -> None:
    first = dataset.seal({"key": "a"}, {"key": "b"}, bad=[dataset.bad({"key": "c"})])
    assert (fresh(first), first.before) == ((1, 3, {"degenerate": 1}), None)
    second = dataset.seal({"key": "d"})
    assert (fresh(second), second.before) == ((2, 1, {}), first.manifest.statistics)


def test_rows_asked_again_or_judged_anew_are_not_new_and_the_numbers_are_carried_on(dataset: Dataset) -> None:
    first = dataset.seal({"key": "a"}, {"key": "b", "finish": "length"}, bad=[dataset.bad({"key": "c"})])
    again = dataset.seal({"key": "b", "attempt": 1})
    judged = dataset.seal({"key": "c"}, dropped={dataset.request("c")})
    assert (again.sealed, judged.sealed) == (True, True)
    assert again.manifest.statistics == judged.manifest.statistics == first.manifest.statistics
    both = dataset.seal({"key": "a", "attempt": 1}, {"key": "d"})
    assert (fresh(both), both.before) == ((4, 1, {}), first.manifest.statistics)


def test_a_lost_race_leaves_the_winners_rows_out_of_our_statistics(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    _meanwhile(monkeypatch, lambda: dataset.seal({"key": "a"}, {"key": "b"}))
    sealed = dataset.seal({"key": "a"}, {"key": "c"})
    assert fresh(sealed) == (2, 1, {})
    assert sealed.before is not None
    assert sealed.before.total.rows == 2


def test_statistics_know_who_opens_the_reasoning_and_the_shares(dataset: Dataset) -> None:
    cut = dataset.rows({"key": "a", "finish": "length"})
    ends_inside = [[{**cut["spans"][0][0].as_py(), "reasoning_end": None}]]
    cut = cut.set_column(cut.schema.get_field_index("spans"), "spans", pa.array(ends_inside, cut["spans"].type))
    recipe = {"variants": [{"name": "default", "share": 0.5}, {"name": "fast", "share": 0.5}]}
    structures = {"default": {"thinking": "opened_by_prompt"}}
    shards = [dataset.storage.put_table("shards", cut)]
    found = seal(dataset.storage, Change(good=shards, structures=structures, recipe=recipe)).manifest.statistics
    assert found is not None
    assert found.total.cut_in_reasoning == 1
    assert {name: numbers.share for name, numbers in found.variants.items()} == {"default": 0.5, "fast": 0.5}


def test_quarantined_rows_are_counted_by_reason(dataset: Dataset) -> None:
    dataset.seal({"key": "a"}, bad=[dataset.bad({"key": "b"}), dataset.bad({"key": "c"}, reason="truncated")])
    sealed = dataset.seal({"key": "b", "attempt": 1})
    assert sealed.tally.reasons == {"truncated": 1}


def test_a_race_lost_to_the_same_rows_seals_nothing_more(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    _meanwhile(monkeypatch, lambda: dataset.seal({"key": "a"}))
    sealed = dataset.seal({"key": "a"})
    assert (sealed.sealed, sealed.manifest.version) == (False, 1)


def test_a_race_lost_every_time_ends(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Storage.create
    inside: list[int] = []
    monkeypatch.setattr("draftmill.dataset.next_version.ROUNDS", 3)

    def always_lost(self: Storage, path: str, data: bytes) -> Outcome:
        if path.startswith("manifests/") and not inside:
            inside.append(1)
            dataset.seal({"key": path})
            inside.pop()
        return create(self, path, data)

    monkeypatch.setattr(Storage, "create", always_lost)
    with pytest.raises(DatasetError, match="faster"):
        dataset.seal({"key": "a"})
    assert versions(dataset.storage) == [1, 2, 3]


@pytest.mark.parametrize("answer", ["an error", "exists"])
def test_a_lost_answer_to_our_own_commit_is_ours(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    create = Storage.create

    def lost_answer(self: Storage, path: str, data: bytes) -> Outcome:
        outcome = create(self, path, data)
        if not path.startswith("manifests/"):
            return outcome
        if answer == "exists":  # as s3fs: its second try meets the first
            return Outcome.EXISTS
        raise DatasetError("cannot write", value="timeout", expected="an answer", remedy="-")

    monkeypatch.setattr(Storage, "create", lost_answer)
    sealed = dataset.seal({"key": "a"})
    assert (sealed.sealed, sealed.manifest.version) == (True, 1)
    assert newest(dataset.storage) == sealed.manifest


def test_a_put_that_did_not_arrive_is_put_again(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Storage.create
    failures = [1]

    def fails_once(self: Storage, path: str, data: bytes) -> Outcome:
        if path.startswith("manifests/") and failures:
            failures.pop()
            raise DatasetError("cannot write", value="timeout", expected="an answer", remedy="-")
        return create(self, path, data)

    monkeypatch.setattr(Storage, "create", fails_once)
    assert dataset.seal({"key": "a"}).manifest.version == 1


def test_a_storage_that_refuses_the_manifest_is_said(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Storage.create

    def refuses(self: Storage, path: str, data: bytes) -> Outcome:
        if path.startswith("manifests/"):
            raise DatasetError("cannot write", value="403", expected="the right", remedy="-")
        return create(self, path, data)

    monkeypatch.setattr(Storage, "create", refuses)
    with pytest.raises(DatasetError, match="403"):
        dataset.seal({"key": "a"})
    assert newest(dataset.storage) is None


class Failing(Storage):
    """Its requests number `number` to `last` fail, before they are carried out or behind that."""

    def __init__(self, url: str, *, number: int, last: int, behind: bool) -> None:
        super().__init__(url)
        self.requests, self.failing, self.behind = itertools.count(1), range(number, last + 1), behind
        self.failed = False

    def _ask(self, *arguments: Any, **named: Any) -> Any:
        if next(self.requests) not in self.failing:
            return super()._ask(*arguments, **named)
        self.failed = True
        if self.behind:
            with contextlib.suppress(FileNotFoundError):
                super()._ask(*arguments, **named)
        raise DatasetError("the storage", value="away", expected="an answer", remedy="-")


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("for_good", [False, True])
def test_whichever_request_fails_the_dataset_is_whole(
    dataset: Dataset, completion: Callable[..., Any], tmp_path: Path, for_good: bool, behind: bool
) -> None:
    dataset.seal({"key": "a"}, {"key": "b"}, bad=[dataset.bad({"key": "d"})])
    dataset.storage.put_table("completions", completions_table([completion("unfinished")]))
    # Rows that come, and one that leaves its object.
    change = Change(
        good=[dataset.good({"key": "c"})],
        bad=[dataset.bad({"key": "new"})],
        dropped=requests_table([dataset.request("b")]),
    )
    old = dataset.standing()
    new = {("a", 0): "good", ("c", 0): "good", ("d", 0): "degenerate", ("new", 0): "degenerate"}
    for number in itertools.count(1):
        copy = tmp_path / f"copy {number}"
        shutil.copytree(dataset.storage.url, copy)
        here = Dataset(Storage(str(copy)), dataset.rows, dataset.key_of)
        failing = Failing(str(copy), number=number, last=10**9 if for_good else number, behind=behind)
        with contextlib.suppress(DatasetError):
            seal(failing, change)
        found = versions(here.storage)
        assert found in ([1], [1, 2])
        assert here.standing() == (old if found == [1] else new)
        assert seal(here.storage, change).sealed == (found == [1])
        assert (versions(here.storage), here.standing()) == ([1, 2], new)
        if not failing.failed:
            break
    assert number > 15  # it has failed at each of that many requests


def test_the_manifest_lists_what_verify_reads(dataset: Dataset) -> None:
    sealed = dataset.seal({"key": "a"}, {"key": "b"}, bad=[dataset.bad({"key": "c"})])
    manifest: Manifest = sealed.manifest
    assert {ref.path for ref in manifest.objects} == set(
        dataset.storage.list("shards") + dataset.storage.list("quarantine")
    )


def test_a_row_judged_anew_that_was_asked_again_meanwhile(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.seal({"key": "a"}, {"key": "b"})
    _meanwhile(monkeypatch, lambda: dataset.seal({"key": "a", "attempt": 1}))
    judged = dataset.bad({"key": "a"}, reason="truncated")
    sealed = dataset.seal({"key": "c"}, bad=[judged], dropped={dataset.request("a")})
    assert dataset.standing() == {("a", 1): "good", ("b", 0): "good", ("c", 0): "good"}
    assert (sealed.tally.moved, sealed.tally.dropped, sealed.tally.yielded) == (0, 0, {("truncated", True): 1})


@pytest.mark.parametrize("judged_good", [True, False])
@pytest.mark.parametrize("others", ["drops it", "supersedes it"])
def test_a_row_judged_anew_that_another_run_removed_meanwhile_stays_away(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, judged_good: bool, others: str
) -> None:
    dataset.seal({"key": "b"}, **({"bad": [dataset.bad({"key": "a"})]} if judged_good else {}))
    if not judged_good:
        dataset.seal({"key": "a"})
    leaves = {"dropped": {dataset.request("a")}} if others == "drops it" else {"succession": dataset.to("b", "a")}
    _meanwhile(monkeypatch, lambda: dataset.seal(**leaves))
    change = {"dropped": {dataset.request("a")}}
    sealed = (
        dataset.seal({"key": "a"}, **change) if judged_good else dataset.seal(bad=[dataset.bad({"key": "a"})], **change)
    )
    assert dataset.standing() == {("b", 0): "good"}
    assert (sealed.sealed, sealed.manifest.version, sealed.met) == (
        False,
        newest(dataset.storage).version,
        sealed.manifest.version,
    )
    assert sealed.tally.moved == 0


KEEP, APART = {"on_truncated": "keep", "degenerate": "auto"}, {"on_truncated": "quarantine", "degenerate": "auto"}
PLAIN, THINK = {"default": {"end_ids": [2]}}, {"default": {"end_ids": [2, 4]}}
RULES = [
    ({"recipe": KEEP, "structures": PLAIN}, {"recipe": APART, "structures": PLAIN}),
    ({"recipe": KEEP, "structures": PLAIN}, {"recipe": KEEP, "structures": THINK}),
]
same_or_other = pytest.mark.parametrize(("theirs", "ours"), [*RULES, *(pair[::-1] for pair in RULES)])


@same_or_other
def test_a_race_between_two_sets_of_rules_is_said_whoever_comes_second(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    first = dataset.seal({"key": "a"}, **theirs).manifest
    with monkeypatch.context() as patch:
        _meanwhile(patch, lambda: dataset.seal({"key": "b"}, **theirs))
        # Ours judged all of the first version's rows, and none of what was sealed meanwhile.
        sealed = dataset.seal({"key": "c"}, judged=first.version, **ours)
    assert (sealed.manifest.judged_alike, sealed.met) == (False, 2)
    # What comes on top without judging says it too; what has judged that version's rows does not.
    assert not dataset.seal({"key": "d"}, **ours).manifest.judged_alike
    assert not dataset.seal({"key": "e"}, judged=3, **ours).manifest.judged_alike
    assert dataset.seal({"key": "f"}, judged=5, **ours).manifest.judged_alike
    assert dataset.seal({"key": "g"}, **ours).manifest.judged_alike


@same_or_other
def test_without_a_race_all_rows_are_judged_alike(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    first = dataset.seal({"key": "a"}, **theirs).manifest
    assert first.judged_alike
    assert dataset.seal({"key": "b"}, judged=first.version, **ours).manifest.judged_alike
    _meanwhile(monkeypatch, lambda: dataset.seal({"key": "c"}, **ours))
    assert dataset.seal({"key": "d"}, **ours).manifest.judged_alike


def test_what_a_change_inherits_is_its_real_parents(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.seal({"key": "a"}, failed=[{"row_key": "ours"}])
    winner = {"failed": [{"row_key": "winner's"}], "identity": {"default": "winner's"}}
    _meanwhile(monkeypatch, lambda: dataset.seal({"key": "b"}, **winner))
    sealed = dataset.seal({"key": "c"}, inherited=lambda parent: {"failed": parent.failed, "identity": parent.identity})
    assert (sealed.manifest.version, sealed.manifest.failed) == (3, winner["failed"])
    assert sealed.manifest.identity == winner["identity"]
