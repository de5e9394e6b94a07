"""The embedded engine: SGLang's protocol over llama.cpp and SmolLM2-135M-Instruct, on loopback.

Why: the whole job, from prompts to a sealed dataset, must run on a laptop
without GPU, hub or account, and against a server that really generates. It is a
development engine and says so in `/server_info`.

Promises: ids are llama.cpp's, unchanged and complete; a finish reason is the
true one; `/tokenize` is llama.cpp's own tokenization and reading of the chat
template, so that comparing with it means something; a client that goes away, or
an abort, ends the generation. An aborted request answers without ids, since
llama.cpp gives none before the end.
Refuses: ids outside the vocabulary, and every parameter llama.cpp cannot honour.

Greedy ids are only the same from run to run with one slot and `cache_prompt`
off: batching and cached prefixes change the order of floating-point sums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from draftmill import __version__
from draftmill.rendering.gguf import smollm2_gguf
from draftmill.serving.answers import Card, Generated
from draftmill.serving.facade import Facade, Flight
from draftmill.serving.llama import Llama, LlamaSettings, refused_parameter
from draftmill.serving.protocol import GenerateRequest, Limits
from draftmill.serving.refusals import Refusal, invalid
from draftmill.serving.sampling import read_sampling

MODEL_NAME = "SmolLM2-135M-Instruct"

DEFAULT_SLOTS = 8
"""Requests at once. Two threads gave 87 ids/s with 1 slot, 115 with 4, 136 with 8, no more with 16 and 32."""

DEFAULT_CONTEXT = 2048
"""Ids per request, prompt and answer; the model could do 8192."""

HEALTH_PROBE_S = 20.0
"""As long as SGLang's own `/health` waits for its token before it says 503."""

NOTES = (
    "draftmill's embedded engine: llama.cpp on this machine, for development; not a production server",
    "penalties count the prompt's ids; ignore_eos forbids the end ids; aborted requests return no ids",
)


def engine_version() -> str:
    """As `/server_info` says it: ours, and the llama.cpp binding's."""
    try:
        binding = version("xllamacpp")
    except PackageNotFoundError:
        binding = "missing"
    return f"draftmill-embedded {__version__} (xllamacpp {binding}, development engine)"


class EmbeddedEngine(Facade):
    """The server around a running llama.cpp."""

    def __init__(self, llama: Llama) -> None:
        settings = llama.settings
        card = Card(MODEL_NAME, engine_version(), slots=settings.slots, notes=NOTES)
        super().__init__(card, Limits(settings.context_length, llama.vocabulary))
        self.llama = llama

    async def answer(self, request: GenerateRequest | Refusal) -> dict[str, Any] | Refusal:
        """Refuses what llama.cpp cannot honour before the request waits for a slot."""
        if not isinstance(request, Refusal) and (fault := refused_parameter(request.sampling)) is not None:
            return invalid(fault)
        return await super().answer(request)

    async def generate(self, flight: Flight) -> Generated | Refusal:
        return await self.llama.complete(flight.request)

    async def healthy(self) -> bool:
        """Generates one id; waits for a slot like any request."""
        sampling = read_sampling({"max_new_tokens": 1, "temperature": 0})
        assert isinstance(sampling, dict)
        probe = GenerateRequest("health", (0,), (0,), 1, sampling, echo_prompt=False)
        try:
            async with asyncio.timeout(HEALTH_PROBE_S):
                reply = await self.llama.complete(probe)
        except TimeoutError:
            return False
        return isinstance(reply, Generated) and len(reply.output_ids) == 1

    async def tokenize(self, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        """Of `prompt` (a text or a list of texts) or of `messages`, with `chat_template_kwargs` and `tools`."""
        if isinstance(body.get("messages"), list):
            return await self._tokenize_messages(body)
        prompt = body.get("prompt")
        add_special = body.get("add_special_tokens") is not False
        if isinstance(prompt, str):
            return self._tokenized(await self.llama.tokenize(prompt, add_special=add_special))
        if not isinstance(prompt, list) or not all(isinstance(text, str) for text in prompt):
            return invalid("/tokenize takes `prompt` (a text or a list of texts) or `messages`.")
        lists = [await self.llama.tokenize(text, add_special=add_special) for text in prompt]
        refusal = next((ids for ids in lists if isinstance(ids, Refusal)), None)
        if refusal is not None:
            return refusal
        return {"tokens": lists, "count": [len(ids) for ids in lists if isinstance(ids, list)], **self._length()}

    async def _tokenize_messages(self, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        names = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt")
        text = await self.llama.render({name: body[name] for name in names if body.get(name) is not None})
        if isinstance(text, Refusal):
            return text
        # The template writes every special token itself.
        return self._tokenized(await self.llama.tokenize(text, add_special=False))

    def _tokenized(self, ids: list[int] | Refusal) -> dict[str, Any] | Refusal:
        return ids if isinstance(ids, Refusal) else {"tokens": ids, "count": len(ids), **self._length()}

    def _length(self) -> dict[str, int]:
        return {"max_model_len": self.limits.context_length}


async def serve_embedded(
    *,
    port: int = 0,
    slots: int = DEFAULT_SLOTS,
    context_length: int = DEFAULT_CONTEXT,
    threads: int | None = None,
    cache_prompt: bool = True,
    ready: Callable[[str], None],
    verbose: bool = False,
) -> None:
    """Serves until cancelled; `ready` is called with the URL once it can generate (the port refuses before).

    `port` 0 takes a free one. `context_length` in ids, per request. `threads` None: all cores but one.
    Raises MissingPart when the model or llama.cpp is not installed, OSError when the port is taken.
    """
    settings = LlamaSettings(
        smollm2_gguf(), slots, context_length, threads=threads, cache_prompt=cache_prompt, verbose=verbose
    )
    async with Llama(settings) as llama:
        engine = EmbeddedEngine(llama)
        try:
            await engine.open(port)
            ready(engine.url)
            await asyncio.Event().wait()
        finally:
            await engine.close()
