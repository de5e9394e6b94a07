"""A manifest's report page, made of its rows and written beside them.

Made anew as often as one likes: everything it says is in the manifest and its
objects, the course of the run too. Its time and size have bounds, whatever the
dataset: every row is counted, but ids are read of at most READ_BYTES of objects.
Raises DatasetError where the dataset cannot be read; a run takes that for a
warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.dataset.manifest import Manifest, read_manifest
from draftmill.dataset.status import existing
from draftmill.dataset.storage import Storage, open_checked
from draftmill.errors import DraftmillError, RecipeError
from draftmill.exporting.counts import IdCounts
from draftmill.judging.structure import structures_from_json
from draftmill.recipe_file import parse_recipe
from draftmill.redaction import secretless
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.reporting.page.build import page_html
from draftmill.reporting.page.choice import Candidate, first_of, spread
from draftmill.reporting.page.collected import page_data
from draftmill.reporting.page.data import PageData, Unmeasured
from draftmill.reporting.page.measure import Measured, measure
from draftmill.reporting.page.reading import Request, ShownRow, read_rows
from draftmill.reporting.page.round_trip import round_trip
from draftmill.reporting.page.rows import RowJson, blocks_within, in_order, pieces_of, row_json
from draftmill.reporting.pieces import TokenPiece, TokenPieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FOLDER = "reports"

MAX_BYTES = 8_000_000
"""Of the whole file: a mail takes it, and a phone opens it."""

READ_BYTES, READ_BAD_BYTES = 512 << 20, 128 << 20
"""Of shards and of quarantine whose ids are read: some seconds, also over S3."""

IDS_SHOWN, BAD_IDS_SHOWN = 3_000_000, 1_000_000
"""Ids of all rows that may be shown, and of the quarantined ones before the good ones: more never fits."""

FIRST_BAD = 200
"""Quarantined rows of a reason that come before the good ones."""


@dataclass(frozen=True, slots=True)
class Page:
    """`rows`: how many are in it."""

    html: str
    rows: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that were read: quarantined ones to begin with, good ones, further quarantined ones."""

    first: list[ShownRow]
    good: list[ShownRow]
    rest: list[ShownRow]

    def __iter__(self) -> Iterator[ShownRow]:
        yield from (*self.first, *self.good, *self.rest)


@dataclass(frozen=True, slots=True)
class Made:
    """A page that was written to `place`, a path or URL. `rows`: how many of `total` are in it."""

    manifest: int
    place: str
    rows: int
    total: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest,
            "page": self.place,
            "rows": {"total": self.total, "embedded": self.rows},
            "bytes": self.bytes,
        }


def report_path(version: int) -> str:
    """Where version N's page lies."""
    return f"{FOLDER}/{version:08d}.html"


def report_dataset(url: str, version: int | None = None, *, out: Path | None = None) -> Made:
    """The page of a version of the dataset at `url`, by default of the newest: in the dataset, or at `out`.

    Raises RecipeError, DatasetError.
    """
    return write_report(open_checked(url), version, out=out)


def write_report(storage: Storage, version: int | None = None, *, out: Path | None = None) -> Made:
    """The same for an open storage."""
    manifest = existing(storage) if version is None else read_manifest(storage, version)
    page = make_page(storage, manifest)
    text, path = page.html.encode(), report_path(manifest.version)
    if out is None:
        storage.replace(path, text)
    else:
        _write(out, text)
    total = sum(ref.rows for ref in (*manifest.shards, *manifest.quarantine))
    return Made(manifest.version, str(out or f"{storage.url}/{path}"), page.rows, total, len(text))


def _write(out: Path, text: bytes) -> None:
    try:
        out.write_bytes(text)
    except OSError as error:
        raise RecipeError(
            "the page cannot be written",
            value=f"{out}: {error.strerror}",
            expected="a file in a folder that is there and may be written",
            remedy="correct --out",
        ) from None


