"""Servers that speak SGLang's `/generate` protocol, for development and for tests.

`embedded` runs SmolLM2-135M over llama.cpp, so that the whole job works on a
laptop; `fake` answers from a script or a seed and misbehaves on demand. Both
stand on the same `facade` (routes, slots, aborts) and the same `protocol`
(what SGLang 0.5.23 accepts, refuses and clips), which is held to recordings of
a real server. Neither is a server for the network: they bind to loopback.

In: a request of ids. Out: ids and why they ended. Invariant: an answer's ids
are exactly what the engine behind produced, in full and in order; only the fake
breaks that, and only where it was told to.
"""
