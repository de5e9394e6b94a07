"""What a storage is made of: objects, who made them, what keeps them from being read or written.

`Objects` is the door between `Storage` and the places it knows: a folder
(local_objects.py) and an S3 prefix (s3_objects.py). A place sends each request
once; whether one is worth sending again is a property of the fault, and
`patience.py` does the waiting.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import BinaryIO, Protocol

from pydantic import BaseModel, ConfigDict

FRESH = timedelta(hours=6)
"""How old an object may be that a run takes up as it is: an older one gets today's time first. The rest of `gc`'s grace
time is the run's to seal in."""


class Outcome(Enum):
    """Who made the object of that name."""

    CREATED = "created"
    EXISTS = "exists"


class ObjectRef(BaseModel):
    """A stored object: where it lies in the dataset, and what it must be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    bytes: int
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a listing. `path`: in the dataset; `modified`: UTC, by the storage's own clock."""

    path: str
    bytes: int
    modified: datetime

    def is_fresh(self, now: datetime) -> bool:
        """Whether `gc` leaves it alone for long enough (FRESH). `now`: UTC."""
        return now - self.modified < FRESH


class StorageFault(Exception):
    """A request that a place refused or did not answer; `Storage` makes a DatasetError of it.

    `transient`: the same request may succeed later. `silent`: nobody answered at all. `unsupported`: the server does
    not know this kind of request.
    """

    def __init__(
        self,
        what: str,
        *,
        value: str,
        expected: str,
        remedy: str,
        transient: bool = False,
        silent: bool = False,
        unsupported: bool = False,
    ) -> None:
        super().__init__(f"{what}: {value}")
        self.what = what
        self.value = value
        self.expected = expected
        self.remedy = remedy
        self.transient = transient
        self.silent = silent
        self.unsupported = unsupported


class Objects(Protocol):
    """A place. Paths are of the dataset. All raise StorageFault; FileNotFoundError for an object that is not there.

    `conditional`: whether `create` relies on the place to let one writer win; where it does not, `create` looks and
    then puts, and whoever calls it holds a lock.
    """

    conditional: bool

    def check(self) -> None:
        """Whether it can be read at all. One request; changes nothing."""

    def create(self, path: str, data: bytes) -> Outcome: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def read(self, path: str) -> bytes: ...
    def entry(self, path: str) -> Entry: ...
    def entries(self, folder: str) -> list[Entry]:
        """Every object under a folder ("" = all), hidden ones too, in any order; [] when there is none."""

    def remove(self, path: str) -> None:
        """Raises FileNotFoundError or nothing where there is none."""

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """To read some of it. Only the bytes asked for are fetched; faults of reading come out of the block."""
