"""Objects under an S3 prefix, through s3fs.

`create` is one conditional put (`If-None-Match: *`): of all writers of a name
one wins, and the object is whole from the moment it is visible. Never a
multipart upload: not every server honours the condition where one ends.

Endpoint, region, profile and credentials are found as every AWS client finds
them: AWS_* variables, ~/.aws/config and ~/.aws/credentials, the machine's role.

Promises: listings are never cached; of a large object only the bytes asked for
are fetched; every fault is a StorageFault, with its cause, and nothing is sent
again here: patience.py does that for all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any, BinaryIO

import fsspec
from botocore.exceptions import BotoCoreError
from botocore.session import Session
from fsspec.asyn import sync

from draftmill.dataset.objects import Entry, Outcome, StorageFault
from draftmill.dataset.s3_faults import Client, Credentials, fault, is_fault, is_taken, unusable

LARGEST_PUT = 5 * 2**30
"""Bytes S3 takes in one put."""

CONNECT_S = 5
"""Seconds to connect."""

READ_S = 30
"""Seconds of silence until a request counts as lost; the largest put is stored in less."""

FIRST_READ_S = 10
"""The same for the first look, which lists one key: a server that hangs is known before a person gives up."""

CONNECTIONS = 32
"""Connections at once: no thread that reads or writes waits for another's."""


class S3Objects:
    """The objects under `root`, "bucket" or "bucket/prefix". Making one sends nothing."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._bucket, _, self._prefix = root.partition("/")
        self.conditional = True
        self._fs: Any = fsspec.filesystem(
            "s3",
            use_listings_cache=False,
            client_kwargs=region_settings(),
            config_kwargs={
                "connect_timeout": CONNECT_S,
                "read_timeout": READ_S,
                "max_pool_connections": CONNECTIONS,
                # The layer that sends again is patience.py: neither botocore ...
                "retries": {"total_max_attempts": 1},
            },
        )
        # ... nor s3fs. aiohttp still sends a request once more when a connection it had kept turns out to be closed:
        # without that every pause of ours would end in a fault.
        self._fs.retries = 1

    def check(self) -> None:
        try:
            with self._translated():
                sync(self._fs.loop, self._first_look)
        except ValueError as error:  # botocore's, of an endpoint that is no URL
            raise unusable(error, client_of(self._fs)) from None

    def create(self, path: str, data: bytes) -> Outcome:
        if not self.conditional:
            return self._look_and_put(path, data)
        return self._put(path, data, IfNoneMatch="*")

    def replace(self, path: str, data: bytes) -> None:
        self._put(path, data)

    def read(self, path: str) -> bytes:
        with self._translated():
            # One request: several at once would need the size first.
            return bytes(self._fs.cat_file(f"{self._bucket}/{self._key(path)}", max_concurrency=1))

    def entry(self, path: str) -> Entry:
        key = self._key(path)
        try:
            head = self._call("head_object", Key=key)
            return Entry(path, int(head["ContentLength"]), head["LastModified"].astimezone(UTC))
        except FileNotFoundError:
            # An answer to HEAD has no body: whether the object is missing or the bucket, a listing tells.
            self._page(key, MaxKeys=1)
            raise
        except StorageFault as error:
            if not error.transient:
                self._page(key, MaxKeys=1)
            raise

    def entries(self, folder: str) -> list[Entry]:
        prefix = self._key(f"{folder}/" if folder else "")
        found: list[Entry] = []
        more: dict[str, Any] = {}
        while True:
            page = self._page(prefix, **more)
            found += [self._entry(item) for item in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                # Some servers list a folder as a key of its own.
                return [entry for entry in found if not entry.path.endswith("/")]
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def remove(self, path: str) -> None:
        # Not s3fs's `rm`: that is a bulk delete, whose faults it does not raise.
        self._call("delete_object", Key=self._key(path))

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        name, size = f"{self._bucket}/{self._key(path)}", self.entry(path).bytes
        # No cache: pyarrow asks for whole ranges, and s3fs would fetch 50 MB around each. The size is given: s3fs then
        # does not insist on an ETag, which is another when equal bytes are put again in a bucket with keys of its own.
        with self._translated(), self._fs.open(name, "rb", cache_type="none", size=size) as file:
            yield file

    async def _first_look(self) -> None:
        # Not part of the wait: a key service or a person's program may take its time to give out keys.
        await self._fs.set_session()
        listing = self._fs._call_s3("list_objects_v2", Bucket=self._bucket, Prefix=self._key(""), MaxKeys=1)
        await asyncio.wait_for(listing, FIRST_READ_S)

    def _look_and_put(self, path: str, data: bytes) -> Outcome:
        try:
            self.entry(path)
        except FileNotFoundError:
            return self._put(path, data)
        return Outcome.EXISTS

    def _put(self, path: str, data: bytes, **condition: str) -> Outcome:
        if len(data) > LARGEST_PUT:
            raise StorageFault(
                "an object too large for one put",
                value=f"{len(data)} bytes",
                expected=f"at most {LARGEST_PUT} bytes",
                remedy="lower chunk_rows in the recipe",
            )
        with self._translated():
            try:
                self._fs.call_s3("put_object", Bucket=self._bucket, Key=self._key(path), Body=data, **condition)
            except Exception as error:  # sorted by type in s3_faults.py
                if not (condition and is_taken(error)):
                    raise
                return Outcome.EXISTS
        return Outcome.CREATED

    def _page(self, prefix: str, **more: Any) -> Any:
        return self._call("list_objects_v2", Prefix=prefix, **more)

    def _call(self, method: str, **arguments: Any) -> Any:
        with self._translated():
            return self._fs.call_s3(method, Bucket=self._bucket, **arguments)

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    def _entry(self, item: Any) -> Entry:
        start = len(self._prefix) + 1 if self._prefix else 0
        return Entry(item["Key"][start:], int(item["Size"]), item["LastModified"].astimezone(UTC))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # sorted by type in s3_faults.py; what is not the storage's goes on
            if not is_fault(error):
                raise
            # Without the chain: its texts are the server's own, and may quote the key.
            raise fault(error, client_of(self._fs)) from None


def region_settings() -> dict[str, str]:
    """The region as botocore's own settings miss it: AWS_REGION is what most other clients read."""
    region = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION")
    return {"region_name": region} if region else {}


def client_of(fs: Any) -> Client:
    """What messages say of an s3fs file system."""
    made = fs._s3
    variables = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    endpoint = made.meta.endpoint_url if made is not None else next(filter(None, variables), "unknown")
    # What fsspec's own configuration may have given.
    given = [fs.key, fs.secret, fs.token]
    return Client(endpoint, lambda: _credentials(given))


def _credentials(given: list[str | None]) -> Credentials:
    profile, method, secrets = None, "nowhere", given
    try:
        session = Session()
        profile = session.get_config_variable("profile")
        if (found := session.get_credentials()) is not None:
            method = "the environment (AWS_ACCESS_KEY_ID)" if found.method == "env" else found.method
            secrets = [*given, *found.get_frozen_credentials()[:3]]
    except BotoCoreError as error:
        method = f"nowhere ({type(error).__name__})"
    if method == "nowhere" and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        method = "nowhere: AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not"
    source = f"profile {profile}, {method}" if profile else method
    return Credentials(source, [secret for secret in secrets if secret])
