"""A whole export: sealed datasets in, files and export.json out, checked by reading back."""

from __future__ import annotations

import errno
import json
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from draftmill import plugins
from draftmill.errors import DatasetError, RecipeError
from draftmill.exporting.export import Exported, Order, export
from draftmill.exporting.masks import Mask
from draftmill.exporting.selection import Longer, Wish
from draftmill.identity import sha256
from tests.exporting.conftest import Datasets, Made

TWENTY = [Made(f"row {n}", first_id=100 + n) for n in range(20)]


def first_ids(out: Path, part: str = "train") -> list[int]:
    """The rows of a SpecForge export, known by their first id."""
    return [json.loads(line)["input_ids"][0] for line in (out / f"{part}.jsonl").read_text().splitlines()]


def run(datasets: Datasets, out: Path, *urls: str, to: str = "specforge", **options: Any) -> Exported:
    return export(urls or datasets.urls, str(out), to=to, **options)


def test_every_row_is_there_once_and_shuffled_the_same_way_by_a_seed(datasets: Datasets, tmp_path: Path) -> None:
    datasets.make(TWENTY[:9], TWENTY[9:])
    orders = {}
    for name, seed in {"a": 1, "b": 1, "c": 2, "plain": None}.items():
        run(datasets, tmp_path / name, order=Order(seed=seed))
        orders[name] = first_ids(tmp_path / name)
        assert sorted(orders[name]) == [100 + n for n in range(20)]
    assert orders["plain"] == [100 + n for n in range(20)]
    assert orders["a"] == orders["b"]
    assert orders["a"] not in (orders["c"], orders["plain"])


def test_the_order_of_old_rows_stays_when_rows_come_in(datasets: Datasets, tmp_path: Path) -> None:
    url = datasets.make(TWENTY[:12])
    run(datasets, tmp_path / "before", url)
    datasets.make(TWENTY[12:], onto=url)
    run(datasets, tmp_path / "after", url)
    after = [index for index in first_ids(tmp_path / "after") if index < 112]
    assert after == first_ids(tmp_path / "before")


