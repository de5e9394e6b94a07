"""Rejected rows as an Arrow table: file, line, reason, words, and whose stored rows are not gone for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from draftmill.dataset.schema import REJECTED
from draftmill.records import Rejection


def rejections_table(rejections: Sequence[Rejection]) -> pa.Table:
    """Rejections as a REJECTED table, in the order given."""
    return pa.Table.from_pylist([asdict(rejection) for rejection in rejections], schema=REJECTED)
