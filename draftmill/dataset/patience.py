"""Waiting through an outage of the storage: the one retry layer below the commit.

A request that met a transient fault is sent again, with growing pauses, until it
is answered or its patience is over. Many threads may wait at once; the outage is
said once, and once that it is over. `stop` ends all waiting: nobody who ends a
run sits through an outage first.

Pure but for what is passed in: the clock, the pause, the dice.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from draftmill.dataset.objects import StorageFault
from draftmill.progress import Listener, listener

OUTAGE_S = 600.0
"""Seconds one request is sent again: a server that is restarted, or moved, is back in less. What is longer is for a
person to see to, and costs nothing: rows stay in the journal."""

START_S = 20.0
"""Seconds the very first requests wait for any answer: before anything has worked, a silent endpoint is a typo.
One request that is under way then is waited for: a second or two, of a server that hangs."""

SILENT_S = 3.0
"""Seconds without an answer until a person is told what is waited for, where the first requests are."""

FIRST_PAUSE_S = 0.25
"""The pause after a first fault, doubled with each: a connection reset is over at once."""

LONGEST_PAUSE_S = 15.0
"""The longest pause: how late the end of an outage is noticed at most."""

SAID_AFTER = 3
"""Faults of one request until it is called an outage; less is the noise of any network."""

T = TypeVar("T")


def pause_s(faults: int, dice: float) -> float:
    """Seconds to pause after that many faults. `dice` in [0, 1): many who wait must not come back together."""
    return float(min(FIRST_PAUSE_S * 2 ** (faults - 1), LONGEST_PAUSE_S) * (0.5 + dice / 2))


class Patience:
    """`told`: who hears of an outage; by default whoever listens where this is made. Threads share it."""

    def __init__(
        self,
        *,
        limit_s: float = OUTAGE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        dice: Callable[[], float] = random.random,
        told: Listener | None = None,
    ) -> None:
        self._stopped = threading.Event()
        self._limit_s, self._clock, self._dice = limit_s, clock, dice
        self._sleep = sleep or self._stopped.wait
        # Here, since threads of other pools do not inherit the listener.
        self._told = told or listener()
        self._lock = threading.Lock()
        self._out_since_s: float | None = None

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """No more waiting, from now on and for those who wait: their last fault is raised."""
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Sleep, or less when it is stopped."""
        self._sleep(seconds)

    def persist(self, request: Callable[[], T], *, silence_s: float | None = None) -> T:
        """The request's answer. Raises StorageFault: at once when it is not transient, else when patience is over.

        `silence_s`: for a server that does not answer at all, from the first request's start, and said soon; by
        default as for one that asks to come back later, from the first fault.
        """
        if silence_s is None:
            return self._persist(request, None)
        saying = threading.Timer(SILENT_S, self._say_silent, [silence_s])
        saying.daemon = True
        saying.start()
        try:
            return self._persist(request, silence_s)
        finally:
            saying.cancel()

    def _persist(self, request: Callable[[], T], silence_s: float | None) -> T:
        faults, started_s = 0, self._clock()
        first_s = started_s
        while True:
            try:
                answer = request()
            except StorageFault as fault:
                now_s = self._clock()
                first_s = first_s if faults else now_s
                faults += 1
                if silence_s is not None and fault.silent:
                    limit_s, left_s = silence_s, silence_s - (now_s - started_s)
                else:
                    limit_s, left_s = self._limit_s, self._limit_s - (now_s - first_s)
                if not fault.transient or self.stopped or left_s <= 0:
                    raise
                if faults >= SAID_AFTER:
                    self._say_out(fault, first_s, limit_s)
                # Not beyond the end, and yet a pause.
                self._sleep(min(pause_s(faults, self._dice()), max(left_s, FIRST_PAUSE_S)))
            except FileNotFoundError:  # an answer too
                self._say_back(faults)
                raise
            else:
                self._say_back(faults)
                return answer

    def _say_silent(self, limit_s: float) -> None:
        with self._lock:
            if self._out_since_s is not None:  # said already, with the fault
                return
        self._told.stage(f"the object storage has not answered yet; waiting up to {_span(limit_s)}")

    def _say_out(self, fault: StorageFault, first_s: float, limit_s: float) -> None:
        with self._lock:
            if self._out_since_s is not None:
                return
            self._out_since_s = first_s
        self._told.stage(f"{fault.what} ({fault.value}); waiting up to {_span(limit_s)}")

    def _say_back(self, faults: int) -> None:
        if not faults:
            return
        with self._lock:
            since_s, self._out_since_s = self._out_since_s, None
        if since_s is not None:
            self._told.stage(f"the object storage answers again, after {_span(self._clock() - since_s)}")


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
