"""llama.cpp in this process (`xllamacpp`), spoken to in ids through its own HTTP server.

Every sampling parameter is sent, since llama.cpp's defaults (temperature 0.8,
top_k 40, min_p 0.05, sampling before temperature) are not SGLang's. Answers are
taken whole, never streamed: a stream drops the ids inside an unfinished UTF-8
character (seen with emoji).

What llama.cpp does otherwise, and these ids show it: penalties count the
prompt's ids too; `ignore_eos` forbids the end ids where SGLang reads past them;
a seed is honoured. What it cannot do is refused (`refused_parameter`).

Stop ids: llama.cpp knows stop strings only, and no string says which id it was.
So the answer is cut behind the first stop id, which is what SGLang returns; with
a single stop id a grammar ("any id but this one, then this one") makes it end
there early. A grammar that allows the sampled id does not touch the sampling.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from draftmill.errors import MissingPart
from draftmill.serving.answers import Generated, ran_out, stopped
from draftmill.serving.protocol import GenerateRequest
from draftmill.serving.refusals import Refusal, invalid

HONOURED = frozenset(
    {"max_new_tokens", "stop_token_ids", "temperature", "top_p", "top_k", "min_p", "frequency_penalty"}
    | {"presence_penalty", "repetition_penalty", "n", "ignore_eos", "logit_bias", "sampling_seed"}
)
TEXT_ONLY = frozenset({"skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "stream_interval"})
"""Parameters about text or streams: they never change an id, so any value will do."""

SAMPLERS = ("penalties", "temperature", "top_k", "top_p", "min_p")
"""SGLang's order: it divides by the temperature first, llama.cpp would do so last."""

SEEDS = (1 << 32) - 1
"""llama.cpp's seeds are 32 bits, the highest one meaning "random": a larger seed is taken modulo this."""

QUIET = -1
"""llama.cpp's verbosity that prints nothing, not even its banner."""

CONTEXT_STEP = 256
"""llama.cpp rounds a slot's context up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class LlamaSettings:
    """`context_length` in ids, per slot; `threads` None is `spare_cores`."""

    model: Path
    slots: int
    context_length: int
    threads: int | None = None
    cache_prompt: bool = True
    verbose: bool = False


def refused_parameter(sampling: dict[str, Any]) -> str | None:
    """The first parameter with a value that llama.cpp cannot honour, in words; None when all can be."""
    for name, value in sampling.items():
        if name not in HONOURED and name not in TEXT_ONLY and value not in (None, 0, [], {}):
            return f"{name} is not supported by the embedded engine (llama.cpp)."
    bias = sampling["logit_bias"]
    if bias is not None and not (isinstance(bias, dict) and all(_is_bias(*item) for item in bias.items())):
        return "logit_bias must map ids to numbers."
    return None


def _is_bias(token_id: str, value: Any) -> bool:
    return token_id.isdecimal() and type(value) in (int, float)


def completion_body(request: GenerateRequest, *, context_length: int, cache_prompt: bool) -> dict[str, Any]:
    """llama.cpp's `/completion` for a request: every parameter said, no default left to it."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "prompt": list(request.prompt_ids),
        "n_predict": request.budget,
        "return_tokens": True,
        "stream": False,
        "cache_prompt": cache_prompt,
        "samplers": list(SAMPLERS),
        "temperature": sampling["temperature"],
        "top_k": max(0, sampling["top_k"]),  # 0 is llama.cpp's -1
        "top_p": sampling["top_p"],
        "min_p": sampling["min_p"],
        "repeat_last_n": context_length,
        "repeat_penalty": sampling["repetition_penalty"],
        "presence_penalty": sampling["presence_penalty"],
        "frequency_penalty": sampling["frequency_penalty"],
        "ignore_eos": sampling["ignore_eos"],
        "seed": -1 if sampling["sampling_seed"] is None else sampling["sampling_seed"] % SEEDS,
        "logit_bias": [[int(token_id), value] for token_id, value in (sampling["logit_bias"] or {}).items()],
    }
    if sampling["temperature"] == 0 or sampling["top_k"] == 1:
        body |= {"temperature": 0, "top_k": 1}  # greedy, without a division by zero
    if len(request.stop_ids) == 1:
        (stop_id,) = request.stop_ids
        body["grammar"] = f"root ::= !<[{stop_id}]>* <[{stop_id}]>?"
    return body


