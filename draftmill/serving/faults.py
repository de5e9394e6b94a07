"""How the fake server misbehaves: one name a fault, and the rules that say when.

Each fault is something that was seen, or must be survived: proxies, resets,
broken bodies, and the silent ones, in which a 200 carries ids that are not what
the model produced. The silent ones keep `completion_tokens` equal to the number
of ids, unless the count is the fault: a client must find the fault itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from draftmill.serving.answers import aborted, aborted_in_queue, ran_out, stopped
from draftmill.serving.fake_answers import Markers, prompt_number
from draftmill.serving.protocol import GenerateRequest

NAN = "NaN happened"
"""What SGLang 0.5.23 reports as matched when the logits were broken."""

NO_VOCABULARY = 10_000_000
"""An id beyond any model's vocabulary, for a fake that does not know its own."""


class Fault(StrEnum):
    """What goes wrong with one request."""

    # instead of an answer
    ERROR_500 = "error_500"
    BAD_GATEWAY = "bad_gateway"
    UNAVAILABLE = "unavailable"
    RATE_LIMITED = "rate_limited"
    RESET_BEFORE = "reset_before"
    RESET_REUSED = "reset_reused"  # of a connection that served before; a request on a new one is answered well
    HANG = "hang"
    # while the answer is sent
    RESET_MIDWAY = "reset_midway"
    RESET_AFTER = "reset_after"
    TRUNCATED_JSON = "truncated_json"
    FOREIGN_JSON = "foreign_json"
    # in the answer
    ABORTED = "aborted"
    ABORTED_IN_QUEUE = "aborted_in_queue"
    WRONG_ECHO = "wrong_echo"
    FEWER_PROMPT_TOKENS = "fewer_prompt_tokens"
    OTHER_RID = "other_rid"
    WRONG_COUNT = "wrong_count"
    ID_OUT_OF_RANGE = "id_out_of_range"
    NO_OUTPUT_IDS = "no_output_ids"
    NAN = "nan"
    STRIPPED_MARKER = "stripped_marker"
    PROMPT_TAIL_FIRST = "prompt_tail_first"
    OPENED_AGAIN = "opened_again"
    NO_END = "no_end"
    CLIPPED_BUDGET = "clipped_budget"
    OTHER_WEIGHTS = "other_weights"


@dataclass(frozen=True, slots=True)
class Act:
    """A fault with its size: `amount` is ids for PROMPT_TAIL_FIRST, seconds of Retry-After for RATE_LIMITED."""

    fault: Fault
    amount: int = 1


Rule = Callable[[int, GenerateRequest], Act | Fault | None]
"""(number of the request, from 1; the request) -> what goes wrong with it, None for nothing."""


def always(fault: Act | Fault) -> Rule:
    """Every request goes wrong in the same way."""
    return lambda number, request: fault


def nth(acts: Mapping[int, Act | Fault]) -> Rule:
    """The requests with these numbers go wrong."""
    return lambda number, request: acts.get(number)


