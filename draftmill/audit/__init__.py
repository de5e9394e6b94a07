"""Audit: are a dataset's ids the served model's own?

Stored rows and a recipe's servers in, a `RowAudit` for each row out. The ids go
back as they lie, and the server tells how likely each was behind those before it:
greedy ids must be first choices, sampled ids must be in what could be sampled.
Ids tokenized again from text, of another model or template, or damaged, are not.

`positions` and `surprise` judge arrays and know of no server; `verdict` makes a
row's of them; `choose` reads the rows; `ask` asks; `audit` joins them.

Invariant: what cannot be decided from what the server returns is counted as
undecided, never as a fault. Nothing in the dataset is changed.
"""
