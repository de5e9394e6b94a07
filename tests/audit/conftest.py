"""Scores made from whole distributions, of which a server would return the head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from draftmill.records import Scores


def scores_of(logprobs_SV: np.ndarray, chosen_S: Sequence[int], num_top: int = 20) -> Scores:
    """What a server returns of full distributions: the likeliest `num_top` and the chosen id's own."""
    order = np.argsort(-logprobs_SV, axis=1, kind="stable")[:, :num_top]
    rows = np.arange(len(logprobs_SV))
    return Scores(
        logprobs_SV[rows, np.asarray(chosen_S)],
        order.astype(np.int32),
        np.take_along_axis(logprobs_SV, order, axis=1),
    )


@pytest.fixture(scope="session")
def head_of() -> Callable[..., Scores]:
    return scores_of
