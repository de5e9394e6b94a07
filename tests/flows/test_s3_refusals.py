"""Object storage that cannot be used: a message of four parts, before the server is asked or in the middle of a run.

Where no fake server is named the recipe's engine does not listen: a run that asked it first would end as GateRefused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pytest

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.errors import DatasetError, DraftmillError, RecipeError
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.protocol import GenerateRequest
from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS

TWELVE = [f"prompt {n}" for n in range(12)]
IN_THE_MIDDLE = 7
"""Number of the request at which something happens; the first is the canary."""

UNREACHABLE = "http://127.0.0.1:9"


@pytest.fixture
def proxy(seaweed: SeaweedFS, bucket: str, s3_environment: Callable[[dict[str, str]], None]) -> Iterator[S3Proxy]:
    """In front of the session's server; s3:// goes through it."""
    with S3Proxy(seaweed) as proxy:
        s3_environment(proxy.environment)
        yield proxy


async def refused(mill: Any, **changes: Any) -> DraftmillError:
    """The error a run ends with before anything is asked."""
    mill.prompts(TWELVE)
    with pytest.raises(DraftmillError) as error:
        await mill.refresh(**changes)
    assert isinstance(error.value, DatasetError | RecipeError), error.value
    assert all((error.value.what, str(error.value.value), error.value.expected, error.value.remedy))
    return error.value


async def test_a_wrong_secret(s3_mill: Any, seaweed: SeaweedFS, s3_environment: Callable[..., None]) -> None:
    wrong = "never-to-be-seen-" + seaweed.key.secret_key[:8]
    s3_environment(seaweed.environment | {"AWS_SECRET_ACCESS_KEY": wrong})
    told = str(await refused(s3_mill))
    assert s3_mill.dataset in told
    assert not any(secret in told for secret in (wrong, seaweed.key.access_key, seaweed.key.secret_key))


async def test_a_missing_bucket(s3_mill: Any) -> None:
    assert "s3://nobody-made-this-bucket" in str(await refused(s3_mill, dataset="s3://nobody-made-this-bucket/kimi"))


async def test_an_endpoint_that_does_not_answer(
    s3_mill: Any, seaweed: SeaweedFS, s3_environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmill.dataset.storage.START_S", 1.0)
    s3_environment(seaweed.environment | {"AWS_ENDPOINT_URL": UNREACHABLE})
    assert UNREACHABLE in str(await refused(s3_mill))


async def test_no_credentials(
    s3_mill: Any, seaweed: SeaweedFS, s3_environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_environment({"AWS_ENDPOINT_URL": seaweed.url, "AWS_DEFAULT_REGION": "us-east-1"})
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(s3_mill.folder))
    await refused(s3_mill)


async def test_a_store_that_ignores_create_only_is_refused_before_anything_is_asked(
    s3_mill: Any, proxy: S3Proxy
) -> None:
    proxy.add(Trouble.NOT_CREATE_ONLY)
    error = await refused(s3_mill)
    assert "commit: lock" in str(error)
    assert s3_mill.manifest is None


async def test_with_commit_lock_it_goes_on(
    s3_mill: Any, proxy: S3Proxy, fake_server: Callable[..., FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmill.dataset.create_only.SETTLE_S", 0.2)
    proxy.add(Trouble.NOT_CREATE_ONLY)
    s3_mill.prompts(TWELVE)
    async with fake_server() as fake:
        s3_mill.url = fake.url
        first = await s3_mill.refresh(commit="lock")
        s3_mill.prompts([*TWELVE, "one more"])
        second = await s3_mill.refresh(commit="lock")
    assert (first["state"], second["state"], len(s3_mill.rows())) == ("Completed", "Completed", 13)
    locks = [call.method for call in proxy.log if call.path.endswith("/manifests/.lock")]
    assert (locks.count("PUT"), locks.count("DELETE")) == (2, 2)
    assert verify(open_storage(s3_mill.dataset)).ok


async def test_rights_taken_away_in_the_middle(
    s3_mill: Any, proxy: S3Proxy, fake_server: Callable[..., FakeServer]
) -> None:
    await ends_and_goes_on(s3_mill, fake_server, harm=lambda: proxy.add(Trouble.DENIED), mend=proxy.clear)
    assert any(call.trouble is Trouble.DENIED for call in proxy.log)


async def test_a_bucket_deleted_under_the_run(
    s3_mill: Any, bucket: str, seaweed: SeaweedFS, fake_server: Callable[..., FakeServer]
) -> None:
    await ends_and_goes_on(
        s3_mill,
        fake_server,
        harm=lambda: fsspec.filesystem("s3").rm(bucket, recursive=True),
        mend=lambda: seaweed.make_bucket(bucket.removeprefix("s3://")),
    )


async def ends_and_goes_on(
    mill: Any, fake_server: Callable[..., FakeServer], *, harm: Callable[[], Any], mend: Callable[[], Any]
) -> None:
    """A first night, a second that is harmed in the middle, a third that asks nothing that was finished."""

    def rule(number: int, request: GenerateRequest) -> None:
        if number == IN_THE_MIDDLE:
            harm()

    mill.prompts(TWELVE)
    async with fake_server(slots=2, rule=rule, latency=Latency(first_s=0.05)) as fake:
        mill.url = fake.url
        told = await how_it_ends(mill, engine__in_flight=2)
        assert all(part in told for part in ("\n  got:      ", "\n  expected: ", "\n  to do:    ")), told
        assert mill.dataset in told
        fake.rule = None
        mend()
        finished = {tuple(entry.input_ids or ()) for entry in fake.log[1:] if entry.status == 200}
        assert len(finished) > 2
        before = len(fake.log)
        data = await mill.refresh(engine__in_flight=2)
        assert (data["state"], data["exit_code"]) == ("Completed", 0)
        asked = [tuple(entry.input_ids or ()) for entry in fake.log[before:]]
    canary = tuple(fake.log[0].input_ids or ())
    assert not [prompt for prompt in asked if prompt in finished and prompt != canary]
    assert sorted(row["prompt_id"] for row in mill.rows()) == sorted(TWELVE)
    found = verify(open_storage(mill.dataset))
    assert found.ok, found.faults


async def how_it_ends(mill: Any, **changes: Any) -> str:
    """The message of a run that the storage ends, as an error or as its final state's."""
    try:
        data = await mill.refresh(**changes)
    except DatasetError as error:
        return str(error)
    assert data["exit_code"] == DatasetError.exit_code
    return str(data["error"])
