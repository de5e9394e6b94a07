"""One spelling for one place; what is no place is refused in words, and no secret is among them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.place import normal_url
from draftmill.errors import RecipeError

SECRETS = ["AKIDEXAMPLE0", "wJalrXUt/nFEMI+K7", "hunter2", "a-signature"]


def refused(url: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        normal_url(url)
    return caught.value


def test_one_spelling() -> None:
    assert normal_url("s3://bucket/a/") == normal_url("s3://bucket/a") == "s3://bucket/a"
    assert normal_url("s3://bucket/") == "s3://bucket"
    assert normal_url("s3://bucket/who@where/a:b") == "s3://bucket/who@where/a:b"
    assert normal_url("file:///x/y/") == normal_url("/x//y") == normal_url("/x/z/../y") == "/x/y"
    assert normal_url("~/x") == os.path.expanduser("~/x")
    assert normal_url("x") == os.path.abspath("x")


@pytest.mark.parametrize(
    "url",
    [
        *("s3://", "s3:///", "s3:///a", "s3:////", "s3://bucket//", "s3://bucket//a", "s3://bucket/a//b"),
        *("s3://bucket/a//", "s3://bucket/./a", "s3://bucket/../a", "s3://bucket/a/..", "s3://../a", "file://", ""),
    ],
)
def test_an_empty_or_dotted_part(url: str) -> None:
    error = refused(url)
    assert error.value == (url or "nothing")
    assert "was a variable empty?" in error.remedy


PARTS = st.text("ab.", max_size=3)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_a_place_in_a_bucket_is_what_listings_find_again(parts: list[str]) -> None:
    url = "s3://" + "/".join(parts)
    try:
        normal = normal_url(url)
    except RecipeError:
        ended = parts[:-1] if len(parts) > 1 and parts[-1] == "" else parts
        assert {"", ".", ".."} & set(ended)
        return
    assert normal == url.removesuffix("/")
    assert normal_url(normal) == normal
    assert not {"", ".", ".."} & set(normal.removeprefix("s3://").split("/"))


@pytest.mark.parametrize(
    "url",
    [
        *("s3:/demo/y", "s3a://bucket/a", "S3://bucket/a", "File:///a", "file:/a", "gs://bucket/a", "gs:/bucket"),
        *("http://host/a", "az+x://c/a", "hf://datasets/a"),
    ],
)
def test_another_scheme_is_no_folder(url: str) -> None:
    error = refused(url)
    assert error.value == url
    assert "s3:// and file://" in error.remedy


def test_a_folder_with_a_colon_can_be_named() -> None:
    assert normal_url("./s3:/demo") == os.path.abspath("s3:/demo")
    assert normal_url("C:/demo") == os.path.abspath("C:/demo")
    assert normal_url("runs:1/demo:2") == os.path.abspath("runs:1/demo:2")


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIDEXAMPLE0:hunter2@bucket/x",
        "s3://AKIDEXAMPLE0:wJalrXUt/nFEMI+K7@bucket/x",
        "s3://AKIDEXAMPLE0@bucket/x",
        "s3://AKIDEXAMPLE0:hunter2/bucket",
        "https://me:hunter2@host/x",
        "file://me:hunter2@host/x",
        "gs://hunter2@host/x",
        "S3://AKIDEXAMPLE0:wJalrXUt/nFEMI+K7@bucket/x",
        "s3:/AKIDEXAMPLE0:wJalrXUt/nFEMI+K7@bucket/x",
        "https://host/x?X-Amz-Signature=a-signature",
    ],
)
def test_a_secret_is_refused_and_not_said(url: str) -> None:
    error = refused(url)
    assert not [secret for secret in SECRETS for text in (str(error), repr(error)) if secret in text]
    assert error.__cause__ is None


def test_credentials_are_called_by_their_name() -> None:
    error = refused("s3://AKIDEXAMPLE0:hunter2@bucket/x")
    assert "must not carry credentials" in error.what
    assert "AWS_PROFILE" in error.remedy
