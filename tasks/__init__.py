"""The stages as Prefect tasks: the only place with `@task`.

Receipt in, receipt out (small JSON). A task gives its stage a name, a cache
key and a state; the work itself is `draftmill/`.
"""
