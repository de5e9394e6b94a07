"""Every error draftmill raises on purpose, named by who must act.

    DraftmillError
    ├── RecipeError      the author of the recipe or of the command line   exit 2
    ├── SourceError      the owner of the prompt files                     exit 1
    ├── GateRefused      the operator of the inference server              exit 4
    ├── RunStopped       nobody: the run ended before all rows were asked  exit 5
    ├── DatasetError     the owner of the dataset or of its storage        exit 1
    └── MissingPart      the person who installed draftmill                exit 1

A message has four parts: what failed, the value, what was expected, what to do.
Faults of single rows are values (`records.Reason`, `records.Fault`), never
exceptions. All of them survive pickling, since Prefect may store them.
"""

from __future__ import annotations

HEADLINE_CHARS = 300
"""Characters of a headline: what fits on a line of a notification or of the list of runs."""


class DraftmillError(Exception):
    """The root. `exit_code` is what the command line ends with. `cause`: the likely one, where more is known than what
    failed."""

    exit_code = 1

    def __init__(self, what: str, *, value: object, expected: str, remedy: str, cause: str | None = None) -> None:
        super().__init__(what, value, expected, remedy)
        self.what = what
        self.value = value
        self.expected = expected
        self.remedy = remedy
        self.cause = cause

    @property
    def headline(self) -> str:
        """The likely cause on one line, for those who see no more: what failed and the value, or the `cause`."""
        line = f"{self.cause} ({self.what})" if self.cause else f"{self.what}: {self.value}"
        first = line.strip().split("\n")[0]
        return first if len(first) <= HEADLINE_CHARS else first[: HEADLINE_CHARS - 3] + "..."

    @property
    def details(self) -> str:
        """What a headline does not say: the other three parts."""
        return f"  got:      {self.value}\n  expected: {self.expected}\n  to do:    {self.remedy}"

    def __str__(self) -> str:
        return f"{self.what}\n{self.details}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, str(self.value), self.expected, self.remedy, self.cause))


def _rebuild(
    kind: type[DraftmillError], what: str, value: str, expected: str, remedy: str, cause: str | None
) -> DraftmillError:
    return kind(what, value=value, expected=expected, remedy=remedy, cause=cause)


class RecipeError(DraftmillError):
    """The recipe or the command line asks for something that cannot be."""

    exit_code = 2


class SourceError(DraftmillError):
    """The prompt files are missing, empty or unreadable as a whole."""


class GateRefused(DraftmillError):
    """The inference server is not the one the recipe describes, or not there."""

    exit_code = 4


class RunStopped(DraftmillError):
    """The run ended before all rows were asked; what was finished is kept.

    `everywhere`: it would end so on any machine, because of the servers, the answers or the clock.
    """

    exit_code = 5

    def __init__(
        self,
        what: str,
        *,
        value: object,
        expected: str,
        remedy: str,
        cause: str | None = None,
        everywhere: bool = False,
    ) -> None:
        super().__init__(what, value=value, expected=expected, remedy=remedy, cause=cause)
        self.everywhere = everywhere

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"everywhere": self.everywhere})


class DatasetError(DraftmillError):
    """The dataset's own objects are not what its manifest says, or cannot be written."""


class MissingPart(DraftmillError):
    """A part is not installed (the embedded engine, say), or comes from another installation."""


def kinds() -> list[type[DraftmillError]]:
    """All of them, the root first: a run that one of them ends is in a state of its name."""
    found: list[type[DraftmillError]] = [DraftmillError]
    for kind in found:
        found += kind.__subclasses__()
    return found
