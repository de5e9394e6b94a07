"""The command: starts everything, says where it is, tells what happens, and ends everything.

The first SIGINT, SIGTERM or SIGHUP ends in order: runs are cancelled (rows in flight
aborted, finished ones kept), then the worker, the servers, the S3 server. The second
one kills. Exit status 0 for an end that was asked for, also of a second `up` on a home
that is in use: what was asked for, that it is up, is so.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from types import FrameType

from draftmill.errors import DraftmillError
from draftmill.rendering.gguf import smollm2_gguf
from draftmill.reporting import terminal
from draftmill.serving.llama import check_llama
from draftmill.serving.process import private_file
from draftmill.serving.seaweed import weed
from draftmill.up.board import Board
from draftmill.up.credentials import load_or_create
from draftmill.up.deployments import BUCKET, DATASET, write_deployments
from draftmill.up.home import Home, Standing, held, open_home
from draftmill.up.marked import end_marked, kill_marked, mark
from draftmill.up.ports import Ports, check_ports
from draftmill.up.runs import Watch, cancel_deployed, give_up_dead, wait_for_ends
from draftmill.up.services import Services

LOOK_EVERY_S = 1.0
"""Seconds between two looks at services and runs."""

CANCEL_S = 30.0
"""Seconds for cancelled runs to end by themselves: they took 0.4 to 9 s, measured."""

KILLED = 130
"""Exit status of an end by the second signal, as shells count SIGINT."""

NO_ANSWER = (OSError, HTTPException, DraftmillError)
"""What an API question raises while the server is busy, ending or starting again."""


def up(root: Path, ports: Ports, *, engine: bool) -> None:
    """Until a signal ends it. Raises DraftmillError for what is missing, taken, or does not stay up."""
    os.umask(0o077)  # databases, logs and data are this user's, as the credentials are
    _check_parts(engine=engine)
    home = open_home(root)
    with held(home) as ours:
        if not ours:
            _say_standing(home)
            return
        credentials = load_or_create(home.credentials)
        mark(home.root)
        end_marked(home.root)  # of an earlier one that was killed; they would hold the ports
        check_ports(ports, engine=engine)
        with _signals(home) as stop, Board(terminal.err) as board:
            services = Services(home, credentials, ports, engine=engine, stop=stop)
            try:
                _start(home, services, board, stop)
                if not stop.is_set():
                    _stand(home, services, board)
                    _watch(services, board, stop)
            except DraftmillError as error:
                board.line(f"error: {error.what}", "bold red")  # in full once everything has ended
                raise
            finally:
                # An error ends it as a signal does.
                _end(home, services, board, stop)


def _check_parts(*, engine: bool) -> None:
    weed()
    if engine:
        check_llama()
        smollm2_gguf()


def _start(home: Home, services: Services, board: Board, stop: threading.Event) -> None:
    url = services.server.url
    home.stand(_standing(services, ready=False))
    private_file(home.env, environment_text(services.environment))
    write_deployments(home.deployments, prompts=home.prompts, engine=services.engine_url)

    def start_s3() -> None:
        services.s3.process.start()
        if not stop.is_set():
            services.bucket_server.make_bucket(BUCKET)

    together = {services.s3.name: start_s3, services.prefect.name: services.prefect.process.start}
    if services.engine:
        together[services.engine.name] = services.engine.process.start
    board.line(f"starting in {home.root}; logs in {home.logs}")
    services.start(together, waiting=board.waiting)
    if stop.is_set():
        return
    for run in give_up_dead(services.server):
        board.line(f"{run.name}: had no process any more; Crashed, so that Retry asks for its rest", "yellow")

    def deploy() -> None:
        # The worker makes the pool, and deployments need it.
        services.worker.process.start()
        if not stop.is_set():
            arguments = ("deploy", "--all", "--prefect-file", str(home.deployments))
            services.server.command(*arguments, folder=home.work, log=home.logs / "deploy.log")

    services.start({"worker and deployments": deploy}, waiting=board.waiting)
    if not stop.is_set():
        board.line(f"everything is up: {url}", "green")


def _watch(services: Services, board: Board, stop: threading.Event) -> None:
    watch = Watch(services.server)
    while not stop.wait(LOOK_EVERY_S):
        services.restart_dead(lambda text: board.line(text, "bold red"))
        try:
            for run in watch.changes():
                board.run(run)
        except NO_ANSWER:
            continue  # the next look finds what this one missed
        board.now(watch.going, [(each.name, each.process.pid is not None) for each in services.all])


def _end(home: Home, services: Services, board: Board, stop: threading.Event) -> None:
    stop.set()
    board.ending()
    board.line("ending; once more Ctrl-C kills")
    if services.worker.process.pid is not None:
        try:
            _end_runs(services, board)
        except NO_ANSWER as error:
            board.line(
                f"the runs could not be cancelled: {type(error).__name__}; the next up says they crashed", "yellow"
            )
    services.end(board.line)
    end_marked(home.root)
    board.line("everything has ended; the data stay")


def _end_runs(services: Services, board: Board) -> None:
    """Cancels them, then ends the worker, so that no run begins behind our back, and says of the rest what is true."""
    if number := cancel_deployed(services.server):
        board.line(f"cancelling {number} run{'s' * (number > 1)}: finished rows are kept, Retry asks for the rest")
        if not wait_for_ends(services.server, wait_s=CANCEL_S):
            board.line(f"not every run has ended within {CANCEL_S:.0f} s; they are killed, and crashed", "yellow")
    board.line("ending the worker")
    services.worker.process.stop()
    for run in give_up_dead(services.server):
        board.line(f"{run.name}: killed; Crashed, so that Retry asks for its rest", "yellow")


def _stand(home: Home, services: Services, board: Board) -> None:
    standing = _standing(services, ready=True)
    home.stand(standing)
    print_standing(home, standing)


def _standing(services: Services, *, ready: bool) -> Standing:
    engine = services.engine_url if services.engine else None
    return Standing(os.getpid(), services.server.url, services.bucket_server.url, engine, ready)


def _say_standing(home: Home) -> None:
    standing = home.standing()
    if standing is None or not standing.ready:
        terminal.say(f"another draftmill up is starting or ending in {home.root}; its own terminal shows how far it is")
        return
    terminal.say(f"it is up already (process {standing.pid})")
    print_standing(home, standing)


def print_standing(home: Home, standing: Standing) -> None:
    """Where everything is; no secret, only the file that has them."""
    lines = {
        "UI": f"{standing.ui}  (it asks for a password: PREFECT_API_AUTH_STRING in {home.env})",
        "S3": standing.s3,
        "engine": standing.engine or "none of ours (--no-engine)",
        "dataset": DATASET,
        "prompts": str(home.prompts),
        "logs": str(home.logs),
        "another shell": f"set -a; . {home.env}; set +a; draftmill status {DATASET}",
    }
    for name, text in lines.items():
        terminal.out.print(f"{name:<14} {text}")


def environment_text(environment: dict[str, str]) -> str:
    """Variables for another shell; plain values stay plain, for tools that read such files without a shell."""
    head = "# For another shell: set -a; . THIS_FILE; set +a. The UI asks for the value of PREFECT_API_AUTH_STRING.\n"
    return head + "".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items())


@contextmanager
def _signals(home: Home) -> Iterator[threading.Event]:
    """Set by the first signal; the second one kills everything."""
    stop = threading.Event()
    asked = [0]

    def heard(number: int, frame: FrameType | None) -> None:
        asked[0] += 1
        if asked[0] > 1:
            kill_marked(home.root)
            os._exit(KILLED)
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Under nohup a closed terminal is to end nothing.
    heeded = [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, heard) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
