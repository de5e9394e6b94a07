"""A dataset: what its newest manifest lists, in a folder or a bucket.

Completions in; shards, quarantine and a sealed manifest out. Objects are
immutable and named by their content; the one commit is the creation of
`manifests/<N + 1>.json`, the last write of a run.

Invariant: whatever process dies wherever, the newest manifest lists only
complete objects, each row once, and what was generated can be found again by
(row_key, attempt).
"""
