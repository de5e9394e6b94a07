"""Prompts on a real S3 server: folders, globs, one file, saved datasets; and what is said when it refuses."""

from __future__ import annotations

import gzip
import json

import pytest
from datasets import Dataset, DatasetDict, disable_progress_bars
from s3fs import S3FileSystem

from draftmill.errors import RecipeError, SourceError
from draftmill.prompts.files import find_files
from draftmill.prompts.load import load_prompts
from draftmill.recipe import Prompts
from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.sources import jsonl


def put(bucket: str, *names: str) -> S3FileSystem:
    """Objects of one prompt each, which is the object's name."""
    fs = S3FileSystem(use_listings_cache=False)
    for name in names:
        fs.pipe_file(f"{bucket}/{name}", json.dumps({"prompt": name}).encode())
    return fs


def found(*paths: str) -> list[str]:
    return [file.path for file in find_files(Prompts(path=list(paths)))]


def prompts_of(*paths: str, split: str = "train") -> list[str]:
    table = load_prompts(Prompts(path=list(paths), split=split)).table
    return [json.loads(text)["messages"][0]["content"] for text in table["messages"].to_pylist()]


def test_a_folder_is_read_in_the_order_of_the_disk_without_hidden_names(bucket, tmp_path):
    names = ["p/a/x.jsonl", "p/a-b/x.jsonl", "p/a.jsonl", "p/sub/deep/c.json", "p/odd [1]#?.jsonl"]
    hidden = ["p/_SUCCESS", "p/.crc", "p/_temporary/0/d.jsonl", "p/sub/_x/e.jsonl", "q/f.jsonl", "p2/g.jsonl"]
    fs = put(bucket, *names, *hidden)
    fs.pipe_file(f"{bucket}/p/empty/", b"")  # a folder as the console makes it
    for name in (*names, *hidden):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"prompt": name}))
    local = prompts_of(str(tmp_path / "p"))
    assert sorted(local) == sorted(names)
    assert prompts_of(f"{bucket}/p") == prompts_of(f"{bucket}/p/") == local
    assert found(f"{bucket}/p")[0].startswith(f"{bucket}/p/a")


def test_a_whole_bucket(bucket):
    put(bucket, "b.jsonl", "a/a.jsonl", "_x/c.jsonl")
    assert prompts_of(bucket) == prompts_of(f"{bucket}/") == ["a/a.jsonl", "b.jsonl"]
    assert prompts_of(f"{bucket}/*.jsonl") == ["b.jsonl"]


def test_a_store_that_is_busy_is_asked_again_and_one_that_refuses_is_not(seaweed, bucket, s3_environment):
    put(bucket, "p/a.jsonl")
    with S3Proxy(seaweed) as proxy:
        s3_environment(proxy.environment)
        for method in ("GET", "HEAD"):
            proxy.add(Trouble.SLOW_DOWN, method=method, path="/p", times=1)
        assert prompts_of(f"{bucket}/p/a.jsonl") == ["p/a.jsonl"]
        assert [line.trouble for line in proxy.log if line.trouble]
        proxy.clear()
        proxy.add(Trouble.DENIED, method="GET", path="/p/a.jsonl")
        with pytest.raises(SourceError, match=r"p/a\.jsonl: no right to do so"):
            prompts_of(f"{bucket}/p/a.jsonl")


def test_globs_single_files_and_lists(bucket):
    put(bucket, "p/a.jsonl", "p/b.json", "p/sub/c.jsonl", "p/_h/d.jsonl", "_up/x/e.jsonl")
    assert prompts_of(f"{bucket}/p/*.jsonl") == ["p/a.jsonl"]
    assert prompts_of(f"{bucket}/p/**/*.jsonl") == ["p/a.jsonl", "p/sub/c.jsonl"]
    assert prompts_of(f"{bucket}/p/*") == ["p/a.jsonl", "p/b.json", "p/sub/c.jsonl"]
    assert prompts_of(f"{bucket}/_up/*") == ["_up/x/e.jsonl"]
    assert prompts_of(f"{bucket}/p/b.json", f"{bucket}/p") == ["p/b.json", "p/a.jsonl", "p/sub/c.jsonl"]
    (file,) = find_files(Prompts(path=f"{bucket}/p/_h/d.jsonl"))
    assert file.named


def test_packed_files_are_read_whole_and_a_cut_one_is_refused(bucket):
    fs = put(bucket)
    member = gzip.compress(b'{"prompt": "x"}\n')
    fs.pipe_file(f"{bucket}/a.jsonl", member * 3)
    assert prompts_of(f"{bucket}/a.jsonl") == ["x"] * 3
    fs.pipe_file(f"{bucket}/a.jsonl", member * 2 + member[:-4])
    with pytest.raises(SourceError, match=r"a gzip file ends early[\s\S]*a\.jsonl, read up to byte"):
        prompts_of(f"{bucket}/a.jsonl")


