"""Where prompts may lie, in any spelling; every other scheme is refused in words before anything is asked."""

from __future__ import annotations

import pytest

from draftmill.errors import RecipeError
from draftmill.prompts.digest import source_digest
from draftmill.prompts.files import find_files
from draftmill.prompts.load import load_prompts
from draftmill.prompts.places import normal, shown
from draftmill.recipe import Prompts

OTHERS = ["gs", "gcs", "az", "abfs", "abfss", "adl", "hf", "s4", "ftp", "sftp", "memory", "hdfs", "s3n", "oci", "data"]


@pytest.mark.parametrize("scheme", [*OTHERS, "", "GS", "https+x", "jsonl", "simplecache::s3", "filecache::file"])
@pytest.mark.parametrize("read", [find_files, load_prompts, source_digest])
def test_another_scheme_is_refused_in_four_parts(scheme, read):
    with pytest.raises(RecipeError) as caught:
        read(Prompts(path=["/nowhere", f"{scheme}://bucket/p/*.jsonl"][1:]))
    error = caught.value
    assert f"{scheme}://bucket/p/*.jsonl" in str(error.value)
    assert all(known in error.expected for known in ("file://", "s3://", "s3a://", "http://", "https://"))
    assert "prompts.path" in error.remedy


@pytest.mark.parametrize("path", ["s3://", "s3:///", "S3A://"])
def test_a_bucket_must_be_named(path):
    with pytest.raises(RecipeError, match="without a bucket"):
        find_files(Prompts(path=path))


def test_spellings_of_one_place(tmp_path):
    assert normal("S3://Bucket/Key") == normal("s3a://Bucket/Key") == normal("S3A://Bucket/Key") == "s3://Bucket/Key"
    assert normal("HTTPS://Host/A") == "https://Host/A"
    assert normal("/a/b?c") == "/a/b?c"
    assert shown("HTTPS://user:pw@host/a?signature=s") == "HTTPS://host/a"
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n')
    paths = [f"FILE://{tmp_path}", f"file://{tmp_path}/a.jsonl", str(tmp_path)]
    assert [file.path for file in find_files(Prompts(path=paths))] == [str(tmp_path / "a.jsonl")]


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP", "Https"])
def test_a_query_is_refused_in_any_spelling(scheme):
    with pytest.raises(ValueError, match="must not carry a query"):
        Prompts(path=f"{scheme}://host/a.jsonl?signature=secret")
