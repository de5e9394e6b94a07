"""What an S3 request met: the cause, whether waiting mends it, and what to do about it.

Decided by the server's error code, then by the type of the client's error, then
by the HTTP status; never by words. Transient is what a restarted, overloaded or
unreachable server shows: connections refused or lost, timeouts, 5xx, 429, 409 of
a put under way. Everything else is for a person, and raised at once.

Promises: no key, secret or token in any text. Servers quote what they refuse, so
their words are left out where credentials are the matter and scrubbed elsewhere.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import aiohttp
from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from draftmill.dataset.objects import StorageFault
from draftmill.redaction import redacted


class Cause(Enum):
    """What is the matter, named by who can mend it."""

    BUSY = "busy"
    UNREACHABLE = "unreachable"
    WRONG_SECRET = "wrong secret"  # noqa: S105
    UNKNOWN_KEY = "unknown key"
    NO_CREDENTIALS = "no credentials"
    HALF_CREDENTIALS = "half credentials"
    NO_PROFILE = "no profile"
    CONFIGURATION = "configuration"
    EXPIRED = "expired"
    CLOCK = "clock"
    DENIED = "denied"
    NO_BUCKET = "no bucket"
    REGION = "region"
    CERTIFICATE = "certificate"
    SETTINGS = "settings"
    UNSUPPORTED = "unsupported"
    OTHER = "other"


TRANSIENT = frozenset({Cause.BUSY, Cause.UNREACHABLE})

_UNQUOTED = frozenset({Cause.WRONG_SECRET, Cause.UNKNOWN_KEY, Cause.NO_CREDENTIALS, Cause.EXPIRED})
"""Where the words of the server or the client may hold a key."""

_BY_CODE = {
    "SignatureDoesNotMatch": Cause.WRONG_SECRET,
    "InvalidAccessKeyId": Cause.UNKNOWN_KEY,
    "InvalidClientTokenId": Cause.UNKNOWN_KEY,
    "ExpiredToken": Cause.EXPIRED,
    "ExpiredTokenException": Cause.EXPIRED,
    "TokenRefreshRequired": Cause.EXPIRED,
    "InvalidToken": Cause.EXPIRED,
    "RequestExpired": Cause.CLOCK,
    "RequestTimeTooSkewed": Cause.CLOCK,
    "NoSuchBucket": Cause.NO_BUCKET,
    "InvalidBucketName": Cause.NO_BUCKET,
    "PermanentRedirect": Cause.REGION,
    "AuthorizationHeaderMalformed": Cause.REGION,
    "IllegalLocationConstraintException": Cause.REGION,
    "AccessDenied": Cause.DENIED,
    "NotImplemented": Cause.UNSUPPORTED,
    "RequestTimeout": Cause.BUSY,
    "SlowDown": Cause.BUSY,
    "ServiceUnavailable": Cause.BUSY,
    "InternalError": Cause.BUSY,
    "Throttling": Cause.BUSY,
    "ThrottlingException": Cause.BUSY,
    "RequestLimitExceeded": Cause.BUSY,
    "OperationAborted": Cause.BUSY,
    "ConditionalRequestConflict": Cause.BUSY,
    # The body arrived otherwise than it was sent.
    "BadDigest": Cause.BUSY,
    "IncompleteBody": Cause.BUSY,
    "XAmzContentSHA256Mismatch": Cause.BUSY,
}

_BY_STATUS = {
    301: Cause.REGION,
    403: Cause.DENIED,
    408: Cause.BUSY,
    409: Cause.BUSY,
    429: Cause.BUSY,
    501: Cause.UNSUPPORTED,
}

_BY_TYPE: tuple[tuple[tuple[type[Exception], ...], Cause], ...] = (
    ((boto.ProfileNotFound,), Cause.NO_PROFILE),
    ((boto.PartialCredentialsError,), Cause.HALF_CREDENTIALS),
    ((boto.ConfigParseError,), Cause.CONFIGURATION),
    ((boto.NoCredentialsError, boto.CredentialRetrievalError, boto.NoAuthTokenError), Cause.NO_CREDENTIALS),
    ((boto.SSOError, boto.TokenRetrievalError), Cause.EXPIRED),
    ((boto.NoRegionError, boto.UnknownRegionError, boto.InvalidRegionError), Cause.REGION),
    ((boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError), Cause.UNREACHABLE),
    # What the connection met on the way, and an answer that is no XML: a proxy's, while the server is away.
    ((boto.HTTPClientError, boto.SSLError, boto.ConnectionError, ResponseParserError), Cause.UNREACHABLE),
    ((boto.IncompleteReadError, boto.ResponseStreamingError), Cause.UNREACHABLE),
    ((aiohttp.ClientError, ConnectionError, TimeoutError), Cause.UNREACHABLE),
    # A bucket's name that none can have, settings that contradict each other.
    ((boto.BotoCoreError,), Cause.SETTINGS),
)

# In braces what `_details` knows of the error.
_WHAT = {
    Cause.BUSY: "the object storage cannot serve requests now",
    Cause.UNREACHABLE: "the object storage does not answer",
    Cause.WRONG_SECRET: "the secret does not belong to the access key",
    Cause.UNKNOWN_KEY: "the storage does not know the access key",
    Cause.NO_CREDENTIALS: "no usable credentials were found",
    Cause.HALF_CREDENTIALS: "half of the credentials is missing: {cred_var}",
    Cause.NO_PROFILE: "profile {profile} is in no file",
    Cause.CONFIGURATION: "{path} is no configuration of AWS clients",
    Cause.EXPIRED: "the session's token has expired or is not valid",
    Cause.CLOCK: "this machine's clock and the storage's are too far apart",
    Cause.DENIED: "no right to do so",
    Cause.NO_BUCKET: "there is no such bucket",
    Cause.REGION: "the bucket is in another region",
    Cause.CERTIFICATE: "the storage's certificate is not trusted",
    Cause.SETTINGS: "the request cannot even be made",
    Cause.UNSUPPORTED: "the storage does not know this kind of request",
    Cause.OTHER: "the storage refuses it",
}

_EXPECTED = {
    Cause.BUSY: "an answer",
    Cause.UNREACHABLE: "an S3 server at the endpoint",
    Cause.WRONG_SECRET: "the secret of that access key, and the storage's own endpoint",
    Cause.UNKNOWN_KEY: "an access key of this storage",
    Cause.NO_CREDENTIALS: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or the machine's role",
    Cause.HALF_CREDENTIALS: "an access key and its secret, from the same place",
    Cause.NO_PROFILE: "a profile of ~/.aws/config or ~/.aws/credentials, or of the files that AWS_CONFIG_FILE and "
    "AWS_SHARED_CREDENTIALS_FILE name",
    Cause.CONFIGURATION: "sections in brackets, and lines `key = value`",
    Cause.EXPIRED: "a valid session token",
    Cause.CLOCK: "clocks within 15 minutes",
    Cause.DENIED: "the rights to list the bucket, and to get, put and delete objects under the prefix",
    Cause.NO_BUCKET: "a bucket that exists; draftmill makes none",
    Cause.REGION: "the bucket's own region and endpoint",
    Cause.CERTIFICATE: "a certificate of a known authority",
    Cause.SETTINGS: "a bucket's name, an endpoint (http:// or https://) and settings that S3 clients take",
    Cause.UNSUPPORTED: "an S3 server with conditional puts",
    Cause.OTHER: "a storage that takes it",
}

_REMEDY = {
    Cause.BUSY: "run again when it does: what was finished is kept",
    Cause.UNREACHABLE: "start it, or correct AWS_ENDPOINT_URL (or the profile's endpoint_url), then run again: "
    "what was finished is kept",
    Cause.WRONG_SECRET: "correct AWS_SECRET_ACCESS_KEY or the profile's aws_secret_access_key",
    Cause.UNKNOWN_KEY: "correct AWS_ACCESS_KEY_ID or the profile's aws_access_key_id; is the endpoint the right one?",
    Cause.NO_CREDENTIALS: "set them in the environment or in ~/.aws/credentials; never in a recipe",
    Cause.HALF_CREDENTIALS: "set {cred_var}, or take its other half away",
    Cause.NO_PROFILE: "correct AWS_PROFILE, or add [profile {profile}] to ~/.aws/config",
    Cause.CONFIGURATION: "correct or remove {path}",
    Cause.EXPIRED: "get a new one (aws sso login, or your key service), then run again: what was finished is kept",
    Cause.CLOCK: "set this machine's clock",
    Cause.DENIED: "have the bucket's owner grant them, or use another profile; then run again: what was finished is "
    "kept",
    Cause.NO_BUCKET: "make the bucket, or correct its name or the endpoint; then run again: what was finished is kept",
    Cause.REGION: "set AWS_DEFAULT_REGION (or the profile's region) to the bucket's",
    Cause.CERTIFICATE: "set AWS_CA_BUNDLE to your authority's certificates",
    Cause.SETTINGS: "correct the dataset's URL, AWS_ENDPOINT_URL or the profile",
    Cause.UNSUPPORTED: "use another server, or commit: lock in the recipe (docs/storage.md)",
    Cause.OTHER: "see the storage's own log, then run again: what was finished is kept",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """What may be said of them: the `source`; and what may not: `secrets`."""

    source: str
    secrets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """Where requests go, and a look at the credentials: it takes a while, and only a person's faults need it.

    `url`: the endpoint as it is set, which may hold a password or a signature.
    """

    url: str
    credentials: Callable[[], Credentials]

    @property
    def endpoint(self) -> str:
        """For people: without user, password and query."""
        return _cut(self.url)[0]


def cause_of(error: BaseException) -> Cause:
    """What is the matter, of anything that s3fs, botocore or aiohttp raise."""
    answer = _answer(error)
    if answer is not None:
        code, status = answer
        return _BY_CODE.get(code) or _BY_STATUS.get(status) or (Cause.BUSY if status >= 500 else Cause.OTHER)
    if _untrusted(error):
        return Cause.CERTIFICATE
    for types, cause in _BY_TYPE:
        if isinstance(error, types):
            return cause
    return Cause.OTHER


def fault(error: BaseException, client: Client) -> StorageFault:
    """The error in four parts, but for what was asked for."""
    return _fault(error, cause_of(error), client)


def unusable(error: ValueError, client: Client) -> StorageFault:
    """What botocore says of settings it cannot make a client of."""
    return _fault(error, Cause.SETTINGS, client)


def _fault(error: BaseException, cause: Cause, client: Client) -> StorageFault:
    details = _details(error)
    return StorageFault(
        _WHAT[cause].format_map(details),
        value=_seen(error, cause, client),
        expected=_EXPECTED[cause],
        remedy=_REMEDY[cause].format_map(details),
        transient=cause in TRANSIENT,
        silent=cause is Cause.UNREACHABLE,
        unsupported=cause is Cause.UNSUPPORTED,
    )


def is_fault(error: BaseException) -> bool:
    """Whether an error is the storage's and not ours. An object that is not there is neither; a bucket is."""
    if isinstance(error, FileNotFoundError):
        return cause_of(error) is Cause.NO_BUCKET
    return isinstance(error, OSError | BotoCoreError | ClientError | ResponseParserError | aiohttp.ClientError)


