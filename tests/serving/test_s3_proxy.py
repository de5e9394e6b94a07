"""The proxy in front of an S3 server: what it lets through is unchanged, what it spoils is spoiled as told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError
from botocore.session import Session

from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS


@pytest.fixture
def proxy(seaweed: SeaweedFS) -> Iterator[S3Proxy]:
    with S3Proxy(seaweed) as proxy:
        yield proxy


@pytest.fixture
def s3(proxy: S3Proxy, bucket: str) -> Callable[..., Any]:
    """`s3("put_object", Key=..., Body=...)` in a new bucket, through the proxy, each request sent once."""
    environment = proxy.environment
    client = Session().create_client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
        config=Config(retries={"total_max_attempts": 1}),
    )
    name = bucket.removeprefix("s3://")
    return lambda operation, **arguments: getattr(client, operation)(Bucket=name, **arguments)


def put(s3: Callable[..., Any], key: str, body: bytes = b"1", **arguments: str) -> Any:
    return s3("put_object", Key=key, Body=body, **arguments)


def keys(s3: Callable[..., Any]) -> list[str]:
    return [entry["Key"] for entry in s3("list_objects_v2").get("Contents", [])]


def status(error: pytest.ExceptionInfo[ClientError]) -> int:
    return int(error.value.response["ResponseMetadata"]["HTTPStatusCode"])


def test_what_it_lets_through_is_the_servers(s3, proxy: S3Proxy) -> None:
    body = bytes(range(256)) * 4000
    put(s3, "a folder/ü+=&.bin", body)
    assert s3("get_object", Key="a folder/ü+=&.bin")["Body"].read() == body
    assert s3("head_object", Key="a folder/ü+=&.bin")["ContentLength"] == len(body)
    assert keys(s3) == ["a folder/ü+=&.bin"]
    put(s3, "once", IfNoneMatch="*")
    with pytest.raises(ClientError) as error:
        put(s3, "once", IfNoneMatch="*")
    assert status(error) == 412
    assert [(call.method, call.status) for call in proxy.log[-2:]] == [("PUT", 200), ("PUT", 412)]


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [(Trouble.SLOW_DOWN, 503), (Trouble.DENIED, 403), (Trouble.CONFLICT, 409), (Trouble.ERROR_500, 500)],
)
def test_refusals_by_method_path_and_count(s3, proxy: S3Proxy, trouble: Trouble, expected: int) -> None:
    proxy.add(trouble, method="PUT", path="/shards/", skip=1, every=2, times=2)
    put(s3, "prompts/any")
    for name in ("1-there", "2-not", "3-there", "4-not", "5-there", "6-there"):
        if name.endswith("not"):
            with pytest.raises(ClientError) as error:
                put(s3, f"shards/{name}")
            assert status(error) == expected
        else:
            put(s3, f"shards/{name}")
    assert keys(s3) == ["prompts/any", "shards/1-there", "shards/3-there", "shards/5-there", "shards/6-there"]
    proxy.clear()
    proxy.add(trouble)
    with pytest.raises(ClientError) as error:
        s3("head_object", Key="prompts/any")
    assert status(error) == expected


@pytest.mark.parametrize(("trouble", "there"), [(Trouble.DROPPED, []), (Trouble.LOST_ANSWER, ["a"])])
def test_a_connection_that_is_cut(s3, proxy: S3Proxy, trouble: Trouble, there: list[str]) -> None:
    proxy.add(trouble, times=1)
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        put(s3, "a")
    assert keys(s3) == there


def test_a_store_that_ignores_create_only(s3, proxy: S3Proxy) -> None:
    proxy.add(Trouble.NOT_CREATE_ONLY)
    put(s3, "a b", b"1", IfNoneMatch="*")
    put(s3, "a b", b"2", IfNoneMatch="*")
    assert s3("get_object", Key="a b")["Body"].read() == b"2"


def test_a_stale_listing_lacks_what_came_since(s3, proxy: S3Proxy) -> None:
    put(s3, "old ä")
    proxy.add(Trouble.STALE_LISTING, times=1)
    put(s3, "new")
    assert keys(s3) == ["old ä"]
    assert keys(s3) == ["new", "old ä"]
