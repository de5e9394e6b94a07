"""SGLang's `POST /generate`: what it accepts, clips and refuses, in its order and words.

Shared by the embedded engine and the fake, and held to recordings of a real
0.5.23 server. Kept from it, because a client must cope with them: unknown
top-level keys are ignored; a budget slightly too large is clipped to
`context - prompt - 2` without a word, one beyond the context is refused; the
longest prompt is `context - 6`.

Stricter than it, on purpose: ids outside the vocabulary are refused where a real
server dies, and what these servers cannot do (text, streams, batches;
log-probabilities, unless a fake was given them) is refused instead of answered in another way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from draftmill.arrays import MAX_ID
from draftmill.serving.refusals import Refusal, invalid, malformed, unreadable
from draftmill.serving.sampling import read_sampling

RESERVED_OF_PROMPT = 6
"""The longest prompt is this much shorter than the context (recorded: 58 of 64, 8186 of 8192)."""

RESERVED_OF_BUDGET = 2
"""Prompt and answer together stay this much below the context (recorded: 37 + 25 of 64)."""

UNSUPPORTED = ("stream", "return_logprob", "text", "input_embeds", "image_data", "lora_path", "return_hidden_states")
"""Top-level keys that would change the answer; anything else unknown is ignored, as SGLang does."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in ids. `pool` is the KV pool when it is smaller than the context; `vocabulary` None is unchecked."""

    context_length: int
    vocabulary: int | None = None
    pool: int | None = None
    auto_truncate: bool = False

    @property
    def room(self) -> int:
        """What prompt and answer can fill together: the smaller of context and pool."""
        return self.context_length if self.pool is None else min(self.context_length, self.pool)

    @property
    def longest_prompt(self) -> int:
        """`max_req_input_len` of `/server_info`."""
        return self.room - RESERVED_OF_PROMPT


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A request that was taken. `prompt_ids` is what is used, `asked_ids` what is echoed.

    Both are what was sent, unless the server truncates (then the echo is cut at the context, as recorded).
    `budget` is `max_new_tokens` as clipped, which is what a `length` finish says. `scored`: (logprob_start_len,
    top_logprobs_num) where log-probabilities of the prompt are asked for.
    """

    rid: str
    asked_ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    budget: int
    sampling: dict[str, Any]
    echo_prompt: bool
    scored: tuple[int, int] | None = None

    @property
    def stop_ids(self) -> frozenset[int]:
        """The stop ids asked for; `ignore_eos` switches them off too, as recorded."""
        return frozenset() if self.sampling["ignore_eos"] else frozenset(self.sampling["stop_token_ids"] or ())


def read_generate(
    raw: bytes, *, is_json: bool, limits: Limits, preferred: dict[str, Any] | None = None, scores: bool = False
) -> GenerateRequest | Refusal:
    """A request from its body, or why it is refused. `scores`: whether log-probabilities of a prompt are given."""
    body = _json_object(raw, is_json=is_json)
    if isinstance(body, Refusal):
        return body
    rid = body.get("rid")
    if rid is not None and not isinstance(rid, str):
        return malformed(kind="string_type", loc=("body", "rid"), message="Input should be a valid string", shown=rid)
    refusal = _unsupported(body, scores=scores) or _ids_fault(body.get("input_ids"), limits)
    if refusal is not None:
        return refusal
    sampling = read_sampling(body.get("sampling_params"), preferred)
    if isinstance(sampling, Refusal):
        return sampling
    if (sampling["n"] or 1) > 1:
        return invalid("n > 1 is not supported by this server: send one request a sample.")
    asked_ids = tuple(body["input_ids"][: limits.context_length if limits.auto_truncate else None])
    said = "max_new_tokens" in {**(preferred or {}), **(body.get("sampling_params") or {})}
    budget = _granted(len(asked_ids), sampling["max_new_tokens"], limits, said=said)
    if isinstance(budget, Refusal):
        return budget
    return GenerateRequest(
        rid=uuid4().hex if rid is None else rid,
        asked_ids=asked_ids,
        prompt_ids=asked_ids[: limits.longest_prompt] if limits.auto_truncate else asked_ids,
        budget=budget,
        sampling=sampling,
        echo_prompt=body.get("return_prompt_token_ids") is True,
        scored=_scored(body, len(asked_ids)),
    )


def _json_object(raw: bytes, *, is_json: bool) -> dict[str, Any] | Refusal:
    if not raw:
        return malformed(kind="missing", loc=("body",), message="Field required", shown=None)
    if not is_json:
        return _no_object(raw)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        context = {"error": str(error)}
        return malformed(kind="json_invalid", loc=("body",), message="JSON decode error", shown={}, context=context)
    return body if isinstance(body, dict) else _no_object(body)


def _no_object(shown: object) -> Refusal:
    message = "Input should be a dictionary or an instance of GenerateReqInput"
    context = {"class_name": "GenerateReqInput"}
    return malformed(kind="dataclass_type", loc=("body",), message=message, shown=shown, context=context)


def _scored(body: dict[str, Any], num: int) -> tuple[int, int] | None:
    """The first place and how many likeliest; without a start SGLang scores nothing of the prompt (recorded)."""
    start = body.get("logprob_start_len", -1)
    if body.get("return_logprob") is not True or not 0 <= start < num:
        return None
    return start, body.get("top_logprobs_num", 0)


def _unsupported(body: dict[str, Any], *, scores: bool) -> Refusal | None:
    refused = [key for key in UNSUPPORTED if not (scores and key == "return_logprob")]
    key = next((key for key in refused if body.get(key) not in (None, False)), None)
    return None if key is None else invalid(f"{key} is not supported by this server: it takes and returns ids only.")


def _ids_fault(ids: Any, limits: Limits) -> Refusal | None:
    if ids is None:
        return invalid("Either text, input_ids or input_embeds should be provided.")
    if not isinstance(ids, list):
        shown = type(ids).__name__
        return _ids_malformed(f"input_ids must be a list of int or a list of lists of int; got {shown}", ids)
    if not ids:
        return invalid("input_ids cannot be empty.")
    if set(map(type, ids)) != {int}:
        return _odd_ids(ids)
    highest = MAX_ID if limits.vocabulary is None else limits.vocabulary - 1
    if min(ids) >= 0 and max(ids) <= highest:
        return None
    outside = next(item for item in ids if not 0 <= item <= highest)
    return invalid(f"input_ids holds {outside}, outside the vocabulary 0..{highest}.")


def _odd_ids(ids: list[Any]) -> Refusal:
    odd = next(item for item in ids if type(item) is not int)
    if isinstance(odd, bool):
        return unreadable(f"invalid type: boolean `{str(odd).lower()}`, expected a sequence")
    if isinstance(odd, list):
        return invalid("A list of lists is not supported by this server: send one sequence a request.")
    return _ids_malformed(f"elements must be int or list; got {type(odd).__name__}", ids)


def _ids_malformed(message: str, ids: Any) -> Refusal:
    """An id of the wrong type, in the web layer's words."""
    context = {"error": ValueError(message)}
    loc = ("body", "input_ids")
    return malformed(kind="value_error", loc=loc, message=f"Value error, {message}", shown=ids, context=context)


