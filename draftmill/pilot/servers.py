"""What the servers say of themselves that a pilot can use: places, memory, GPUs. Whatever they do not say is None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Servers:
    """`number` of them; `in_flight`: requests that each is sent at once. Of one server, the least that any says:
    `running`: requests it runs at once (`max_running_requests`), `cache_ids`: ids its KV cache holds
    (`max_total_num_tokens`). `gpus`: of all together (`tp_size` x `dp_size`)."""

    number: int
    in_flight: int
    running: int | None
    cache_ids: int | None
    gpus: int | None

    @property
    def places(self) -> int:
        """Requests that run at once, on all."""
        return self.number * min(self.in_flight, self.running or self.in_flight)

    def cache_places(self, prompt_n: npt.NDArray[np.float64], tokens_n: npt.NDArray[np.float64]) -> int | None:
        """Requests of such lengths that the cache of one server holds at once, on average.

        A request holds its prompt and what it has generated so far, and is met as often as it is long.
        """
        if self.cache_ids is None or not tokens_n.sum():
            return None
        held = float(((prompt_n + tokens_n / 2) * tokens_n).sum() / tokens_n.sum())
        return max(1, int(self.cache_ids / max(1.0, held)))


def servers_of(reports: Sequence[Mapping[str, Any]], in_flight: int) -> Servers:
    """Out of the gate's reports, as JSON."""
    facts = [report["facts"] for report in reports]
    gpus = [_number(each, "tp_size") for each in facts]
    ranks = [_number(each, "dp_size") or 1 for each in facts]
    return Servers(
        number=max(1, len(facts)),
        in_flight=in_flight,
        running=_least(facts, "max_running_requests"),
        cache_ids=_least(facts, "max_total_num_tokens"),
        gpus=sum(g * r for g, r in zip(gpus, ranks, strict=True) if g) if facts and all(gpus) else None,
    )


def _least(facts: Sequence[Mapping[str, Any]], name: str) -> int | None:
    return min((number for each in facts if (number := _number(each, name))), default=None)


def _number(facts: Mapping[str, Any], name: str) -> int | None:
    value = facts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
