"""The gate: is this the server the recipe describes, and does it answer ids with ids?

Recipe and `Prepared` in, a table of `Check`s (ok, warn, refuse) and the servers'
reports out. Waits while a server loads or is full, at most until the night ends,
reads its pages, compares its tokenizer with ours and sends one canary. Costs a few tokens and saves nights: a wrong
model, a reasoning parser or an auto-truncating server would spoil every row in
silence.

Invariant: whatever a server does is a line of the table, never an exception;
the server's key is in none of them.
"""

from draftmill.gate.again import look_again
from draftmill.gate.inspection import inspect_servers, look
from draftmill.gate.table import Check, Gate, Level

__all__ = ["Check", "Gate", "Level", "inspect_servers", "look", "look_again"]
