"""Rows in, completions in the journal: one in-flight pool for the whole process.

The decisions are pure (`retry`, `breaker`: the clock and the tries are passed
in), the async shell around them is thin (`pool`). `tickets` are rows on
their way; `stops` says why a run ends early.

Invariant: every row given to `Pool.ask` comes out exactly once, as a
completion, a failure or pending; a completion is in the journal before it is
reported.
"""