def _granted(prompt_len: int, asked: int | None, limits: Limits, *, said: bool) -> int | Refusal:
    """The budget that is really used, or why prompt and budget do not fit; a default budget always does (recorded)."""
    context = limits.context_length
    room = max(0, limits.room - min(prompt_len, context) - RESERVED_OF_BUDGET)
    granted = room if asked is None else min(asked, room)
    if limits.auto_truncate:
        return granted
    if prompt_len >= context:
        return invalid(f"The input ({prompt_len} tokens) is longer than the model's context length ({context} tokens).")
    if said and asked is not None and prompt_len + asked > context:
        return invalid(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. "
            f"You requested a total of {prompt_len + asked} tokens: {prompt_len} tokens from the input messages and "
            f"{asked} tokens for the completion. Please reduce the number of tokens in the input messages or the "
            "completion to fit within the limit."
        )
    if prompt_len > limits.longest_prompt:
        return invalid(
            f"Input length ({prompt_len} tokens) exceeds the maximum allowed length ({limits.longest_prompt} tokens). "
            "Use a shorter input or enable --allow-auto-truncate."
        )
    return granted


def duplicate_rid(rid: str) -> Refusal:
    """A second request with a rid that is still in flight; the first is unharmed."""
    return invalid(f"Duplicate request ID detected: {rid}")
