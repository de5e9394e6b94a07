"""Exporting: from sealed rows to what a trainer reads.

In: the good rows of one or more datasets, as their newest manifests list them.
Out: examples (`examples.Example`: ids and loss mask), in an order and on a side
(train, validation) that the same seed gives again, written by a plugin of the
shelf `exporters` and read back. Nothing is decoded or tokenized; a row's ids are
cut on the right at most.
"""
