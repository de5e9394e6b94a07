"""Where deployments/ is: prefect.yaml, the recipes, the job templates.

A clone has it at its root; a wheel has it in the package, with examples/ beside it
(pyproject: force-include), since a folder `deployments` of its own in site-packages
would be everybody's.
"""

from __future__ import annotations

from pathlib import Path

import draftmill
from draftmill.errors import MissingPart


def deployments_folder() -> Path:
    """The folder with prefect.yaml. Raises MissingPart."""
    package = Path(draftmill.__file__).parent
    for folder in (package / "deployments", package.parent / "deployments"):
        if (folder / "prefect.yaml").is_file():
            return folder
    raise MissingPart(
        "draftmill's deployments are missing",
        value=f"no prefect.yaml in {package / 'deployments'} nor beside {package}",
        expected="the files that come with draftmill",
        remedy="install draftmill again",
    )
