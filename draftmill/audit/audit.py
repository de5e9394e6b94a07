"""`draftmill audit`: a dataset's rows, the servers of its recipe, and what they say of them.

The gate is passed first: log-probabilities of another model would accuse every row. Few requests are in flight, since
a server holds the logits of every scored id. What was audited before a server went away is kept and said.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftmill import plugins
from draftmill.audit.ask import NO_MORE, Asker, no_logprobs
from draftmill.audit.choose import Chosen, chosen_rows
from draftmill.audit.positions import NEAR_TIE_NATS
from draftmill.audit.verdict import Asked, RowAudit, Verdict, audited
from draftmill.dataset.manifest import Manifest, read_manifest, servers_of
from draftmill.dataset.status import existing
from draftmill.dataset.storage import open_checked
from draftmill.errors import DatasetError
from draftmill.gate import inspect_servers
from draftmill.generation.http import open_http
from draftmill.progress import Rows, listener
from draftmill.recipe import Recipe, Sampling
from draftmill.recipe_file import changed_recipe
from draftmill.records import Fault, Scores, ServerReport
from draftmill.rendering.prepare import Variants, prepare
from draftmill.variants import by_variant

ROWS = 100
"""Rows by default: of a dataset with 3 % foreign rows, 100 contain one with a probability of 95 %."""

IN_FLIGHT = 4
"""Requests at once, per server: enough to keep it busy with prefills, few enough for the logits that each one needs."""


@dataclass(frozen=True, slots=True)
class NotAudited:
    """A chosen row without scores, and the server's last words."""

    row_key: str
    words: str


@dataclass(slots=True)
class Audit:
    """What an audit found. `chosen`: rows that were to be audited; `stopped`: why the others were not asked, if so."""

    dataset: str
    manifest: Manifest
    tolerance: float
    chosen: list[Chosen]
    servers: list[str]
    rows: list[RowAudit] = field(default_factory=list)
    failed: list[NotAudited] = field(default_factory=list)
    stopped: str | None = None

    @property
    def verdicts(self) -> Mapping[str, int]:
        counts = Counter(row.verdict for row in self.rows)
        return {verdict.value: counts[verdict] for verdict in Verdict}

    @property
    def verdict(self) -> Verdict:
        """Of the dataset: suspicious with the first suspicious row; its own only if some row is."""
        verdicts = self.verdicts
        if verdicts[Verdict.SUSPICIOUS]:
            return Verdict.SUSPICIOUS
        return Verdict.OWN if verdicts[Verdict.OWN] else Verdict.UNDECIDED

    def to_json(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "dataset": self.dataset,
            "manifest": self.manifest.version,
            "verdict": self.verdict,
            "tolerance": self.tolerance,
            "servers": self.servers,
            "rows": {"chosen": len(self.chosen), **self.verdicts, "not_audited": len(self.chosen) - len(self.rows)},
            "positions": {
                name: sum(getattr(row, name) for row in self.rows)
                for name in ("positions", "wrong", "undecided", "not_first", "near_ties", "unscored")
            },
            "stopped": self.stopped,
            "found": [row.to_json() for row in self.rows if row.verdict is not Verdict.OWN],
            "failed": [{"row_key": each.row_key, "words": each.words} for each in self.failed],
        }


def audit_dataset(
    url: str,
    *,
    rows: int = ROWS,
    named: Sequence[str] = (),
    version: int | None = None,
    servers: Sequence[str] = (),
    tolerance: float = NEAR_TIE_NATS,
) -> Audit:
    """Audits a dataset's rows. `servers`: URLs in place of the recipe's; `version`: a manifest, default the newest.

    Raises RecipeError, DatasetError; GateRefused when the servers are not the dataset's, or give no log-probabilities.
    """
    storage = open_checked(url)
    manifest = existing(storage) if version is None else read_manifest(storage, version)
    recipe = _recipe(manifest, url, servers)
    chosen = chosen_rows(storage, manifest, rows=rows, named=named)
    if not chosen:
        raise DatasetError(
            "there is nothing to audit",
            value=f"manifest {manifest.version} has no good rows",
            expected="good rows",
            remedy="see `draftmill status` for what became of them",
        )
    audit = Audit(url, manifest, tolerance, chosen, list(dict.fromkeys(recipe.engine.urls)))
    asyncio.run(_Auditing(audit, recipe, manifest, prepare(recipe), samplings(manifest, recipe)).all())
    audit.rows.sort(key=lambda row: row.row_key)
    return audit


