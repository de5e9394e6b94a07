"""The home of `draftmill up`: one folder with everything it keeps, used by one `up` at a time.

Only its owner may look into it: Prefect's database and the datasets lie there. A
folder with other things in it is refused, so that a wrong --home litters nobody's
folder. The lock is the kernel's and dies with its holder: no SIGKILL leaves a home
that needs a person.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from draftmill.dataset.journal import state_folder
from draftmill.dataset.lock import ProcessLock
from draftmill.errors import DatasetError, DraftmillError
from draftmill.serving.process import private_file


@dataclass(frozen=True, slots=True)
class Standing:
    """What a running `up` says of itself to a second one; nothing in it is secret."""

    pid: int
    ui: str
    s3: str
    engine: str | None
    ready: bool


@dataclass(frozen=True, slots=True)
class Home:
    """`root`: an absolute path."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "up.lock"

    @property
    def standing_file(self) -> Path:
        return self.root / "up.json"

    @property
    def credentials(self) -> Path:
        return self.root / "credentials.json"

    @property
    def env(self) -> Path:
        """Variables for another shell."""
        return self.root / "env"

    @property
    def prefect(self) -> Path:
        """PREFECT_HOME: its database."""
        return self.root / "prefect"

    @property
    def s3(self) -> Path:
        return self.root / "s3"

    @property
    def s3_ports(self) -> Path:
        """The S3 server's inner ports: some of its folders are named by them."""
        return self.root / "s3-ports.json"

    @property
    def state(self) -> Path:
        """DRAFTMILL_STATE: journals and receipts."""
        return self.root / "state"

    @property
    def work(self) -> Path:
        """Where runs begin: relative paths in a recipe start here."""
        return self.root / "work"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def prompts(self) -> Path:
        """The example prompts, the user's to change."""
        return self.work / "prompts.jsonl"

    @property
    def deployments(self) -> Path:
        """prefect.yaml as it is given to Prefect."""
        return self.root / "prefect.yaml"

    def standing(self) -> Standing | None:
        """What the `up` that holds this home says of itself; None when it has not said it yet."""
        try:
            return Standing(**json.loads(self.standing_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def stand(self, standing: Standing) -> None:
        """Says it, for a second `up`."""
        private_file(self.standing_file, json.dumps(asdict(standing)) + "\n")


def default_home() -> Path:
    return state_folder() / "up"


def open_home(path: Path) -> Home:
    """The folder, made where there is none. Raises DraftmillError for one with other things, or open to others."""
    root = Path(os.path.abspath(path.expanduser()))
    home = Home(root)
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = os.listdir(root)
        if not names:
            root.chmod(0o700)
    except OSError as error:
        raise DraftmillError(
            "the home cannot be used",
            value=f"{root}: {error.strerror}",
            expected="a folder of this user's",
            remedy="repair its permissions, or give another with --home",
        ) from error
    if names and home.lock.name not in names:
        raise DraftmillError(
            "the home holds other things",
            value=f"{root}: {', '.join(sorted(names)[:3])}",
            expected="an empty folder, or one that `draftmill up` made",
            remedy="give another folder with --home",
        )
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode & 0o077:
        raise DraftmillError(
            "others can look into the home",
            value=f"{root}: mode {mode:o}",
            expected="mode 700: Prefect's database and the datasets lie there",
            remedy=f"chmod 700 {root}",
        )
    return home


@contextmanager
def held(home: Home) -> Iterator[bool]:
    """Whether this process has the home to itself, until the block ends; False while another `up` has it."""
    lock = ProcessLock(home.lock)
    try:
        lock.acquire()
    except DatasetError as error:
        if isinstance(error.__cause__, OSError):
            raise
        yield False
        return
    try:
        home.standing_file.unlink(missing_ok=True)
        for folder in (home.prefect, home.s3, home.state, home.work, home.logs):
            folder.mkdir(exist_ok=True)
        yield True
    finally:
        home.standing_file.unlink(missing_ok=True)
        lock.release()
