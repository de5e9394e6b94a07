"""The flows: the only place with `@flow`. Recipe in, sealed dataset out.

A flow file is a table of contents of stages; the stages are tasks of `tasks/`.
"""