def test_the_record_says_what_the_export_is(datasets: Datasets, tmp_path: Path, newest: Any) -> None:
    url = datasets.make([*TWENTY, Made("inside", content=None), Made("fast", reasoning=None, variant="fast")])
    done = run(datasets, tmp_path / "out", wish=Wish(Mask.CONTENT, max_length=8))
    record = json.loads((tmp_path / "out" / "export.json").read_text())
    assert record == done.record
    assert record["datasets"] == [{"url": url, "manifest": 1, "sha256": newest(url).sha256, "weight": 1.0}]
    assert record["model"] == {"name": "some/model", "revision": None, "quantization": None}
    assert (record["vocabulary_size"], record["mask"], record["max_length"]) == (1000, "content", 8)
    assert record["special_ids"] == {"opens_reasoning": [7], "closes_reasoning": [8], "ends_turn": [2]}
    assert record["dropped"] == {"too_long": 0, "nothing_supervised": 1, "no_supervised_pair": 0}
    assert (record["cut_rows"], record["lost_supervised"]) == (20, {"reasoning": 0, "content": 20})
    train = record["parts"]["train"]
    assert {name: train[name] for name in ("dropped", "cut_rows", "lost_supervised")} == {
        name: record[name] for name in ("dropped", "cut_rows", "lost_supervised")
    }
    # 20 rows of 8 ids with 2 of content left, one of 3 + 3
    assert (train["rows"], train["ids"], train["supervised"]) == (21, 166, 43)
    for file in train["files"]:
        data = (tmp_path / "out" / file["path"]).read_bytes()
        assert (len(data), sha256(data)) == (file["bytes"], file["sha256"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "export.json",
        *(file["path"] for file in train["files"]),
    }
    counts = pq.read_table(tmp_path / "out" / "supervised_ids-train.parquet").to_pydict()
    assert dict(zip(counts["token_id"], counts["count"], strict=True)) == {60: 42, 2: 1}
    assert train["coverage"]["8192"] == 1.0


def test_a_prompt_is_on_one_side_with_its_samples_and_its_turns(datasets: Datasets, tmp_path: Path) -> None:
    samples = [Made(f"{n}-{k}", prompt_key=f"p{n}", sample=k, first_id=1000 + n) for n in range(60) for k in range(3)]
    turns = [
        Made(f"talk {n} turn {k}", prompt=3 + 5 * k, prompt_id=f"talk {n}", first_id=2000 + n)
        for n in range(60)
        for k in reversed(range(3))
    ]
    datasets.make(samples, turns, turns="all")
    done = run(datasets, tmp_path / "out", order=Order(split=0.3))
    train, validation = (Counter(first_ids(tmp_path / "out", part)) for part in ("train", "validation"))
    assert not set(train) & set(validation)
    assert {*train.values(), *validation.values()} == {3}
    assert len(train) + len(validation) == 120
    assert 15 < len(validation) < 60
    assert done.parts["validation"].numbers.rows == 3 * len(validation)
    run(datasets, tmp_path / "cut", order=Order(split=0.3), wish=Wish(max_length=9, longer=Longer.DROP))
    record = json.loads((tmp_path / "cut" / "export.json").read_text())
    dropped = [record["parts"][part]["dropped"]["too_long"] for part in ("train", "validation")]
    assert min(dropped) > 0
    assert sum(dropped) == record["dropped"]["too_long"]


def test_the_side_depends_on_nothing_but_the_prompt(datasets: Datasets, tmp_path: Path) -> None:
    url = datasets.make(TWENTY)
    sides = {}
    for name, seed in {"a": 1, "b": 2}.items():
        run(datasets, tmp_path / name, url, order=Order(split=0.4, seed=seed))
        sides[name] = set(first_ids(tmp_path / name, "validation"))
    datasets.make([Made(f"new {n}", first_id=500 + n) for n in range(9)], onto=url)
    other = datasets.make([Made("other sample", prompt_key="row 3", first_id=103)])
    run(datasets, tmp_path / "c", url, other, order=Order(split=0.4, seed=3))
    sides["c"] = {index for index in first_ids(tmp_path / "c", "validation") if index < 200}
    assert sides["a"] == sides["b"] == sides["c"]
    assert 0 < len(sides["a"]) < 20
    assert not {*first_ids(tmp_path / "c")} & sides["c"], "the same prompt of another dataset goes with it"


def test_weights_repeat_and_thin_out_the_same_rows_each_time(datasets: Datasets, tmp_path: Path) -> None:
    many = datasets.make([Made(f"m{n}", first_id=1000 + n) for n in range(200)])
    few = datasets.make([Made(f"f{n}", first_id=5000 + n) for n in range(10)])
    for name in ("a", "b"):
        run(datasets, tmp_path / name, many, few, weights=(0.5, 2.0))
    found = Counter(first_ids(tmp_path / "a"))
    assert found == Counter(first_ids(tmp_path / "b"))
    assert all(found[5000 + n] == 2 for n in range(10))
    halved = [index for index in found if index < 5000]
    assert 70 < len(halved) < 130
    assert {found[index] for index in halved} == {1}


def test_datasets_of_two_vocabularies_are_not_mixed(datasets: Datasets, tmp_path: Path) -> None:
    datasets.make(TWENTY)
    datasets.make(TWENTY, highest_id=1234)
    with pytest.raises(RecipeError, match="highest id of the vocabulary: 999 and 1234"):
        run(datasets, tmp_path / "out")


def test_datasets_of_two_models_are_not_mixed(datasets: Datasets, tmp_path: Path) -> None:
    datasets.make(TWENTY)
    datasets.make(TWENTY, model="another/model")
    with pytest.raises(RecipeError, match="name: 'some/model' and 'another/model'"):
        run(datasets, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "nemo"}, "one of: huggingface, jsonl, specforge, speculators"),
        ({"weights": (1.0, 2.0)}, "2 weights, 1 datasets"),
        ({"wish": Wish(Mask.COMPLETION, max_length=3)}, "nothing_supervised 20"),
    ],
)
def test_what_cannot_be_is_refused(datasets: Datasets, tmp_path: Path, options: Any, words: str) -> None:
    datasets.make(TWENTY)
    with pytest.raises(RecipeError, match=words):
        run(datasets, tmp_path / "out", **options)
    assert not (tmp_path / "out" / "export.json").exists()


