"""What is different from the newest manifest: the recipe's fields, tokenizer and template, the rules of judging.

Says why a plan asks for what it asks for. Compares what was stored with what is
here now, before anything of the present run is sealed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftmill.judging.changed import changed_rules
from draftmill.judging.structure import Structure
from draftmill.recipe import Recipe
from draftmill.reporting.recipe_changes import RecipeChange, recipe_changes

if TYPE_CHECKING:
    from draftmill.dataset.manifest import Manifest

HASH_SHOWN = 8
"""Hex digits of a hash: enough to see that it is another."""

TWO_SETS = "two runs that sealed at the same time had different ones"
"""Said in place of the rules' names where the manifest's rows were not all judged alike."""

HASHED = {"chat_template_sha256": "chat template", "tokenizer_sha256": "tokenizer"}
"""What decides how a conversation becomes ids, by its name in a manifest's provenance."""


@dataclass(frozen=True, slots=True)
class Since:
    """`manifest` None: a new dataset, and nothing has changed. `rendering`: (what, old hash, new hash), cut short.

    `rules`: names of the rules that stored rows were not judged by.
    """

    manifest: Manifest | None
    recipe: tuple[RecipeChange, ...] = ()
    rendering: tuple[tuple[str, str, str], ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def stored_rows(self) -> int:
        """Good and quarantined rows of the manifest."""
        return (
            0 if self.manifest is None else sum(ref.rows for ref in (*self.manifest.shards, *self.manifest.quarantine))
        )


def since(
    manifest: Manifest | None, recipe: Recipe, structures: Mapping[str, Structure], rendering: Mapping[str, Any]
) -> Since:
    """`structures`: by variant, `rendering`: the hashes of HASHED, both as the present recipe has them."""
    if manifest is None:
        return Since(None)
    now = recipe.model_dump(mode="json")
    rules = changed_rules(
        manifest.recipe, manifest.structures, now, {name: found.to_json() for name, found in structures.items()}
    )
    hashes = [(what, manifest.provenance.get(name), rendering[name]) for name, what in HASHED.items()]
    return Since(
        manifest,
        tuple(recipe_changes(manifest.recipe, now)),
        tuple((what, old[:HASH_SHOWN], new[:HASH_SHOWN]) for what, old, new in hashes if old and old != new),
        tuple(rules) if manifest.judged_alike else (*rules, TWO_SETS),
    )
