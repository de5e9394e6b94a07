"""Pilots: a sample of what is missing, and from it what the whole would take.

Sample and rows in (`strata`, `split`), what came of them out of the sealed objects
(`measured`), then an `Estimate`: lengths, verdicts, tokens, duration, GPU hours, storage,
hidden states, each with the range it is in with 90 % probability, and what
`in_flight` and `max_new_tokens` should be.

Everything but `split` and `measured` is pure; chance is seeded, so that the same
sample gives the same words.
"""
