"""draftmill's log on the run's page in Prefect's UI, whatever the worker's settings are.

Prefect sends its own loggers there and those of PREFECT_LOGGING_EXTRA_LOGGERS; but
it leaves their level to Python, which is warnings only. Here the logger `draftmill`
gets Prefect's handler, once whether the setting gave it one or not, and the level INFO,
unless somebody gave it another. Lines from outside of a run go nowhere, without a warning.
"""

from __future__ import annotations

import logging

from prefect.context import FlowRunContext, TaskRunContext
from prefect.logging.handlers import APILogHandler

LOGGER = "draftmill"


class RunPageHandler(APILogHandler):
    """Prefect's handler, for lines of a run only."""

    def emit(self, record: logging.LogRecord) -> None:
        if FlowRunContext.get() or TaskRunContext.get():
            super().emit(record)


def on_the_run_page() -> None:
    """From now on draftmill's lines are on the page of the run that says them. Calling it again changes nothing."""
    logger = logging.getLogger(LOGGER)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    # Prefect's own one would warn of every line from outside of a run.
    for handler in [each for each in logger.handlers if type(each) is APILogHandler]:
        logger.removeHandler(handler)
    if not any(isinstance(handler, RunPageHandler) for handler in logger.handlers):
        logger.addHandler(RunPageHandler())
