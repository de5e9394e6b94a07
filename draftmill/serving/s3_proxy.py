"""A proxy in front of an S3 server that misbehaves on demand.

For tests, ours and yours: a store that is full of itself (503 SlowDown), one
whose rights are taken away in the middle (403), lost answers, stale listings,
a store that ignores create-only. Everything else goes to the real server behind
it and comes back as it is; clients sign for the proxy's own address.

    with S3Proxy(server) as proxy:
        ...use proxy.environment...
        proxy.add(Trouble.DENIED, method="PUT", path="/shards/", times=1)
        proxy.log[-1].trouble

Runs in a thread of its own. Binds to loopback: it adds a signature of the
server's own key where a request had to be changed.
"""

from __future__ import annotations

import asyncio
import io
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from multidict import CIMultiDict
from yarl import URL

from draftmill.serving.seaweed import REGION, SeaweedFS

LARGEST_BODY_BYTES = 256 << 20
"""Of one request: s3fs puts objects in pieces of 50 MB."""

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})
"""Headers that are about one connection, not about the message."""

_CONTENTS = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)


class Trouble(StrEnum):
    """What goes wrong with a request."""

    SLOW_DOWN = "slow_down"  # 503, as S3 throttles
    ERROR_500 = "error_500"
    DENIED = "denied"  # 403, as S3 says it
    CONFLICT = "conflict"  # 409: another conditional put of the name is under way
    DROPPED = "dropped"  # the connection is cut, and the server never gets the request
    LOST_ANSWER = "lost_answer"  # the server does it, and the connection is cut
    DELAYED = "delayed"
    NOT_CREATE_ONLY = "not_create_only"  # If-None-Match is not there for the server
    STALE_LISTING = "stale_listing"  # a listing without what was put since the rule was added


_REFUSALS = {
    Trouble.SLOW_DOWN: (503, "SlowDown", "Please reduce your request rate."),
    Trouble.ERROR_500: (500, "InternalError", "We encountered an internal error. Please try again."),
    Trouble.DENIED: (403, "AccessDenied", "Access Denied"),
    Trouble.CONFLICT: (409, "ConditionalRequestConflict", "A conflicting operation is under way for this object."),
}


@dataclass(slots=True)
class Rule:
    """Which requests go wrong, and how: the first rule that takes a request decides.

    `path`: what "/bucket/key" must contain; `skip`: so many first are let through; `every`: then one of so many goes
    wrong; `times`: so many at most, None for all; `seconds`: of DELAYED.
    """

    trouble: Trouble
    method: str | None = None
    path: str = ""
    skip: int = 0
    every: int = 1
    times: int | None = None
    seconds: float = 0.0
    seen: int = 0
    put_since: set[str] = field(default_factory=set)

    def takes(self, call: Call) -> bool:
        """Whether this request goes wrong; counts it."""
        if self.times == 0 or (self.method or call.method) != call.method or self.path not in call.path:
            return False
        if self.trouble is Trouble.STALE_LISTING and not call.lists:
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.seen - self.skip - 1) % self.every:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class Call:
    """One request. `status` None: nothing was answered; `at`: seconds since the epoch."""

    method: str
    path: str
    query: str
    at: float
    trouble: Trouble | None = None
    status: int | None = None

    @property
    def lists(self) -> bool:
        """Whether it asks what is there."""
        return self.method == "GET" and "list-type=" in self.query


