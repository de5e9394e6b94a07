"""SGLang's answers: of `/generate`, and of the pages that say who serves.

Only what a client reads is here; the recorded pages have hundreds more fields.
A finish is one of `stopped`, `ran_out`, `aborted`, `aborted_in_queue`; the last
lacks the keys a real server leaves out then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from draftmill.serving.protocol import GenerateRequest, Limits


@dataclass(frozen=True, slots=True)
class Generated:
    """What an engine made of one request. `output_ids` hold the id that stopped it; `text` is for people."""

    output_ids: tuple[int, ...]
    finish: dict[str, Any]
    cached_tokens: int = 0
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """What a server says of itself. `api_key` is shown in full by `/server_info`, as a real one does."""

    model: str
    version: str
    weight_version: str | None = "default"
    reasoning_parser: str | None = None
    preferred: dict[str, Any] | None = None
    api_key: str | None = None
    slots: int = 1
    notes: tuple[str, ...] = ()


def stopped(matched: int | str) -> dict[str, Any]:
    """Ended by an end or stop id (or the string "NaN happened", when the logits were broken)."""
    return {"type": "stop", "matched": matched}


def ran_out(length: int) -> dict[str, Any]:
    """Cut at the granted budget of `length` ids."""
    return {"type": "length", "length": length}


def aborted() -> dict[str, Any]:
    """Ended by `/abort_request` while running: the ids so far are in the answer."""
    return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def aborted_in_queue() -> dict[str, Any]:
    """Ended by `/abort_request` before it ran."""
    return {"type": "abort", "message": "Abort in waiting queue"}


def generate_answer(request: GenerateRequest, generated: Generated, card: Card, *, started_s: float) -> dict[str, Any]:
    """The body of a 200. `started_s` is `time.monotonic()` at the request's arrival."""
    count = len(generated.output_ids)
    queued = generated.finish == aborted_in_queue()
    meta: dict[str, Any] = {"id": request.rid, "finish_reason": generated.finish}
    if not queued:
        meta["prompt_tokens"] = len(request.prompt_ids)
    meta["weight_version"] = card.weight_version
    if not queued:
        meta |= {"num_retractions": 0, "reasoning_tokens": 0, "cached_tokens": generated.cached_tokens, "dp_rank": None}
    meta["completion_tokens"] = count
    meta["weight_versions"] = [{"version": card.weight_version, "start": 0, "end": count}]
    meta["e2e_latency"] = time.monotonic() - started_s
    body: dict[str, Any] = {} if generated.text is None else {"text": generated.text}
    body |= {"output_ids": list(generated.output_ids), "meta_info": meta}
    if request.echo_prompt and not queued:
        body["prompt_token_ids"] = list(request.asked_ids)
    return body


def model_info(card: Card) -> dict[str, Any]:
    """`/model_info`: which model, which weights, which parser."""
    return {
        "model_path": card.model,
        "served_model_name": card.model,
        "tokenizer_path": card.model,
        "is_generation": True,
        "preferred_sampling_params": card.preferred,
        "weight_version": card.weight_version,
        "load_format": "auto",
        "reasoning_parser": card.reasoning_parser,
        "tool_call_parser": None,
    }


def server_info(card: Card, limits: Limits) -> dict[str, Any]:
    """`/server_info`: the arguments a client checks. The key stands in it twice, as recorded: redact it."""
    capacity = limits.room * card.slots if limits.pool is None else limits.pool
    shared = {key: value for key, value in model_info(card).items() if key != "is_generation"}
    return {
        **shared,
        "skip_tokenizer_init": False,
        "context_length": limits.context_length,
        "revision": None,
        "quantization": None,
        "random_seed": 0,
        "api_key": card.api_key,
        "admin_api_key": None,
        "enable_strict_thinking": False,
        "sampling_defaults": "model",
        "allow_auto_truncate": limits.auto_truncate,
        "enable_deterministic_inference": False,
        "speculative_algorithm": None,
        "max_running_requests": card.slots,
        "max_total_num_tokens": capacity,
        "max_req_input_len": limits.longest_prompt,
        "status": "ready",
        "version": card.version,
        "notes": list(card.notes),
        "internal_states": [{"max_running_requests": card.slots, "api_key": card.api_key}],
    }


def v1_models(card: Card, limits: Limits) -> dict[str, Any]:
    """`/v1/models`: the served name and the context."""
    model = {
        "id": card.model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": card.model,
        "parent": None,
        "max_model_len": limits.context_length,
    }
    return {"object": "list", "data": [model]}


def v1_loads(card: Card, *, running: int, waiting: int) -> dict[str, Any]:
    """`/v1/loads`: how many run and wait."""
    load = {"num_running_reqs": running, "num_waiting_reqs": waiting, "max_running_requests": card.slots}
    return {"version": card.version, "loads": [load]}
