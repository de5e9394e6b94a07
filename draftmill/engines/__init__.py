"""Shelf: inference servers, one file per protocol. Ids in, ids out, nothing decoded.

An engine module offers:

- `CONTEXT_RESERVE`, `PROMPT_RESERVE`: tokens of the context a server keeps from an answer, and from any prompt;
- `GENERATE`: the path a row is posted to;
- `payload(row, sampling, rid=..., model=...) -> bytes`: the JSON body of one row's request;
- `read(status, headers, body, row=..., rid=..., engine=...) -> Answer | Fault`:
  the answer to it, whatever came;
- `is_ready(http, url) -> str | None`: None when it can be asked, else what was seen;
- `pulse(http, url) -> Pulse`: a look at a silent server, always over a new connection;
- `report(http, url, model=...) -> ServerReport`: what it says of itself, without secrets; of several
  names that it serves, of this one;
- `tokenize(http, url, messages, tools=..., template_kwargs=..., model=...)` and
  `tokenize_text(http, url, text, model=...) -> Ids | Fault | None`: the server's own ids; the fault in
  their place, REJECTED when the server does not take this text; None where it does not tokenize;
- `abort(http, url, rid)`: nothing more is generated for this request.

And, where the engine gives log-probabilities of a prompt (`draftmill audit`), both of:

- `score_payload(ids_T, start, rid=..., model=...) -> bytes`: asks for those of ids_T[start:], posted to `GENERATE`;
- `read_scores(status, headers, body, ids_T=..., start=..., rid=...) -> Scores | Fault`: nothing but these ids' own.

What they share is in `_wire` (answers), `_pages` (information, health), `_tokenize` and `_scores`.

Invariant: an Answer holds the ids exactly as the server sent them.
"""