def make_page(storage: Storage, manifest: Manifest, *, max_bytes: int = MAX_BYTES) -> Page:
    """The page of a manifest. Raises DatasetError, also for objects that are gone."""
    shards = spread(manifest.shards, READ_BYTES)
    quarantine = spread(manifest.quarantine, READ_BAD_BYTES)
    found = measure(storage, manifest, readable={ref.path for ref in (*shards, *quarantine)})
    first, good, rest = _wanted(found)
    counts = IdCounts()
    good_rows = read_rows(storage, shards, set(good), counts=counts)
    bad_rows = read_rows(storage, quarantine, {*first, *rest})
    rows = _Rows(list(in_order(bad_rows, first)), list(in_order(good_rows, good)), list(in_order(bad_rows, rest)))
    tokenizer = _tokenizer(manifest)
    trip = tokenizer if isinstance(tokenizer, Unmeasured) else round_trip(rows.good, tokenizer)
    data = page_data(storage, manifest, found, counts, trip)
    data = replace(data, rows={"how": _how(len(shards), len(manifest.shards))})
    structures = structures_from_json(manifest.structures)
    pieces = None if isinstance(tokenizer, Unmeasured) else TokenPieces(tokenizer).piece
    return _packed(data, (row_json(row, structures) for row in rows), pieces, max_bytes)


def _wanted(found: Measured) -> tuple[list[Request], list[Request], list[Request]]:
    """Which rows to read: as in _Rows."""
    of_reasons = [of_reason.rows() for _, of_reason in sorted(found.bad.items())]
    first = first_of([each for rows in of_reasons for each in rows[:FIRST_BAD]], BAD_IDS_SHOWN)
    left = IDS_SHOWN - sum(each.ids for each in first)
    good = first_of(found.good.rows(), left)
    left -= sum(each.ids for each in good)
    rest = first_of([each for rows in of_reasons for each in rows[FIRST_BAD:]], left)
    return _requests(first), _requests(good), _requests(rest)


def _requests(rows: Sequence[Candidate]) -> list[Request]:
    return [(each.key, each.attempt) for each in rows]


def _tokenizer(manifest: Manifest) -> PreTrainedTokenizerBase | Unmeasured:
    try:
        return load_tokenizer(parse_recipe(manifest.recipe, origin="the manifest").model)
    except DraftmillError as error:  # a dataset can be looked at without its tokenizer
        return Unmeasured(f"the tokenizer is not at hand: {error.headline}")


def _how(read: int, of: int) -> str:
    """In words."""
    chosen = "Quarantined rows of each reason first, then good rows in the order of their keys, which are hashes."
    if read == of:
        return chosen
    return f"{chosen} They, and the supervised ids that are counted, are from {read:,} of {of:,} shards, evenly spaced."


def _packed(data: PageData, rows: Iterator[RowJson], piece: Callable[[int], TokenPiece] | None, max_bytes: int) -> Page:
    """The page with as many rows as fit; what the estimate misses by is taken back block by block."""
    blocks = blocks_within(rows, max_bytes - len(_html(data, [], {}).encode()))
    while True:
        pieces = pieces_of(blocks, piece) if piece else {}
        html = _html(data, blocks, pieces)
        if len(html.encode()) <= max_bytes or not blocks:
            return Page(html, sum(map(len, blocks)))
        blocks.pop()


def _html(data: PageData, blocks: list[list[RowJson]], pieces: Mapping[int, TokenPiece]) -> str:
    embedded = [row for block in blocks for row in block]
    first: dict[str, str] = {}
    for row in embedded:
        if row["reason"]:
            first.setdefault(row["reason"], row["key"])
    told = replace(
        data,
        reasons=[replace(line, example=first.get(line.reason)) for line in data.reasons],
        rows={**data.rows, "total": data.good_rows + data.quarantined_rows, "embedded": len(embedded)},
    )
    return page_html(secretless(told.to_json()), blocks, pieces)
