"""The records that travel inside a run: frozen, without behaviour.

`Row -> Completion -> Verdict`: each stage adds what it learned and
changes nothing. Only references to these (receipts) travel through Prefect.
Imports the standard library and `arrays`, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from draftmill.arrays import Ids, Logprobs, Offsets


class Reason(StrEnum):
    """Why an answer, a prompt or a request did not become a row. Order = precedence."""

    ABORTED = "aborted"
    CORRUPTED = "corrupted"
    PROMPT_MISMATCH = "prompt_mismatch"
    COUNT_MISMATCH = "count_mismatch"
    ID_OUT_OF_RANGE = "id_out_of_range"
    EMPTY_OUTPUT = "empty_output"
    PROMPT_ECHO = "prompt_echo"
    AFTER_END_OF_TURN = "after_end_of_turn"
    REASONING_REOPENED = "reasoning_reopened"
    REASONING_NOT_OPENED = "reasoning_not_opened"
    FOREIGN_MARKER = "foreign_marker"
    TRUNCATED = "truncated"
    NO_END_OF_TURN = "no_end_of_turn"
    REASONING_NOT_CLOSED = "reasoning_not_closed"
    EMPTY_CONTENT = "empty_content"
    DEGENERATE = "degenerate"
    # of a prompt
    PROMPT_INVALID = "prompt_invalid"
    PROMPT_TOO_LONG = "prompt_too_long"
    DUPLICATE = "duplicate"
    SPECIAL_TEXT = "special_text"
    # of a request
    REQUEST_FAILED = "request_failed"


OF_AN_ANSWER = tuple(Reason)[: tuple(Reason).index(Reason.PROMPT_INVALID)]
"""The reasons `judge` can give, in order of precedence."""

OF_THE_EXCHANGE = frozenset({Reason.ABORTED, Reason.CORRUPTED, Reason.PROMPT_MISMATCH, Reason.COUNT_MISMATCH})
"""Facts about the exchange with the server, which a stored row no longer shows: never re-judged."""


class Thinking(StrEnum):
    """Who opens the reasoning."""

    OPENED_BY_PROMPT = "opened_by_prompt"
    OPENED_BY_MODEL = "opened_by_model"
    CLOSED_BY_PROMPT = "closed_by_prompt"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A source row that cannot be sent: its place and why. `line` None: its prompt_id tells the place.

    `prompt_keys`: of each turn that it would ask; None where they are not known, or planned all the same (duplicates).
    """

    reason: Reason
    detail: str
    prompt_id: str
    source: str
    line: int | None
    prompt_keys: tuple[str, ...] | None = None


class HistoryMode(StrEnum):
    """What a chat template makes of the turns generated so far, when it renders a later prompt."""

    EXTENDS = "extends"  # the later prompt begins with exactly the ids so far
    REWRITES = "rewrites"  # earlier turns are rendered otherwise, as a rule without their reasoning


