"""Each thing that goes wrong with S3, its cause and whether waiting mends it; and no secret in what is said of it."""

from __future__ import annotations

import errno
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from fsspec.exceptions import FSTimeoutError
from s3fs.errors import translate_boto_error

from draftmill.dataset.s3_faults import (
    _EXPECTED,
    _REMEDY,
    _WHAT,
    TRANSIENT,
    Cause,
    Client,
    Credentials,
    cause_of,
    fault,
    is_fault,
    is_taken,
)

ACCESS_KEY, SECRET, TOKEN = "AKIDEXAMPLE0", "wJalrXUtnFEMI", "session-token-1"
SECRETS = [ACCESS_KEY, SECRET, TOKEN]
CLIENT = Client("http://s3.test", lambda: Credentials("profile night, shared-credentials-file", SECRETS))


def refused(status: int, code: str = "", words: str = "no") -> ClientError:
    answer: Any = {
        "Error": {"Code": code or str(status), "Message": words},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "PutObject")


def untrusted(url: str = "https://s3.test") -> Exception:
    error = ssl.SSLCertVerificationError()
    key: Any = SimpleNamespace(ssl=True, host="s3.test", port=443, is_ssl=True)
    return boto.SSLError(endpoint_url=url, error=aiohttp.ClientConnectorCertificateError(key, error))


CASES = [
    (refused(403, "SignatureDoesNotMatch"), Cause.WRONG_SECRET),
    (refused(403, "InvalidAccessKeyId"), Cause.UNKNOWN_KEY),
    (refused(400, "ExpiredToken"), Cause.EXPIRED),
    (refused(400, "InvalidToken"), Cause.EXPIRED),
    (refused(403, "RequestTimeTooSkewed"), Cause.CLOCK),
    (refused(403, "AccessDenied"), Cause.DENIED),
    (refused(403), Cause.DENIED),
    (refused(404, "NoSuchBucket"), Cause.NO_BUCKET),
    (refused(301, "PermanentRedirect"), Cause.REGION),
    (refused(301), Cause.REGION),
    (refused(400, "AuthorizationHeaderMalformed"), Cause.REGION),
    (refused(501, "NotImplemented"), Cause.UNSUPPORTED),
    (refused(503, "SlowDown"), Cause.BUSY),
    (refused(503), Cause.BUSY),
    (refused(500, "InternalError"), Cause.BUSY),
    (refused(502), Cause.BUSY),
    (refused(504, "Whatever"), Cause.BUSY),
    (refused(429, "TooManyRequests"), Cause.BUSY),
    (refused(409, "ConditionalRequestConflict"), Cause.BUSY),
    (refused(400, "RequestTimeout"), Cause.BUSY),
    (refused(400, "SomethingNew"), Cause.OTHER),
    (refused(400, "SomethingNew", "please SlowDown"), Cause.OTHER),
    (boto.NoCredentialsError(), Cause.NO_CREDENTIALS),
    (boto.CredentialRetrievalError(provider="process", error_msg="1"), Cause.NO_CREDENTIALS),
    (boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), Cause.HALF_CREDENTIALS),
    (boto.ProfileNotFound(profile="night"), Cause.NO_PROFILE),
    (boto.ConfigParseError(path="/home/me/.aws/config"), Cause.CONFIGURATION),
    (boto.SSOTokenLoadError(error_msg="gone"), Cause.EXPIRED),
    (boto.UnauthorizedSSOTokenError(), Cause.EXPIRED),
    (boto.NoRegionError(), Cause.REGION),
    (boto.EndpointConnectionError(endpoint_url="http://s3.test"), Cause.UNREACHABLE),
    (boto.ConnectTimeoutError(endpoint_url="http://s3.test"), Cause.UNREACHABLE),
    (boto.ReadTimeoutError(endpoint_url="http://s3.test"), Cause.UNREACHABLE),
    (boto.ConnectionClosedError(endpoint_url="http://s3.test"), Cause.UNREACHABLE),
    (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), Cause.UNREACHABLE),
    (boto.SSLError(endpoint_url="https://s3.test", error=ssl.SSLError()), Cause.UNREACHABLE),
    (untrusted(), Cause.CERTIFICATE),
    (aiohttp.ClientPayloadError(), Cause.UNREACHABLE),
    (ConnectionResetError(errno.ECONNRESET, "reset"), Cause.UNREACHABLE),
    (TimeoutError(), Cause.UNREACHABLE),
    (FSTimeoutError(), Cause.UNREACHABLE),
    (ResponseParserError("<html>"), Cause.UNREACHABLE),
    (boto.ParamValidationError(report="bucket"), Cause.SETTINGS),
    (OSError("Couldn't deserialize thrift"), Cause.OTHER),
]