def generated(request: GenerateRequest, reply: dict[str, Any]) -> Generated:
    """llama.cpp's reply as an answer: ids cut behind the first stop id, and why they ended."""
    ids: list[int] = reply["tokens"]
    cached: int = reply["timings"]["cache_n"]
    stops = request.stop_ids
    end = next((index for index, token_id in enumerate(ids) if token_id in stops), None)
    if end is not None:
        # Its text would hold what was cut off: an answer without `text` is what SGLang gives without a tokenizer.
        text = reply["content"] if end == len(ids) - 1 else None
        return Generated(tuple(ids[: end + 1]), stopped(ids[end]), cached, text)
    finish = stopped(ids[-1]) if reply["stop_type"] == "eos" else ran_out(len(ids))
    return Generated(tuple(ids), finish, cached, reply["content"])


class Llama:
    """A running llama.cpp: `async with Llama(settings) as llama`. Raises MissingPart when it is not installed."""

    def __init__(self, settings: LlamaSettings) -> None:
        self.settings = settings
        self.url = ""
        self.vocabulary = 0
        self._server: list[Any] = []
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Llama:
        self._server.append(await asyncio.to_thread(_start, self.settings))
        self.url = self._server[0].listening_address
        # One connection a request: closing it is how llama.cpp learns that nobody waits any more.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        self.vocabulary = (await self.ask("GET", "/v1/models"))["data"][0]["meta"]["n_vocab"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
        # Dropping the last reference ends the server and joins its native threads: not on the loop.
        await asyncio.to_thread(self._server.clear)

    async def complete(self, request: GenerateRequest) -> Generated | Refusal:
        """Generates. A cancelled call closes its connection; llama.cpp notices that after 1 s without any result."""
        if request.budget == 0:  # llama.cpp would generate one id
            return Generated((), ran_out(0), text="")
        settings = self.settings
        body = completion_body(request, context_length=settings.context_length, cache_prompt=settings.cache_prompt)
        reply = await self.ask("POST", "/completion", body)
        return reply if isinstance(reply, Refusal) else generated(request, reply)

    async def tokenize(self, text: str, *, add_special: bool) -> list[int] | Refusal:
        """llama.cpp's own ids of a text, in which special tokens' texts become their ids."""
        body = {"content": text, "add_special": add_special, "parse_special": True}
        reply = await self.ask("POST", "/tokenize", body)
        return reply if isinstance(reply, Refusal) else list(reply["tokens"])

    async def render(self, body: dict[str, Any]) -> str | Refusal:
        """Messages as text, by llama.cpp's own reading of the model's chat template."""
        reply = await self.ask("POST", "/apply-template", body)
        return reply if isinstance(reply, Refusal) else str(reply["prompt"])

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """llama.cpp's JSON answer, or its error as a Refusal with its own words."""
        assert self._http is not None
        async with self._http.request(method, self.url + path, json=body) as response:
            reply = await response.json()
        if response.status == 200:
            return reply
        message = reply.get("error", {}).get("message", str(reply)) if isinstance(reply, dict) else str(reply)
        return invalid(f"llama.cpp: {message}") if response.status == 400 else Refusal(response.status, reply)


def spare_cores() -> int:
    """All cores this process may use but one, at least one: llama.cpp's threads wait for each other by spinning.

    On two cores, 8 slots: alone, 2 threads gave 136 ids/s and 1 gave 82; beside other busy processes (a client,
    Prefect) 2 gave 38 to 52 and 1 still gave 80.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, cores - 1)


def check_llama() -> None:
    """Raises MissingPart without llama.cpp."""
    if find_spec("xllamacpp") is None:
        raise MissingPart(
            "the embedded engine is not installed",
            value="no package named xllamacpp",
            expected="the extra `embedded`",
            remedy="pip install 'draftmill[embedded]'",
        )


def _start(settings: LlamaSettings) -> Any:
    """Loads the weights and starts llama.cpp's server on a free loopback port (about a second)."""
    check_llama()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(settings.model)
    params.n_parallel = settings.slots
    params.n_ctx = -(-settings.context_length // CONTEXT_STEP) * CONTEXT_STEP * settings.slots
    threads = spare_cores() if settings.threads is None else settings.threads
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_prompt = settings.cache_prompt
    params.cache_ram_mib = 0  # no store of old prompts beside the slots: 8 GiB by default
    params.warmup = False
    params.ui = False
    if not settings.verbose:
        params.verbosity = QUIET
    return xllamacpp.Server(params)
