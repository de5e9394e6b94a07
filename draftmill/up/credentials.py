"""The credentials of one home: generated once, kept in a file that only its owner may read.

They are passed to children in the environment or in files of mode 600, never on a
command line, and never printed: people are told the file's name. A file that others
can read, or that is not what was written, is refused and not repaired: whoever could
read it may have the password.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from draftmill.errors import DraftmillError
from draftmill.serving.process import private_file
from draftmill.serving.seaweed import S3Key, new_key

USER = "draftmill"
"""The user's name in Prefect's "user:password"."""

PASSWORD_BYTES = 20
"""160 random bits: nobody types it, people paste it."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """`password`: of Prefect's API; the others: the one key of the S3 server."""

    password: str
    access_key: str
    secret_key: str

    @property
    def auth(self) -> str:
        """PREFECT_API_AUTH_STRING, and what the UI asks for."""
        return f"{USER}:{self.password}"

    @property
    def key(self) -> S3Key:
        return S3Key(self.access_key, self.secret_key)


def load_or_create(path: Path) -> Credentials:
    """The credentials in the file, new ones where there is none.

    Raises DraftmillError for a file that others can read, or that holds something else.
    """
    if not os.path.lexists(path):
        key = new_key()
        _write(path, Credentials(secrets.token_hex(PASSWORD_BYTES), key.access_key, key.secret_key))
    return _read(path)


def _write(path: Path, credentials: Credentials) -> None:
    """The whole file or none: whoever is killed here leaves no half of one."""
    unfinished = path.with_suffix(".part")
    private_file(unfinished, json.dumps(asdict(credentials), indent=1) + "\n")
    unfinished.replace(path)


def _read(path: Path) -> Credentials:
    try:
        info = path.stat()
        mode = stat.S_IMODE(info.st_mode)
        if mode & 0o077 or info.st_uid != os.geteuid():
            raise DraftmillError(
                "others can read the credentials",
                value=f"{path}: mode {mode:o}, user {info.st_uid}",
                expected=f"mode 600, user {os.geteuid()}",
                remedy=f"remove it: the next `draftmill up` makes new ones; if nobody read it, chmod 600 {path}",
            )
        data = json.loads(path.read_text(encoding="utf-8"))
        credentials = Credentials(**data)
        if not all(isinstance(value, str) and value.isalnum() for value in asdict(credentials).values()):
            raise ValueError
    except (OSError, ValueError, TypeError) as error:
        # Its words could hold what the file holds.
        raise DraftmillError(
            "the credentials cannot be read",
            value=f"{path}: {type(error).__name__}",
            expected="the file that `draftmill up` wrote",
            remedy="remove it: the next `draftmill up` makes new ones, the data stay",
        ) from None
    return credentials
