"""The tests' Prefect server, which datasets made by flows need."""

from __future__ import annotations

from tests.flows.conftest import prefect_server

__all__ = ["prefect_server"]