def test_a_folder_with_something_in_it_is_refused(datasets: Datasets, tmp_path: Path) -> None:
    datasets.make(TWENTY)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train.jsonl").write_text("precious")
    with pytest.raises(RecipeError, match="not empty"):
        run(datasets, tmp_path / "out")
    assert (tmp_path / "out" / "train.jsonl").read_text() == "precious"


def test_files_that_cannot_be_read_back_are_no_export(
    datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets.make(TWENTY)
    real = plugins.load("exporters", "specforge")

    def write(folder: Any, part: str, examples: Any, *, vocabulary: Any) -> list[str]:
        paths = real.write(folder, part, examples, vocabulary=vocabulary)
        folder.pipe_file(paths[0], folder.cat_file(paths[0])[:-3])
        return list(paths)

    monkeypatch.setattr(plugins, "load", lambda shelf, name: SimpleNamespace(write=write, read=real.read))
    with pytest.raises(DatasetError, match=r"not read back as it was written \(train.jsonl\)") as raised:
        run(datasets, tmp_path / "out")
    assert "JSONDecodeError" in raised.value.value
    assert not (tmp_path / "out" / "export.json").exists()


def test_a_disk_that_refuses_is_named(datasets: Datasets, tmp_path: Path) -> None:
    datasets.make(TWENTY)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DatasetError, match=r"cannot export to .*file/out") as raised:
        run(datasets, tmp_path / "file" / "out")
    assert "NotADirectoryError" in raised.value.value


def test_a_full_disk_leaves_no_record(datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.make(TWENTY)
    real = plugins.load("exporters", "specforge")

    def write(folder: Any, part: str, examples: Any, *, vocabulary: Any) -> list[str]:
        real.write(folder, part, [next(iter(examples))], vocabulary=vocabulary)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(plugins, "load", lambda shelf, name: SimpleNamespace(write=write, read=real.read))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with pytest.raises(DatasetError, match="No space left on device"):
        run(datasets, tmp_path / "out")
    assert not (tmp_path / "out" / "export.json").exists()
    assert not list((tmp_path / "tmp").iterdir()), "temporary files are gone"


def test_a_bucket_that_is_not_there_is_not_made(datasets: Datasets, bucket: str) -> None:
    datasets.make(TWENTY)
    with pytest.raises(DatasetError, match="there is no such bucket"):
        export(datasets.urls, "s3://draftmill-no-such-bucket/out", to="specforge")


def test_a_damaged_shard_is_named_and_nothing_is_exported(datasets: Datasets, tmp_path: Path, newest: Any) -> None:
    url = datasets.make(TWENTY)
    (shard,) = newest(url).shards
    data = bytearray((Path(url) / shard.path).read_bytes())
    data[len(data) // 2] ^= 1
    (Path(url) / shard.path).write_bytes(data)
    with pytest.raises(DatasetError, match=shard.path):
        run(datasets, tmp_path / "out")
    assert not (tmp_path / "out" / "export.json").exists()


def test_files_that_read_back_otherwise_are_no_export(
    datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets.make(TWENTY)
    real = plugins.load("exporters", "specforge")

    def read(folder: Any, part: str) -> Any:
        for number, (ids, mask) in enumerate(real.read(folder, part)):
            yield (ids + (number == 7)).astype(np.int32), mask

    monkeypatch.setattr(plugins, "load", lambda shelf, name: SimpleNamespace(write=real.write, read=read))
    with pytest.raises(DatasetError, match=r"not read back as it was written \(train.jsonl\)"):
        run(datasets, tmp_path / "out")
    assert not (tmp_path / "out" / "export.json").exists()


@pytest.mark.parametrize("to", plugins.names("exporters"))
def test_from_and_to_object_storage(datasets: Datasets, bucket: str, to: str) -> None:
    datasets.root = bucket
    datasets.make(TWENTY[:9], TWENTY[9:])
    first, again = (export(datasets.urls, f"{bucket}/{to}-{n}", to=to, order=Order(split=0.3)) for n in range(2))
    assert {name: part.numbers for name, part in first.parts.items()} == {
        name: part.numbers for name, part in again.parts.items()
    }
    assert sum(part.numbers.rows for part in first.parts.values()) == 20
    with pytest.raises(RecipeError, match="not empty"):
        export(datasets.urls, f"{bucket}/{to}-0", to=to)