def is_taken(error: BaseException) -> bool:
    """Whether a conditional put found an object of that name."""
    return (_answer(error) or ("", 0))[1] == 412


def _seen(error: BaseException, cause: Cause, client: Client) -> str:
    answer = _answer(error)
    if answer is None:
        seen = type(error).__name__
    else:
        code, status = answer
        seen = str(status) if code == str(status) else f"{status} {code}"
    if cause in TRANSIENT:
        return f"{seen}; endpoint {client.endpoint}"
    credentials = client.credentials()
    if cause not in _UNQUOTED:
        words = " ".join(str(error).split()).replace(client.url, client.endpoint)
        seen = f"{seen}: {_scrubbed(words, [*_cut(client.url)[1], *credentials.secrets])}"
    return f"{seen}; endpoint {client.endpoint}, credentials from {credentials.source}"


def _details(error: BaseException | None) -> dict[str, str]:
    """Names, never values, that botocore's error has: the profile, the missing half, the file."""
    while error is not None and not isinstance(error, BotoCoreError):
        error = error.__cause__
    known = getattr(error, "kwargs", {})
    return {name: str(known.get(name)) for name in ("profile", "cred_var", "path")}


def _cut(url: str) -> tuple[str, list[str]]:
    """An endpoint without what may be secret, and that. By hand: it may be no URL at all."""
    place, _, query = url.partition("?")
    scheme, separator, rest = place.rpartition("://")
    user, _, host = rest.rpartition("@")
    # The longest first: it may contain the others.
    return f"{scheme}{separator}{host}", [secret for secret in (user, *user.split(":"), query) if secret]


def _scrubbed(words: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        words = redacted(words, secret)
    return words


def _answer(error: BaseException | None) -> tuple[str, int] | None:
    """The server's error code ("404" where an answer has no body) and the HTTP status; None: there was no answer."""
    # s3fs translates botocore's errors and keeps them as causes.
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return code, status if isinstance(status, int) else 0
        error = error.__cause__
    return None


def _untrusted(error: BaseException | None) -> bool:
    while error is not None:
        inner = getattr(error, "kwargs", {}).get("error") if isinstance(error, BotoCoreError) else None
        found = (error, inner)
        if any(
            isinstance(each, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError) for each in found
        ):
            return True
        error = error.__cause__ or error.__context__
    return False
