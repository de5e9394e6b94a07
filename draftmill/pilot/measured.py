"""What came of a pilot's rows, read from the objects that were sealed: keys, spans and reasons, no ids.

Good rows and those in quarantine alike: both took the server's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from draftmill.dataset.manifest import ObjectRef
from draftmill.dataset.scan import tables
from draftmill.dataset.schema import QUARANTINE
from draftmill.dataset.statistics import Numbers, statistics
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import measured_rows
from draftmill.pilot.split import Frame

_READ = pa.schema([QUARANTINE.field(name) for name in ("row_key", "spans")])


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the units all of whose rows came back (`unit_n`: which): `tokens_n` generated, `prompt_n` ids beside those.

    `reasons`: rows in quarantine; `good`: the others; `good_ids`, `ids`: in input_ids of good rows, of all; `bytes`: of
    the objects they lie in; `cut`, `answers`: generated spans that were cut by length, and all; `longest`: tokens of
    the longest; `lengths`: by variant, as a manifest's statistics have them, "" for all together.
    """

    unit_n: npt.NDArray[np.int64]
    tokens_n: npt.NDArray[np.float64]
    prompt_n: npt.NDArray[np.float64]
    good: int
    reasons: dict[str, int]
    good_ids: int
    ids: int
    bytes: int
    answers: int
    cut: int
    longest: int
    lengths: dict[str, Numbers]

    @property
    def rows(self) -> int:
        return self.good + sum(self.reasons.values())


def measured(
    storage: Storage,
    frame: Frame,
    *,
    good: Sequence[ObjectRef],
    bad: Sequence[ObjectRef],
    structures: Mapping[str, Mapping[str, Any]],
    recipe: Mapping[str, Any],
) -> Measured:
    """What came. `good`, `bad`: objects of SHARD and QUARANTINE columns; the rest as `statistics` takes it."""
    rows = measured_rows(storage, good, bad)
    numbers = statistics(rows, manifest=1, structures=structures, recipe=recipe)
    reasons = Counter(rows["reason"].drop_null().to_pylist())
    seen = _seen(storage, [*good, *bad])
    ids = {key: spans[-1]["end"] for key, spans in seen.items()}
    tokens = {key: sum(span["end"] - span["start"] for span in spans) for key, spans in seen.items()}
    spans = [span for each in seen.values() for span in each]
    of_units = Counter(frame.unit_of.values())
    came = Counter(frame.unit_of[key] for key in seen if key in frame.unit_of)
    units = sorted(unit for unit, number in of_units.items() if came[unit] == number)
    place = {unit: number for number, unit in enumerate(units)}
    tokens_n, prompt_n = np.zeros(len(units)), np.zeros(len(units))
    for key, unit in frame.unit_of.items():
        if unit in place:
            tokens_n[place[unit]] += tokens[key]
            prompt_n[place[unit]] += ids[key] - tokens[key]
    good_keys = _seen(storage, good)
    return Measured(
        unit_n=np.array(units, np.int64),
        tokens_n=tokens_n,
        prompt_n=prompt_n,
        good=rows.num_rows - sum(reasons.values()),
        reasons=dict(sorted(reasons.items())),
        good_ids=sum(ids[key] for key in good_keys),
        ids=sum(ids.values()),
        bytes=sum(ref.bytes for ref in (*good, *bad)),
        answers=len(spans),
        cut=sum(span["finish_reason"] == "length" for span in spans),
        longest=max((span["end"] - span["start"] for span in spans), default=0),
        lengths={"": numbers.total} | (numbers.variants if len(numbers.variants) > 1 else {}),
    )


def _seen(storage: Storage, refs: Sequence[ObjectRef]) -> dict[str, list[dict[str, Any]]]:
    """The spans of each row by its key."""
    found: dict[str, list[dict[str, Any]]] = {}
    for table in tables(storage, [ref.path for ref in refs], _READ):
        found |= zip(table["row_key"].to_pylist(), table["spans"].to_pylist(), strict=True)
    return found