@pytest.mark.parametrize(("error", "cause"), CASES, ids=lambda value: str(value)[:40])
def test_causes(error: Exception, cause: Cause) -> None:
    assert is_fault(error)
    assert cause_of(error) is cause
    assert fault(error, CLIENT).transient is (cause in TRANSIENT)


@pytest.mark.parametrize(("error", "cause"), CASES, ids=lambda value: str(value)[:40])
def test_the_same_through_s3fs(error: Exception, cause: Cause) -> None:
    translated = translate_boto_error(error)
    assert is_fault(translated)
    assert cause_of(translated) is cause


def test_an_object_that_is_not_there_is_no_fault_but_a_bucket_is() -> None:
    assert not is_fault(FileNotFoundError("a"))
    assert not is_fault(translate_boto_error(refused(404, "NoSuchKey")))
    assert is_fault(translate_boto_error(refused(404, "NoSuchBucket")))


def test_what_is_not_the_storages_is_no_fault() -> None:
    assert not is_fault(ZeroDivisionError())
    assert not is_fault(ValueError())


def test_a_name_that_is_taken() -> None:
    assert is_taken(translate_boto_error(refused(412, "PreconditionFailed")))
    assert is_taken(refused(412))
    assert not is_taken(refused(409, "ConditionalRequestConflict"))
    assert not is_taken(FileExistsError())


def test_each_cause_has_words_of_its_own() -> None:
    assert set(_WHAT) == set(_EXPECTED) == set(_REMEDY) == set(Cause)
    assert len(set(_WHAT.values())) == len(Cause)


@pytest.mark.parametrize("status", [400, 403, 500])
@pytest.mark.parametrize("code", ["SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "Odd", "AccessDenied"])
def test_servers_that_quote_secrets_are_not_quoted(status: int, code: str) -> None:
    told = fault(refused(status, code, f"you sent {ACCESS_KEY} {SECRET} {TOKEN}"), CLIENT)
    texts = (str(told), told.what, told.value, told.expected, told.remedy)
    assert not [text for text in texts for secret in SECRETS if secret in text]


def test_it_says_where_to_and_with_whose_credentials() -> None:
    value = fault(refused(403, "AccessDenied", "not you"), CLIENT).value
    assert value == (
        "403 AccessDenied: An error occurred (AccessDenied) when calling the PutObject operation: not you; "
        "endpoint http://s3.test, credentials from profile night, shared-credentials-file"
    )


def test_an_outage_is_named_by_its_endpoint_without_a_look_at_credentials() -> None:
    def look() -> Credentials:
        raise AssertionError

    assert (
        fault(refused(503, "SlowDown"), Client("http://s3.test", look)).value == "503 SlowDown; endpoint http://s3.test"
    )


def test_it_names_the_profile_the_missing_half_and_the_file() -> None:
    profile, half, file = (
        fault(error, CLIENT)
        for error in (
            boto.ProfileNotFound(profile="nightly"),
            boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
            boto.ConfigParseError(path="/home/me/{x}/config"),
        )
    )
    assert profile.what == "profile nightly is in no file"
    assert "[profile nightly]" in profile.remedy
    assert half.what == "half of the credentials is missing: AWS_SECRET_ACCESS_KEY"
    assert half.remedy.startswith("set AWS_SECRET_ACCESS_KEY")
    assert file.remedy == "correct or remove /home/me/{x}/config"


ENDPOINTS = {
    "http://user:hunter2@s3.test:9000": "http://s3.test:9000",
    "https://user:hun/ter2@s3.test/base": "https://s3.test/base",
    "https://hunter2@s3.test": "https://s3.test",
    "user:hunter2@s3.test": "s3.test",
    "https://s3.test/?token=hunter2": "https://s3.test/",
    "http://user:hunter2@s3.test?token=hunter2": "http://s3.test",
    "http://[::1]:9000": "http://[::1]:9000",
    "nowhere": "nowhere",
}


@pytest.mark.parametrize(("url", "shown"), ENDPOINTS.items())
@pytest.mark.parametrize("error", [error for error, _ in CASES], ids=lambda value: type(value).__name__)
def test_an_endpoint_is_said_without_its_secrets(url: str, shown: str, error: Exception) -> None:
    told = fault(error, Client(url, lambda: Credentials("the environment")))
    assert f"endpoint {shown}" in told.value
    for text in (str(told), told.what, told.value, told.remedy):
        assert "hunter2" not in text
        assert "hun/ter2" not in text


@pytest.mark.parametrize("url", ENDPOINTS)
def test_nor_where_the_client_quotes_it(url: str) -> None:
    for quoted in (url, url.replace("?", "/bucket?"), url.partition("?")[2] or url):
        told = fault(untrusted(quoted), Client(url, lambda: Credentials("the environment")))
        assert "hunter2" not in told.value
        assert "hun/ter2" not in told.value