def by_chance(chances: Mapping[Fault, float], *, seed: int = 0) -> Rule:
    """Each request goes wrong with these probabilities, which add up to at most 1.

    Depends on seed, prompt and how often the prompt was asked, not on the order of requests: a retry gets a new draw.
    """
    asked: Counter[int] = Counter()

    def rule(_: int, request: GenerateRequest) -> Fault | None:
        prompt = prompt_number(seed, request.prompt_ids)
        asked[prompt] += 1
        draw = random.Random(prompt + asked[prompt]).random()
        for fault, chance in chances.items():
            if draw < chance:
                return fault
            draw -= chance
        return None

    return rule


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault may need to know beside the body it spoils."""

    request: GenerateRequest
    markers: Markers
    vocabulary: int | None
    amount: int


def spoil(body: dict[str, Any], fault: Fault, scene: Scene) -> None:
    """Changes the body of a good answer in place. Faults that are not in the answer change nothing."""
    if (change := _CHANGES.get(fault)) is not None:
        change(body, scene)


def _with_ids(body: dict[str, Any], ids: list[int]) -> None:
    body["output_ids"] = ids
    body["meta_info"]["completion_tokens"] = len(ids)


def _abort(body: dict[str, Any], _: Scene) -> None:
    ids = body["output_ids"]
    _with_ids(body, ids[: len(ids) // 2])
    body["meta_info"]["finish_reason"] = aborted()


def _abort_in_queue(body: dict[str, Any], _: Scene) -> None:
    _with_ids(body, [])
    meta = body["meta_info"]
    meta["finish_reason"] = aborted_in_queue()
    for key in ("prompt_tokens", "cached_tokens", "num_retractions", "reasoning_tokens", "dp_rank"):
        meta.pop(key, None)
    body.pop("prompt_token_ids", None)


def _wrong_echo(body: dict[str, Any], scene: Scene) -> None:
    first, *rest = scene.request.asked_ids
    body["prompt_token_ids"] = [first ^ 1, *rest]


def _fewer_prompt_tokens(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["prompt_tokens"] -= 1


def _other_rid(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["id"] += "-of-another"


def _wrong_count(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["completion_tokens"] += 1


def _id_out_of_range(body: dict[str, Any], scene: Scene) -> None:
    ids = body["output_ids"]
    beyond = NO_VOCABULARY if scene.vocabulary is None else scene.vocabulary
    _with_ids(body, [beyond, *ids[1:]])


def _no_output_ids(body: dict[str, Any], _: Scene) -> None:
    del body["output_ids"]


def _nan(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["finish_reason"] = stopped(NAN)


def _stripped_marker(body: dict[str, Any], scene: Scene) -> None:
    ids = list(body["output_ids"])
    if scene.markers.close_id in ids:
        ids.remove(scene.markers.close_id)
    _with_ids(body, ids)


def _prompt_tail_first(body: dict[str, Any], scene: Scene) -> None:
    _with_ids(body, [*scene.request.prompt_ids[-scene.amount :], *body["output_ids"]])


def _opened_again(body: dict[str, Any], scene: Scene) -> None:
    opening = [] if scene.markers.open_id is None else [scene.markers.open_id]
    _with_ids(body, [*opening, *body["output_ids"]])


def _no_end(body: dict[str, Any], _: Scene) -> None:
    _with_ids(body, body["output_ids"][:-1])


def _clipped_budget(body: dict[str, Any], _: Scene) -> None:
    ids = body["output_ids"]
    _with_ids(body, ids[: len(ids) // 2])
    body["meta_info"]["finish_reason"] = ran_out(len(ids) // 2)


def _other_weights(body: dict[str, Any], _: Scene) -> None:
    body["meta_info"]["weight_version"] = f"{body['meta_info']['weight_version']}-other"


_CHANGES: dict[Fault, Callable[[dict[str, Any], Scene], None]] = {
    Fault.ABORTED: _abort,
    Fault.ABORTED_IN_QUEUE: _abort_in_queue,
    Fault.WRONG_ECHO: _wrong_echo,
    Fault.FEWER_PROMPT_TOKENS: _fewer_prompt_tokens,
    Fault.OTHER_RID: _other_rid,
    Fault.WRONG_COUNT: _wrong_count,
    Fault.ID_OUT_OF_RANGE: _id_out_of_range,
    Fault.NO_OUTPUT_IDS: _no_output_ids,
    Fault.NAN: _nan,
    Fault.STRIPPED_MARKER: _stripped_marker,
    Fault.PROMPT_TAIL_FIRST: _prompt_tail_first,
    Fault.OPENED_AGAIN: _opened_again,
    Fault.NO_END: _no_end,
    Fault.CLIPPED_BUDGET: _clipped_budget,
    Fault.OTHER_WEIGHTS: _other_weights,
}
