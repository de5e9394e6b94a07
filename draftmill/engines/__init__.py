"""Shelf: inference servers, one file per protocol. Ids in, ids out, nothing decoded.

An engine module offers:

- `CONTEXT_RESERVE`, `PROMPT_RESERVE`: tokens of the context a server keeps from an answer, and from any prompt;
- `GENERATE`: the path a row is posted to;
- `payload(row, sampling, rid=...) -> dict`: the request of one row;
- `read(status, headers, body, row=..., rid=..., engine=...) -> Answer | Fault`:
  the answer to it, whatever came;
- `is_ready(http, url)`, `report(http, url) -> ServerReport`, `abort(http, url, rid)`.

Invariant: an Answer holds the ids exactly as the server sent them.
"""
