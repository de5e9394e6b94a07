"""Which structure judges a stored row: the present one, unless an older template made its prompt.

A fixed template may come with another structure (it opens the think block now,
say). Rows of the old template stay until their successors are good, and those
of prompts that are gone stay for good; by the new structure all of them would be
wrong. What the template adds behind the conversation (`Structure.tail_ids`)
stands at the end of a row's prompt ids, so the ids themselves tell: a row whose
prompt ends as an older structure says, and not as the present one does, is
judged by the older. Any other row is judged by the present one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from draftmill.arrays import ids_array
from draftmill.judging.answers import Answers
from draftmill.judging.structure import Structure


@dataclass(frozen=True, slots=True)
class Eras:
    """Structures by the name that `named` gives a row in place of its variant."""

    structures: Mapping[str, Structure]
    _older: Mapping[str, tuple[str, ...]]

    def named(self, table: pa.Table) -> pa.Table:
        """SHARD or QUARANTINE rows, their variant replaced by the name of the structure that judges them."""
        if not self._older or not table.num_rows:
            return table
        names = np.array(table["variant"].to_pylist(), dtype=object)
        answers = Answers.of_shard(table)
        for variant, older in self._older.items():
            of_variant_B = names == variant
            longest_B = np.where(_ends(answers, self.structures[variant]), _length(self.structures[variant]), 0)
            for name in older:
                tail = _length(self.structures[name])
                older_B = of_variant_B & _ends(answers, self.structures[name]) & (longest_B < tail)
                names[older_B] = name
                longest_B[older_B] = tail
        place = table.schema.get_field_index("variant")
        return table.set_column(place, table.schema.field(place), pa.array(names.tolist(), pa.string()))


def eras(present: Mapping[str, Structure], earlier: Sequence[Mapping[str, Structure]]) -> Eras:
    """`present`: by variant. `earlier`: the same of the manifests in which rows were first sealed, newest first."""
    structures, older = dict(present), dict[str, tuple[str, ...]]()
    for variant, structure in present.items():
        tails = {structure.tail_ids}
        for number, sealed in enumerate(earlier):
            found = sealed.get(variant)
            if found is not None and found.tail_ids and found.tail_ids not in tails:
                tails.add(found.tail_ids)
                name = f"{variant}@{number}"  # no variant's own name has an @
                structures[name] = found
                older[variant] = (*older.get(variant, ()), name)
    return Eras(structures, older)


def _length(structure: Structure) -> int:
    return len(structure.tail_ids)


def _ends(answers: Answers, structure: Structure) -> npt.NDArray[np.bool_]:
    """Per row whether its prompt ends with the structure's tail."""
    tail = ids_array("tail_ids", list(structure.tail_ids))
    at_BK = answers.starts_B[:, None] + np.arange(-len(tail), 0)
    inside_B = answers.prompt_len_B >= len(tail)
    ids_BK = answers.ids_T[np.where(inside_B[:, None], at_BK, 0)] if len(answers.ids_T) else at_BK
    return np.asarray(inside_B & (ids_BK == tail).all(axis=1))