class S3Proxy:
    """A context manager around a running server. `log`: the requests in the order they came."""

    def __init__(self, server: SeaweedFS) -> None:
        self.log: list[Call] = []
        self._server = server
        self._rules: list[Rule] = []
        self._guard = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs, as the ecosystem names it."""
        return self._server.environment | {"AWS_ENDPOINT_URL": self.url}

    def add(
        self,
        trouble: Trouble,
        *,
        method: str | None = None,
        path: str = "",
        skip: int = 0,
        every: int = 1,
        times: int | None = None,
        seconds: float = 0.0,
    ) -> Rule:
        """From now on; see Rule."""
        rule = Rule(trouble, method, path, skip, every, times, seconds)
        with self._guard:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        with self._guard:
            self._rules.clear()

    def __enter__(self) -> S3Proxy:
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="s3-proxy", daemon=True)
        self._thread.start()
        self._port = ready.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()

    def _run(self, ready: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(ready))
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise
        finally:
            self._loop.close()

    async def _serve(self, ready: Future[int]) -> None:
        self._ends = asyncio.Event()
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._on_request)
        runner = web.AppRunner(app, auto_decompress=False, access_log=None, shutdown_timeout=0.1)
        # As many connections as its clients open, and none kept for a server that may be killed at any moment.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._http:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            ready.set_result(runner.addresses[0][1])
            await self._ends.wait()
            await runner.cleanup()

    async def _on_request(self, http: web.Request) -> web.StreamResponse:
        path, _, query = http.raw_path.partition("?")
        call = Call(http.method, unquote(path), query, time.time())
        self.log.append(call)
        body = await http.read()
        rule = self._rule(call)
        call.trouble = rule.trouble if rule else None
        if rule and rule.trouble is Trouble.DELAYED:
            await asyncio.sleep(rule.seconds)
        if rule and rule.trouble in _REFUSALS:
            response: web.Response | None = _refusal(call, *_REFUSALS[rule.trouble])
        elif rule and rule.trouble is Trouble.DROPPED:
            response = None
        else:
            response = await self._forward(http, call, body, rule)
        if response is None or (rule and rule.trouble is Trouble.LOST_ANSWER):
            if http.transport is not None:
                http.transport.abort()
            return web.Response()
        call.status = response.status
        return response

    def _rule(self, call: Call) -> Rule | None:
        with self._guard:
            return next((rule for rule in self._rules if rule.takes(call)), None)

    async def _forward(self, http: web.Request, call: Call, body: bytes, rule: Rule | None) -> web.Response | None:
        """The server's answer; None when it has none."""
        headers = _end_to_end(http.headers)
        if rule and rule.trouble is Trouble.NOT_CREATE_ONLY and headers.popall("If-None-Match", None):
            self._sign(http, headers, body)
        url = URL(self._server.url + http.raw_path, encoded=True)
        try:
            async with self._http.request(
                http.method,
                url,
                headers=headers,
                data=io.BytesIO(body),
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            ) as answer:
                content = await answer.read()
        except aiohttp.ClientError:
            return None
        if call.method in ("PUT", "POST") and answer.status < 300:
            self._note_put(call.path)
        if rule and rule.trouble is Trouble.STALE_LISTING:
            content = _CONTENTS.sub(_hides(call, rule.put_since), content)
        answered = _end_to_end(answer.headers)
        if http.method != "HEAD":  # whose length is that of the object
            answered.popall("Content-Length", None)
        return web.Response(status=answer.status, headers=answered, body=content or None)

    def _note_put(self, path: str) -> None:
        with self._guard:
            for rule in self._rules:
                rule.put_since.add(path)

    def _sign(self, http: web.Request, headers: CIMultiDict[str], body: bytes) -> None:
        """Anew, as the server's own key: all headers were signed, and one is gone."""
        headers.popall("Authorization", None)
        request = AWSRequest(http.method, self.url + http.raw_path, headers=dict(headers), data=body)
        key = Credentials(self._server.key.access_key, self._server.key.secret_key)
        S3SigV4Auth(key, "s3", REGION).add_auth(request)
        headers.clear()
        headers.extend(dict(request.headers.items()))


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    kept = CIMultiDict(headers.items())
    for name in [name for name in kept if name.lower() in _HOP]:
        kept.popall(name, None)
    return kept


def _refusal(call: Call, status: int, code: str, words: str) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{words}</Message></Error>'
    body = None if call.method == "HEAD" else text.encode()
    return web.Response(status=status, body=body, headers={"Content-Type": "application/xml"})


def _hides(call: Call, put_since: set[str]) -> Callable[[re.Match[bytes]], bytes]:
    bucket = call.path.strip("/").split("/")[0]

    def hide(entry: re.Match[bytes]) -> bytes:
        return b"" if f"/{bucket}/{unquote(entry[1].decode())}" in put_since else entry[0]

    return hide
