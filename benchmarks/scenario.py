"""The scenarios: how many rows, how many in flight, and how the fake server answers them.

The fake is told what to answer by the prompt's ids and its seed, so every
contestant gets the same answers, of the same lengths, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "SmolLM2-135M-Instruct"
CONTEXT = 2048
_COMMON = ("--model", MODEL, "--context-length", str(CONTEXT), "--seed", "7", "--ordinary", "1000", "40000")
_IDS_256 = ("--lengths", "256", "256")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`slots`: requests the server works on at once. `answers`: the fake's flags for lengths and latency."""

    name: str
    says: str
    rows: int
    in_flight: int
    slots: int
    max_new_tokens: int
    answers: tuple[str, ...]

    @property
    def fake(self) -> tuple[str, ...]:
        """The fake server's command line."""
        return (*_COMMON, "--slots", str(self.slots), *self.answers)

    @property
    def at_once(self) -> int:
        """Rows that can be worked on at once: the lesser of what is sent and what the server has slots for."""
        return min(self.in_flight, self.slots)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="a",
            says="64 in flight, 0.5 s and 256 ids an answer, 2,000 rows",
            rows=2_000,
            in_flight=64,
            slots=2_048,
            max_new_tokens=512,
            answers=(*_IDS_256, "--first-s", "0.5"),
        ),
        Scenario(
            name="b",
            says="heavy tail: log-normal lengths (median 64, sigma 1, at most 1,900) at 5 ms an id, 64 slots,"
            " 96 in flight, 4,000 rows",
            rows=4_000,
            in_flight=96,
            slots=64,
            max_new_tokens=1_900,
            answers=("--tokens-lognormal", "64", "1", "--per-id-s", "0.005"),
        ),
        Scenario(
            name="c",
            says="1,024 in flight, 2 s and 256 ids an answer, 10,000 rows",
            rows=10_000,
            in_flight=1_024,
            slots=2_048,
            max_new_tokens=512,
            answers=(*_IDS_256, "--first-s", "2"),
        ),
    )
}
