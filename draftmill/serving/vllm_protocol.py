"""vLLM's `POST /v1/completions`: what it accepts, clips and refuses, in its words.

Held to recordings of a real 0.32.0 server. Kept from it, because a client must
cope with them: `max_tokens` is 16 when absent; unknown names are ignored without
a word; numbers as strings are taken; a budget is clipped to context - prompt, or
to the server's own cap, in silence; the header X-Request-Id wins over the body.

Stricter than it, on purpose: what the fake cannot do (texts, batches, streams,
log-probabilities unless a fake was given them, ignore_eos) is refused instead of answered in another way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from draftmill.serving.answers import Generated
from draftmill.serving.protocol import GenerateRequest
from draftmill.serving.refusals import Refusal

DEFAULT_MAX_TOKENS = 16

UNSUPPORTED = (
    "stream",
    "echo",
    "logprobs",
    "prompt_logprobs",
    "ignore_eos",
    "use_beam_search",
    "truncate_prompt_tokens",
)
"""Names that would change the answer; any other unknown one is ignored, as vLLM does."""

BUSY_WORDS = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
DEAD_WORDS = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(frozen=True, slots=True)
class VllmLimits:
    """Sizes in ids. `cap` is `max_new_tokens` of --override-generation-config; `vocabulary` None is unchecked."""

    context_length: int = 8192
    vocabulary: int | None = None
    cap: int | None = None


def error(status: int, kind: str, message: str, param: str | None = None) -> Refusal:
    """An error in vLLM's shape."""
    return Refusal(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


BUSY = error(503, "Service Unavailable", BUSY_WORDS)
DEAD = error(500, "InternalServerError", DEAD_WORDS)
NO_TOKENIZER = error(400, "BadRequestError", "Tokenizer not available when `skip_tokenizer_init=True`")


def wrong_model(asked: object, served: str) -> Refusal:
    """Another model was asked for."""
    return error(404, "NotFoundError", f"The model `{asked}` does not exist. Valid aliases: {served}.", "model")


def _bad(message: str, param: str | None = None, value: object = None) -> Refusal:
    shown = "" if param is None else f" (parameter={param}, value={value})"
    return error(400, "BadRequestError", message + shown, param)


def _malformed(kind: str, loc: str, message: str, shown: object) -> Refusal:
    fault = {"type": kind, "loc": loc, "msg": message, "input": str(shown)}
    return error(400, "Bad Request", f"1 validation error:\n  {fault}", loc)


def read_object(raw: bytes) -> dict[str, Any] | Refusal:
    """The JSON object in a body."""
    if not raw:
        return _malformed("missing", "body", "Field required", None)
    try:
        body = orjson.loads(raw)
    except ValueError:
        return _malformed("json_invalid", "body", "JSON decode error", "<dict of 0 items>")
    if isinstance(body, dict):
        return body
    message = "Input should be a valid dictionary or object to extract fields from"
    return _malformed("model_attributes_type", "body", message, body)


def read_completion(
    body: dict[str, Any], *, served: str, limits: VllmLimits, header_id: str | None, scores: bool = False
) -> GenerateRequest | Refusal:
    """A request from its body, or why it is refused. Its `rid` is the answer's id without "cmpl-"."""
    rid = body.get("request_id", uuid4().hex)
    if not isinstance(rid, str):
        return _malformed("string_type", "body.request_id", "Input should be a valid string", rid)
    if body.get("model") not in (None, served):
        return wrong_model(body["model"], served)
    ids = _ids(body.get("prompt"), limits)
    if isinstance(ids, Refusal):
        return ids
    budget = _budget(body.get("max_tokens"), len(ids), limits)
    if isinstance(budget, Refusal):
        return budget
    refusal = _unsupported(body, scores=scores) or _out_of_range(body, budget, limits)
    if refusal is not None:
        return refusal
    return GenerateRequest(
        rid=rid if header_id is None else header_id,
        asked_ids=ids,
        prompt_ids=ids,
        budget=budget if limits.cap is None else min(budget, limits.cap),
        sampling={"ignore_eos": False, "stop_token_ids": body.get("stop_token_ids") or []},
        echo_prompt=body.get("return_token_ids") is True,
    )


MOST_LOGPROBS = 20
"""--max-logprobs by default."""


def _unsupported(body: dict[str, Any], *, scores: bool) -> Refusal | None:
    top = body.get("prompt_logprobs")
    if scores and isinstance(top, int) and top > MOST_LOGPROBS:
        return _bad(f"Requested prompt logprobs of {top}, which is greater than max allowed: {MOST_LOGPROBS}")
    refused = [name for name in UNSUPPORTED if not (scores and name == "prompt_logprobs")]
    name = next((name for name in refused if body.get(name) not in (None, False)), None)
    return None if name is None else _bad(f"{name} is not supported by this server: it takes and returns ids only.")


def _ids(prompt: Any, limits: VllmLimits) -> tuple[int, ...] | Refusal:
    if prompt is None or prompt == "":
        message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
        return error(400, "BadRequestError", message, "prompt")
    if prompt == []:
        return _bad("You must pass at least one prompt")
    if isinstance(prompt, list) and [] in prompt:
        return _bad("The decoder prompt cannot be empty")
    if not isinstance(prompt, list) or not all(type(item) is int for item in prompt):
        return _bad("This server takes one list of integers as prompt.")
    low = next((item for item in prompt if item < 0), None)
    if low is not None:
        return _malformed("greater_than_equal", "body.prompt", "Input should be greater than or equal to 0", low)
    context, num = limits.context_length, len(prompt)
    if num > context:
        message = (
            f"This model's maximum context length is {context} tokens. However, your prompt contains {num} input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
            "prompt."
        )
        return _bad(message, "input_tokens", num)
    if limits.vocabulary is not None and max(prompt) >= limits.vocabulary:
        return _bad(f"Token id {max(prompt)} is out of vocabulary")
    return tuple(prompt)


def _budget(asked: Any, num_prompt: int, limits: VllmLimits) -> int | Refusal:
    """The budget after the clipping to the context."""
    try:
        wanted = DEFAULT_MAX_TOKENS if asked is None else int(asked)
    except (TypeError, ValueError):
        return _malformed("int_parsing", "body.max_tokens", "Input should be a valid integer", asked)
    context = limits.context_length
    if wanted > context:
        message = (
            f"max_tokens={wanted} cannot be greater than max_model_len={context}. Please request fewer output tokens."
        )
        return _bad(message, "max_tokens", wanted)
    granted = min(wanted, context - num_prompt)
    return granted if granted >= 1 else _bad(f"max_tokens must be at least 1, got {granted}.", "max_tokens", granted)


def _out_of_range(body: dict[str, Any], budget: int, limits: VllmLimits) -> Refusal | None:
    given: dict[str, Any] = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "n": 1,
        "min_tokens": 0,
        "stop_token_ids": [],
    }
    given |= {name: body[name] for name in given if body.get(name) is not None}
    temperature, top_p = float(given["temperature"]), float(given["top_p"])
    if temperature < 0:
        return _bad(f"temperature must be non-negative, got {temperature}.", "temperature", temperature)
    if temperature > 2:
        return _bad(f"temperature must be in [0, 2], got {temperature}.", "temperature", temperature)
    if not 0 < top_p <= 1:
        return _bad(f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p)
    if given["top_k"] < -1:
        return _bad(f"top_k must be 0 (disable), or at least 1, got {given['top_k']}.")
    if given["n"] != 1:
        return _bad("n must be at least 1, got 0." if given["n"] == 0 else "n > 1 is not supported by this server.")
    if given["min_tokens"] > budget:
        return _bad(f"min_tokens must be less than or equal to max_tokens={budget}, got {given['min_tokens']}.")
    outside = [item for item in given["stop_token_ids"] if limits.vocabulary is not None and item >= limits.vocabulary]
    if outside:
        message = (
            f"token_id(s) {outside} in stop_token_ids contain out-of-vocab token ids. "
            f"Vocabulary size: {limits.vocabulary}"
        )
        return _bad(message, "stop_token_ids", outside)
    return None


def completion(
    request: GenerateRequest, generated: Generated, *, model: str, version: str, eos_id: int
) -> dict[str, Any]:
    """The body of a 200. A stop by `eos_id` has a null stop_reason, one by any other id or string names it."""
    finish, ids = generated.finish, list(generated.output_ids)
    matched = finish.get("matched")
    num_prompt = len(request.prompt_ids)
    choice = {
        "index": 0,
        "text": generated.text or "",
        "logprobs": None,
        "finish_reason": finish["type"],
        "stop_reason": None if matched == eos_id else matched,
        "token_ids": ids if request.echo_prompt else None,
        "prompt_logprobs": None,
        "prompt_token_ids": list(request.prompt_ids) if request.echo_prompt else None,
        "routed_experts": None,
    }
    usage = {
        "prompt_tokens": num_prompt,
        "total_tokens": num_prompt + len(ids),
        "completion_tokens": len(ids),
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    return {
        "id": f"cmpl-{request.rid}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": f"vllm-{version}-fake",
        "usage": usage,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def listed(model: str, limits: VllmLimits) -> dict[str, Any]:
    """`/v1/models`."""
    card = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": model}
    return {"object": "list", "data": [card | {"parent": None, "max_model_len": limits.context_length}]}