def test_a_saved_dataset_and_what_another_process_adds(bucket, tmp_path):
    disable_progress_bars()
    train, test = Dataset.from_dict({"prompt": ["a", "b", "c"]}), Dataset.from_dict({"prompt": ["t"]})
    splits = DatasetDict(train=train, test=test)
    splits.save_to_disk(str(tmp_path / "ds"), num_shards={"train": 3, "test": 1})
    put(bucket).put(str(tmp_path / "ds"), f"{bucket}/in/ds", recursive=True)
    assert prompts_of(f"{bucket}/in/ds") == prompts_of(f"{bucket}/in") == ["a", "b", "c"]
    assert prompts_of(f"{bucket}/in/ds", split="test") == prompts_of(f"{bucket}/in/ds/test") == ["t"]
    with pytest.raises(RecipeError, match="one of: train, test"):
        prompts_of(f"{bucket}/in", split="dev")
    put(bucket, "in/z.jsonl")
    assert prompts_of(f"{bucket}/in") == ["a", "b", "c", "in/z.jsonl"]


def test_a_scheme_in_another_spelling_is_the_same_place(bucket):
    put(bucket, "p/a.jsonl")
    name = bucket.removeprefix("s3://")
    assert found(f"S3://{name}/p", f"s3a://{name}/p/*", f"{bucket}/p") == [f"{bucket}/p/a.jsonl"]
    assert prompts_of(f"s3a://{name}/p/a.jsonl") == ["p/a.jsonl"]


@pytest.mark.parametrize("name", ["p/b.parquet", "p/b.jsonl.gz", "p/b.arrow"])
def test_a_part_of_no_bytes_stops_the_run(bucket, name):
    put(bucket, "p/a.jsonl").pipe_file(f"{bucket}/{name}", b"")
    with pytest.raises(SourceError, match=rf"{name}, which is empty"):
        prompts_of(f"{bucket}/p")


def test_columnar_files_are_read_in_ranges(bucket, tmp_path):
    Dataset.from_dict({"prompt": ["a", "b"], "odd": [[0.5] * 1000] * 2}).to_parquet(str(tmp_path / "a.parquet"))
    put(bucket).put(str(tmp_path / "a.parquet"), f"{bucket}/a.parquet")
    assert prompts_of(f"{bucket}/a.parquet") == ["a", "b"]


@pytest.mark.parametrize("path", ["nothing/", "nothing.jsonl", "p/*.csv"])
def test_what_is_not_there_is_a_fault_of_the_recipe(bucket, path):
    put(bucket, "p/a.jsonl")
    with pytest.raises(RecipeError, match="no such prompts"):
        found(f"{bucket}/{path}")


PATHS = ["p/a.jsonl", "p", "p/", "p/*.jsonl", "p/**/*.jsonl", "", "p/missing.jsonl", "nothing/*"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("AWS_SECRET_ACCESS_KEY", "the secret does not belong to the access key"),
        ("AWS_ACCESS_KEY_ID", "the storage does not know the access key"),
    ],
)
def test_wrong_credentials_are_called_so_without_secrets(bucket, monkeypatch, path, name, words):
    put(bucket, "p/a.jsonl")
    monkeypatch.setenv(name, "not-the-right-one")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceError, match=words) as caught:
        prompts_of(f"{bucket}/{path}")
    assert bucket in str(caught.value)
    assert "not-the-right-one" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_secret_that_is_changed_between_finding_and_reading(bucket, monkeypatch):
    put(bucket, "p/a.jsonl")
    (file,) = find_files(Prompts(path=f"{bucket}/p"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-one")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceError, match="the secret does not belong to the access key"):
        list(jsonl.read(file.path))


@pytest.mark.parametrize("path", PATHS)
def test_without_rights_those_of_a_reader_are_asked_for(seaweed, bucket, s3_environment, path):
    put(bucket, "p/a.jsonl")
    with S3Proxy(seaweed) as proxy:
        s3_environment(proxy.environment)
        proxy.add(Trouble.DENIED, times=1000)
        with pytest.raises(SourceError, match="no right to do so") as caught:
            prompts_of(f"{bucket}/{path}")
    words = f"{caught.value.expected} {caught.value.remedy}"
    assert "list the bucket and to get" in words
    assert "put" not in words
    assert "delete" not in words


def test_who_may_not_list_may_read_a_file_by_name(seaweed, bucket, s3_environment):
    put(bucket, "p/a.jsonl")
    with S3Proxy(seaweed) as proxy:
        s3_environment(proxy.environment)
        assert prompts_of(f"{bucket}/p/a.jsonl") == ["p/a.jsonl"]
        assert proxy.log
        assert not [call for call in proxy.log if call.lists]


@pytest.mark.parametrize("path", PATHS)
def test_a_bucket_that_is_not_there(bucket, path):
    with pytest.raises(SourceError, match="there is no such bucket"):
        found(f"{bucket}-other/{path}")


def test_an_endpoint_that_is_not_there(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceError, match=r"does not answer[\s\S]*endpoint http://127\.0\.0\.1:9"):
        found(f"{bucket}/p")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no url")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceError, match=r"correct prompts\.path, AWS_ENDPOINT_URL"):
        found(f"{bucket}/p")


def test_a_file_that_goes_away_between_finding_and_reading(bucket):
    fs = put(bucket, "p/a.jsonl")
    (file,) = find_files(Prompts(path=f"{bucket}/p"))
    fs.rm_file(f"{bucket}/p/a.jsonl")
    with pytest.raises(SourceError, match=r"p/a\.jsonl"):
        list(jsonl.read(file.path))