def _recipe(manifest: Manifest, url: str, servers: Sequence[str]) -> Recipe:
    engine = {**manifest.recipe["engine"], **({"urls": list(servers)} if servers else {})}
    data = {**manifest.recipe, "dataset": url, "engine": engine}
    return changed_recipe(data, (), origin=f"the recipe of manifest {manifest.version}")


def samplings(manifest: Manifest, recipe: Recipe) -> dict[str, Sampling]:
    """How each variant's rows were sampled, also of variants that the recipe no longer has."""
    of_recipe = {name: alone.sampling for name, alone in by_variant(recipe).items()}
    return of_recipe | {
        name: Sampling(**identity["sampling"], max_new_tokens=1) for name, identity in manifest.identity.items()
    }


@dataclass(slots=True)
class _Auditing:
    """The way of one audit's rows through its servers."""

    audit: Audit
    recipe: Recipe
    manifest: Manifest
    variants: Variants
    samplings: Mapping[str, Sampling]
    _left: deque[Chosen] = field(default_factory=deque)
    _started_s: float = 0.0
    _gone: dict[str, str] = field(default_factory=dict)

    async def all(self) -> None:
        listener().stage(f"auditing {len(self.audit.chosen):,} rows of manifest {self.manifest.version}")
        protocol = plugins.load("engines", self.recipe.engine.kind)
        if not hasattr(protocol, "score_payload"):
            raise no_logprobs(self.audit.servers[0], f"engine.kind {self.recipe.engine.kind}")
        async with open_http(self.recipe.engine) as http:
            last = servers_of(self.manifest)
            gate = await inspect_servers(self.recipe, self.variants, protocol=protocol, http=http, last=last)
            gate.refuse()
            asker = Asker(protocol, http, self.recipe.model.name)
            canary_ids = next(iter(self.variants.values())).canary_ids
            for url in self.audit.servers:
                await asker.check(url, canary_ids)
            self._left.extend(self.audit.chosen)
            self._started_s = time.monotonic()
            places = [report for report in gate.reports for _ in range(IN_FLIGHT)]
            await asyncio.gather(*(self._work(asker, report) for report in places))
        if self._left:
            self.audit.stopped = "; ".join(f"{url}: {words}" for url, words in self._gone.items())

    async def _work(self, asker: Asker, report: ServerReport) -> None:
        """Rows one after the other, until there are none or the server is gone."""
        url, longest = report.url, report.max_prompt
        while self._left and url not in self._gone:
            row = self._left.popleft()
            asked = row.asked(longest)
            if not len(asked.positions_S):
                words = f"its prompt fills the {longest} ids that the server takes"
                self.audit.failed.append(NotAudited(row.row_key, words))
                continue
            result = await asker.scores(url, row.ids_T[: asked.positions_S[-1] + 1], row.start)
            if isinstance(result, Fault) and result.kind in NO_MORE:
                self._left.appendleft(row)
                self._gone[url] = result.words
                return
            if isinstance(result, Fault):
                self.audit.failed.append(NotAudited(row.row_key, result.words))
            else:
                self.audit.rows.append(self._judged(row, asked, result))
            self._tell()

    def _judged(self, row: Chosen, asked: Asked, scores: Scores) -> RowAudit:
        generated = scores.at(np.asarray(asked.positions_S) - row.start)
        vocabulary = next(iter(self.variants.values())).vocabulary  # of the model, the same for all
        sampling = self.samplings[row.variant]
        return audited(asked, generated, sampling, vocabulary=vocabulary, tolerance=self.audit.tolerance)

    def _tell(self) -> None:
        done = len(self.audit.rows) + len(self.audit.failed)
        tokens = sum(row.positions for row in self.audit.rows)
        listener().rows(Rows(done, len(self.audit.chosen), tokens, time.monotonic() - self._started_s))
