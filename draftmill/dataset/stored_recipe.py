"""The recipe a dataset was last sealed with: what `rerun` begins with.

Only the newest manifest's, so that what a rerun judges by is what the next run of
that recipe would judge by. Its dataset is the one it is read from: a dataset that was
moved goes on where it is now.
"""

from __future__ import annotations

from collections.abc import Iterable

from draftmill.dataset.status import existing
from draftmill.dataset.storage import open_checked
from draftmill.errors import RecipeError
from draftmill.recipe import Recipe
from draftmill.recipe_file import changed_recipe


def stored_recipe(dataset: str, changes: Iterable[str] = ()) -> Recipe:
    """The recipe of a dataset's newest manifest, with `key=value` changes on top.

    Raises RecipeError without a dataset and for a wrong change, DatasetError when it cannot be read.
    """
    manifest = existing(open_checked(dataset))
    origin = f"the recipe of manifest {manifest.version}"
    here = {**manifest.recipe, "dataset": dataset}
    recipe = changed_recipe(here, changes, origin=origin)
    if recipe.dataset != (stays := changed_recipe(here, (), origin=origin).dataset):
        raise RecipeError(
            "a rerun stays with its dataset",
            value=f"dataset={recipe.dataset}",
            expected=stays,
            remedy="leave `dataset` out of the changes; another dataset is made by its own recipe (draftmill run)",
        )
    return recipe
