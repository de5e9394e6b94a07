"""Benchmarks: what draftmill adds to a loop that only sends, on one machine, against the fake server.

In: the contestants' commands. Out: a table and a dated file in `results/`. What
is measured and how to read it: benchmarks/README.md.
"""