@dataclass(frozen=True, slots=True)
class Span:
    """A generated turn inside a row's ids: [start, end); `reasoning_end` is an index in them too."""

    start: int
    end: int
    reasoning_end: int | None
    finish_reason: str
    stop_id: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt x one sample (x one turn): a request. (row_key, attempt) is its identity.

    `prompt_ids` are exactly what is sent; `max_new_tokens` is this row's own
    budget: the recipe's, or what the context leaves when that is less. `line`: of the prompt in its source.

    The rest is for conversations with several turns to ask (`prompts.turns: all`), None or empty otherwise. `history`:
    whether this row holds all turns as spans or one of them. `earlier`: the row_keys of the turns before its last
    (they are rows of their own where history is rewritten). `conversation`: the source's messages and tools as JSON.
    As planned, a later turn has no prompt ids yet, since they hold what is generated. `room`: ids that the context
    left when a turn was asked, which bound the request beside `max_new_tokens`. `spans`: the earlier turns inside
    `prompt_ids`. `whole`: of an earlier turn, the row_key of the row that holds it.
    """

    row_key: str
    attempt: int
    prompt_key: str
    prompt_id: str
    variant: str
    sample: int
    prompt_ids: Ids
    max_new_tokens: int
    messages: str | None
    source: str
    history: HistoryMode | None = None
    earlier: tuple[str, ...] = ()
    conversation: str | None = None
    room: int | None = None
    spans: tuple[Span, ...] = ()
    whole: str | None = None
    line: int | None = None

    @property
    def turn(self) -> int:
        """Index of the (last) turn it asks for."""
        return len(self.earlier)

    @property
    def key(self) -> tuple[str, int]:
        """(row_key, attempt): the identity of a request."""
        return self.row_key, self.attempt


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine returned, ids and metadata, before anything judges it.

    `echo_ids` is None when the server's echo of the prompt equals what was
    sent, so that it is not stored twice. `finish_type` is `stop`, `length` or
    `abort`; `matched` the id (or string) that stopped it; `finish_length` the
    budget the server says it used up.
    """

    output_ids: Ids
    echo_ids: Ids | None
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_type: str
    finish_length: int | None
    matched: int | str | None
    engine: str
    weight_version: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Completion:
    """A row and its answer: generated once, kept for ever, judged as often as the rules change."""

    row: Row
    answer: Answer


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` None is ok. `reasoning_end` and `position` are indices in input_ids (prompt + output).

    `earlier`: of a stored row with several spans, what became of those before the last.
    """

    reason: Reason | None
    detail: str
    position: int | None
    reasoning_end: int | None
    stop_id: int | None
    earlier: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """A generated turn that others are asked on top of: prompt ids as sent, the turns in them, what came, its span."""

    prompt_ids: Ids
    earlier: tuple[Span, ...]
    output_ids: Ids
    span: Span


class FaultKind(StrEnum):
    """What went wrong with one request, by type and status; never by words in a message."""

    CONNECT = "connect"  # nothing listens, or no route: the server may be loading
    STALE = "stale"  # a kept connection was closed by the server at the moment it was used again
    RESET = "reset"  # the connection went away before the whole answer was here
    UNANSWERED = "unanswered"  # no answer within the row's deadline, or its server was found dead meanwhile
    ABORTED = "aborted"  # HTTP 200 with finish_reason abort
    OVERLOADED = "overloaded"  # 429 or 503
    SERVER_ERROR = "server_error"  # any other 5xx, and 408
    UNREADABLE = "unreadable"  # not JSON, not ours, or another row's answer
    REJECTED = "rejected"  # any other 4xx: this row, whoever asks
    UNAUTHORIZED = "unauthorized"  # 401, 403
    WRONG_SERVER = "wrong_server"  # 404, 405, and what is below 400 but not 200: no such engine
    OTHER_WEIGHTS = "other_weights"  # an answer of another weight version than the gate saw


@dataclass(frozen=True, slots=True)
class Fault:
    """A request without a usable answer: its kind, the server's words, and the answer if there is one."""

    kind: FaultKind
    words: str
    retry_after_s: float | None = None
    answer: Answer | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """A server's log-probabilities (nats, at temperature 1) of S ids behind what stands before each of them.

    `chosen_S`: of the id itself. `top_ids_SK`, `top_logprobs_SK`: the likeliest ids, likeliest first; -1 and -inf where
    fewer came.
    """

    chosen_S: Logprobs
    top_ids_SK: Ids
    top_logprobs_SK: Logprobs

    def at(self, places: Offsets) -> Scores:
        """Those at some of the positions."""
        return Scores(self.chosen_S[places], self.top_ids_SK[places], self.top_logprobs_SK[places])


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that got no completion in this run (`request_failed`), with the last words heard."""

    row: Row
    words: str
    tries: int


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a server says of itself, redacted. None where it does not say.

    `name` and `version` are the engine's ("sglang", "0.5.23"); `max_prompt` is
    the longest prompt it takes, in tokens.
    """

    url: str
    name: str
    version: str | None
    model: str | None
    weight_version: str | None
    context_length: int | None
    max_prompt: int | None
    reasoning_parser: str | None
    auto_truncate: bool | None
    facts: dict[str, Any]

    @property
    def engine(self) -> str:
        """As the column `engine` holds it: kind and version."""
        return f"{self.name} {self.version}" if self.version else self.name


class Life(StrEnum):
    """What a look at a server that has been silent for a while shows."""

    ALIVE = "alive"
    LEAVING = "leaving"  # says at once that it is not ready: it drains or loads; requests in flight may still finish
    STUCK = "stuck"  # does not answer, or takes its whole time to say that it cannot generate
    CLOSED = "closed"  # the port refuses: nobody will answer what is in flight


@dataclass(frozen=True, slots=True)
class Pulse:
    """A look at a silent server. `tokens`: how many it has generated ever, where it tells; its growth is life."""

    life: Life
    words: str
    tokens: int | None = None


class Return(StrEnum):
    """What a server that was gone is now."""

    SAME = "same"
    NOT_YET = "not_yet"  # does not answer well enough to be asked
    OTHER = "other"  # answers, but with another model, other weights or another context


@dataclass(frozen=True, slots=True)
class Returned:
    """A second look at a server: what it is now, in words, and its present report when it may be asked again."""

    state: Return
    words: str
    report: ServerReport | None = None
