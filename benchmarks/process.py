"""Processes under observation: their processor time and peak memory while they run. Linux only (/proc).

Times are those of the operating system, read from outside, so that what is
measured needs no code of ours in it. Memory is the peak of a process's own
address space (VmHWM): `ru_maxrss` of a child also counts what its parent had
before the exec.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_EVERY_S = 0.2
"""Seconds between looks: a hundred a run, and far too few to be felt."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """A look: seconds since the epoch, and each process's processor seconds so far."""

    at: float
    cpu_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Course:
    """A command from start to end. `cpu_s` is its own and its children's; `samples` have it as `client`."""

    started_at: float
    ended_at: float
    cpu_s: float
    peak_bytes: int
    samples: Sequence[Sample]

    def cpu_between(self, name: str, start: float, end: float) -> float:
        """Processor seconds of one of the processes between two times, by the looks that enclose them."""
        return self._cpu_at(name, end) - self._cpu_at(name, start)

    def _cpu_at(self, name: str, at: float) -> float:
        """Between two looks a process is taken to work evenly."""
        after = next((n for n, sample in enumerate(self.samples) if sample.at >= at), len(self.samples) - 1)
        later, earlier = self.samples[after], self.samples[max(0, after - 1)]
        if later.at == earlier.at:
            return later.cpu_s[name]
        share = min(1.0, (at - earlier.at) / (later.at - earlier.at))
        return earlier.cpu_s[name] + share * (later.cpu_s[name] - earlier.cpu_s[name])


class Failed(Exception):
    """A command that did not end with status 0; its last words."""


def run_watched(
    command: Sequence[str], *, env: Mapping[str, str], others: Mapping[str, Sequence[int]], output: Path
) -> Course:
    """Runs a command to its end. `others`: process ids that are watched beside it, by name.

    Raises Failed when it does not end well.
    """
    samples: list[Sample] = []
    peak_bytes = 0
    with output.open("wb") as sink:
        started_at = time.time()
        process = subprocess.Popen(command, env=dict(env), stdout=sink, stderr=subprocess.STDOUT)
        client_s = 0.0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                client_s = usage.ru_utime + usage.ru_stime
            else:
                client_s, peak_bytes = max(client_s, cpu_s(process.pid)), max(peak_bytes, _peak_bytes(process.pid))
            watched = {name: sum(map(cpu_s, pids)) for name, pids in others.items()}
            samples.append(Sample(time.time(), {"client": client_s, **watched}))
            if pid:
                break
            time.sleep(SAMPLE_EVERY_S)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{' '.join(command)} ended with {process.returncode}:\n{output.read_text()[-2000:]}")
    return Course(started_at, samples[-1].at, client_s, peak_bytes, samples)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def pids_of_session(session: int) -> list[int]:
    """The processes of a session: a server and its children."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            found.append(int(stat.parent.name))
    return found


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
