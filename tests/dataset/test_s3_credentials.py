"""Endpoint, region and credentials as every AWS client finds them; what is wrong with them, said before all else."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmill.dataset import s3_objects
from draftmill.dataset import storage as storage_module
from draftmill.dataset.storage import Storage, open_storage
from draftmill.errors import DatasetError
from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS

UseS3 = Callable[[dict[str, str]], None]

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder for ~/.aws, and no role of a machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.fixture
def use(s3_environment: UseS3, monkeypatch: pytest.MonkeyPatch) -> UseS3:
    def use(environment: dict[str, str]) -> None:
        s3_environment(environment)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    return use


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "START_S", 0.0)


def works(url: str) -> bool:
    storage = open_storage(f"{url}/data")
    storage.check()
    storage.check_writing()
    return storage.create("a", b"1") is not None and storage.read("a") == b"1"


def told(url: str) -> DatasetError:
    storage = open_storage(f"{url}/data")
    with pytest.raises(DatasetError) as caught:
        storage.check()
    return caught.value


def keys(server: SeaweedFS) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": server.key.access_key, "AWS_SECRET_ACCESS_KEY": server.key.secret_key}


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_from_the_environment(name: str, bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path) -> None:
    use(keys(seaweed) | {name: seaweed.url})
    assert works(bucket)


def test_the_endpoint_of_the_service_comes_first(bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path) -> None:
    use(keys(seaweed) | {"AWS_ENDPOINT_URL": NOWHERE, "AWS_ENDPOINT_URL_S3": seaweed.url})
    assert works(bucket)


@pytest.mark.parametrize("name", ["AWS_DEFAULT_REGION", "AWS_REGION"])
def test_the_region_from_the_environment(name: str, bucket: str, seaweed: SeaweedFS, use: UseS3) -> None:
    with S3Proxy(seaweed) as proxy:
        use(proxy.environment | {"AWS_DEFAULT_REGION": "", name: "eu-central-7"})
        storage = open_storage(bucket)
        storage.check()
    assert storage._objects._fs.s3.meta.region_name == "eu-central-7"  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", ["profile", "service of a profile"])
def test_everything_from_a_profile(
    place: str, bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".aws" / "credentials").write_text(
        f"[night]\naws_access_key_id={seaweed.key.access_key}\naws_secret_access_key={seaweed.key.secret_key}\n"
    )
    if place == "profile":
        config = f"[profile night]\nregion=eu-central-7\nendpoint_url={seaweed.url}\n"
    else:
        config = f"[profile night]\nservices=ours\n[services ours]\ns3=\n  endpoint_url={seaweed.url}\n"
    (home / ".aws" / "config").write_text(config)
    use({"AWS_PROFILE": "night"})
    assert works(bucket)


def test_a_credentials_file_in_another_place(
    bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "keys"
    elsewhere.write_text(
        f"[default]\naws_access_key_id={seaweed.key.access_key}\naws_secret_access_key={seaweed.key.secret_key}\n"
    )
    use({"AWS_SHARED_CREDENTIALS_FILE": str(elsewhere), "AWS_ENDPOINT_URL": seaweed.url})
    assert works(bucket)


def test_a_wrong_secret(bucket: str, seaweed: SeaweedFS, use: UseS3) -> None:
    use(seaweed.environment | {"AWS_SECRET_ACCESS_KEY": "x" * 40})
    error = told(bucket)
    assert "the secret does not belong to the access key" in error.what
    assert "AWS_SECRET_ACCESS_KEY" in error.remedy
    assert seaweed.url in str(error.value)


def test_an_unknown_key(bucket: str, seaweed: SeaweedFS, use: UseS3) -> None:
    use(seaweed.environment | {"AWS_ACCESS_KEY_ID": "nobody-knows-me"})
    assert "does not know the access key" in told(bucket).what


def test_no_credentials(bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path) -> None:
    use({"AWS_ENDPOINT_URL": seaweed.url})
    error = told(bucket)
    assert "no usable credentials" in error.what
    assert "~/.aws/credentials" in error.remedy


def test_a_profile_that_is_not_there(bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path) -> None:
    use({"AWS_ENDPOINT_URL": seaweed.url, "AWS_PROFILE": "nightly"})
    error = told(bucket)
    assert "profile nightly is in no file" in error.what
    assert "AWS_PROFILE" in error.remedy


@pytest.mark.parametrize("missing", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_half_of_the_keys_in_the_environment(
    missing: str, bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path
) -> None:
    use({name: value for name, value in seaweed.environment.items() if name != missing})
    error = str(told(bucket))
    assert missing in error
    assert not [value for value in keys(seaweed).values() if value in error]


def test_half_of_the_keys_in_a_profile(bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path) -> None:
    (home / ".aws" / "credentials").write_text(f"[default]\naws_access_key_id={seaweed.key.access_key}\n")
    use({"AWS_ENDPOINT_URL": seaweed.url})
    error = told(bucket)
    assert "half of the credentials is missing: aws_secret_access_key" in error.what
    assert seaweed.key.access_key not in str(error)


@pytest.mark.parametrize("name", ["config", "credentials"])
@pytest.mark.parametrize("content", [b"secret words\n", b"[default]\ns3 =\n  secret words\n", b"\xff\xfesecret"])
def test_a_damaged_configuration_is_named(
    name: str, content: bytes, bucket: str, seaweed: SeaweedFS, use: UseS3, home: Path
) -> None:
    file = home / ".aws" / name
    file.write_bytes(content)
    use({"AWS_ENDPOINT_URL": seaweed.url})
    error = told(bucket)
    assert str(file) in error.remedy
    assert "secret" not in str(error)


def test_a_missing_bucket(bucket: str) -> None:
    error = told("s3://nobody-made-this")
    assert "no such bucket" in error.what
    assert "s3://nobody-made-this/data" in error.what
    assert "make the bucket" in error.remedy


@pytest.mark.usefixtures("impatient")
def test_an_endpoint_that_does_not_answer(bucket: str, seaweed: SeaweedFS, use: UseS3) -> None:
    use(seaweed.environment | {"AWS_ENDPOINT_URL": NOWHERE})
    error = told(bucket)
    assert "does not answer" in error.what
    assert NOWHERE in str(error.value)
    assert "AWS_ENDPOINT_URL" in error.remedy


@pytest.mark.usefixtures("impatient")
def test_an_endpoint_that_accepts_and_never_answers(
    bucket: str, seaweed: SeaweedFS, use: UseS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_objects, "FIRST_READ_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        use(seaweed.environment | {"AWS_ENDPOINT_URL": endpoint})
        error = told(bucket)
    assert "does not answer" in error.what
    # Not ReadTimeoutError, which comes after READ_S.
    assert error.value == f"FSTimeoutError; endpoint {endpoint}"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("endpoint", ["http://user:hunter2@{}", "user:hunter2@{}", "http://{}/?token=hunter2"])
def test_an_endpoint_with_a_secret_in_it(endpoint: str, bucket: str, seaweed: SeaweedFS, use: UseS3) -> None:
    for host in (NOWHERE.removeprefix("http://"), seaweed.url.removeprefix("http://")):
        use(seaweed.environment | {"AWS_ENDPOINT_URL": endpoint.format(host)})
        error = told(bucket)
        assert host in str(error.value)
        assert "hunter2" not in str(error) + repr(error) + str(error.__cause__)


@pytest.mark.usefixtures("impatient")
def test_an_endpoint_that_speaks_no_tls(bucket: str, seaweed: SeaweedFS, use: UseS3) -> None:
    use(seaweed.environment | {"AWS_ENDPOINT_URL": seaweed.url.replace("http:", "https:")})
    assert "does not answer" in told(bucket).what


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9", "localhost"])
def test_an_endpoint_that_is_no_url(endpoint: str, bucket: str, seaweed: SeaweedFS, use: UseS3) -> None:
    use(seaweed.environment | {"AWS_ENDPOINT_URL": endpoint})
    error = told(bucket)
    assert endpoint in str(error.value)
    assert "http://" in error.expected


@pytest.mark.parametrize(
    ("method", "verb", "check"), [("GET", "read", Storage.check), ("PUT", "write", Storage.check_writing)]
)
def test_no_right_to_do_so(
    method: str, verb: str, check: Callable[[Storage], None], bucket: str, seaweed: SeaweedFS, use: UseS3
) -> None:
    with S3Proxy(seaweed) as proxy:
        use(proxy.environment)
        proxy.add(Trouble.DENIED, method=method)
        with pytest.raises(DatasetError) as caught:
            check(open_storage(bucket))
    assert caught.value.what == f"cannot {verb} {bucket}: no right to do so"
    assert "403 AccessDenied" in str(caught.value.value)


def test_a_bucket_removed_meanwhile_is_no_empty_dataset(bucket: str) -> None:
    storage = open_storage("s3://nobody-made-this")
    for ask in (storage.read, storage.size, storage.exists, storage.read_table, storage.list, storage.remove):
        with pytest.raises(DatasetError, match="no such bucket"):
            ask("a")
    with pytest.raises(DatasetError, match="no such bucket"):
        storage.create("a", b"")


@pytest.mark.usefixtures("impatient")
def test_keys_are_in_no_message_and_no_log(
    bucket: str, seaweed: SeaweedFS, use: UseS3, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, logger="draftmill")
    secrets = ["a-secret-not-to-be-seen", "an-id-not-to-be-seen", seaweed.key.secret_key, seaweed.key.access_key]
    wrong = {"AWS_SECRET_ACCESS_KEY": secrets[0]}
    changes: list[dict[str, str]] = [
        wrong,
        wrong | {"AWS_ACCESS_KEY_ID": secrets[1]},
        {"AWS_SESSION_TOKEN": secrets[0]},
        {"AWS_ENDPOINT_URL": NOWHERE},
        {"AWS_ENDPOINT_URL": "nowhere"},
    ]
    for change in changes:
        use(seaweed.environment | change)
        error = told(bucket)
        logging.getLogger("draftmill.test").error("it ended", exc_info=error)
        assert error.__cause__ is not None
        texts = (str(error), repr(error), str(error.__cause__), caplog.text)
        assert not [secret for secret in secrets for text in texts if secret in text]
    assert works_with(seaweed, use, bucket, secrets, caplog)


def works_with(
    seaweed: SeaweedFS, use: UseS3, bucket: str, secrets: list[str], caplog: pytest.LogCaptureFixture
) -> bool:
    """Nor where all goes well."""
    use(seaweed.environment)
    return works(bucket) and not any(secret in caplog.text for secret in secrets)
