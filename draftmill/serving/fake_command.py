"""`python -m draftmill.serving.fake`: the fake server as a process, with seeded answers.

Prints its URL as the first line of stdout once it listens, and ends when it was
told to die or to drain (`POST /fake/die`, see `fake_events`). The key is taken
from an environment variable, as everywhere in draftmill: never from the command
line, where every process can read it.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Sequence

from draftmill.serving.answers import Card
from draftmill.serving.fake import CARD, LIMITS, FakeServer, Latency
from draftmill.serving.fake_answers import LogNormal, Markers, Seeded
from draftmill.serving.faults import Fault, by_chance
from draftmill.serving.process import run_until_signalled
from draftmill.serving.protocol import Limits

RARELY = (100_000, 50, 100)
"""When garbage is collected: a log of 20,000 requests is looked through each time, a third of a request's cost."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until SIGTERM or Ctrl-C, or until it died."""
    gc.set_threshold(*RARELY)
    run_until_signalled(_serve(_parser().parse_args(arguments)))


async def _serve(given: argparse.Namespace) -> None:
    async with _server(given) as server:
        print(server.url, flush=True)
        await server.gone.wait()


def _server(given: argparse.Namespace) -> FakeServer:
    key = None if given.api_key_env is None else os.environ[given.api_key_env]
    markers = Markers(given.open_id, given.close_id, given.end_id)
    card = Card(
        given.model,
        given.version,
        weight_version=given.weight_version,
        reasoning_parser=given.reasoning_parser,
        api_key=key,
        slots=given.slots,
        notes=CARD.notes,
    )
    return FakeServer(
        Seeded(given.seed, markers, range(*given.ordinary), _lengths(given)),
        card=card,
        limits=Limits(given.context_length, given.vocabulary, given.pool, given.auto_truncate),
        rule=by_chance(dict(given.fault), seed=given.seed) if given.fault else None,
        latency=Latency(given.first_s, given.per_id_s),
        queue_limit=given.queue_limit,
        loading_s=given.loading_s,
        port=given.port,
    )


def _lengths(given: argparse.Namespace) -> tuple[int, int] | LogNormal:
    if given.tokens_lognormal is not None:
        median, sigma = given.tokens_lognormal
        return LogNormal(int(median), float(sigma))
    least, greatest = given.lengths
    return least, greatest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m draftmill.serving.fake", description="A fake SGLang server.")
    add = parser.add_argument
    add("--port", type=int, default=0, help="on loopback; 0 takes a free one")
    add("--model", default=CARD.model)
    add("--version", default=CARD.version)
    add("--weight-version", default=CARD.weight_version)
    add("--reasoning-parser")
    add("--api-key-env", help="the name of the environment variable that holds the key")
    add("--context-length", type=int, default=LIMITS.context_length, help="ids")
    add("--pool", type=int, help="ids of the KV pool, when smaller than the context")
    add("--vocabulary", type=int, help="ids of a prompt are checked against it")
    add("--auto-truncate", action="store_true", help="cut long prompts silently")
    add("--slots", type=int, default=CARD.slots, help="requests at once; more wait")
    add("--queue-limit", type=int, help="more waiting requests than this get a 503")
    add("--first-s", type=float, default=0.0, help="seconds before the first id")
    add("--per-id-s", type=float, default=0.0, help="seconds per id")
    add("--loading-s", type=float, default=0.0, help="seconds in which /health is 503")
    add("--seed", type=int, default=0)
    add("--ordinary", type=int, nargs=2, default=(100, 1000), metavar=("LOW", "HIGH"), help="ids to draw from")
    add("--lengths", type=int, nargs=2, default=(8, 64), metavar=("LEAST", "GREATEST"), help="ids of an answer")
    add("--tokens-lognormal", nargs=2, metavar=("MEDIAN", "SIGMA"), help="ids of an answer, with a heavy tail")
    add("--open-id", type=int, help="opens the think block")
    add("--close-id", type=int, help="closes the think block")
    add("--end-id", type=int, default=Markers().end_id, help="ends the turn")
    add("--fault", type=_chance, action="append", default=[], metavar="NAME=PROBABILITY", help=", ".join(Fault))
    return parser


def _chance(text: str) -> tuple[Fault, float]:
    name, _, chance = text.partition("=")
    return Fault(name), float(chance or 1)
