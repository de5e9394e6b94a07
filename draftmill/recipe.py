"""A recipe: one YAML file that says a whole run.

YAML (or the form of Prefect's UI) in, a frozen `Recipe` out. Every value is
checked here, before anything is read or sent; unknown keys are refused, with
the known ones named. Fields marked (identity) are part of a row's key: a change
asks the rows anew. All others may change without touching what is finished.

Relative paths are relative to the folder the command runs in.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from draftmill.recipe_fields import (
    DATE_OR_TODAY,
    NUMBER,
    AutoOrOff,
    Count,
    EngineUrl,
    Float,
    Int,
    Location,
    MinP,
    Off,
    Part,
    Penalty,
    RepetitionPenalty,
    Share,
    Temperature,
    TokenId,
    TopK,
    choices,
    plugin_name,
)

SHARES_MISS_BY = 1e-6
"""How far the shares of all variants may be from 1: a third cannot be written exactly."""


class Prompts(Part):
    """Where the prompts come from and which of them become rows."""

    path: Location | Annotated[list[Location], Field(min_length=1)] = Field(
        description="File, folder, glob or URL (without user, password or query), or a list of them."
    )
    format: str = Field(
        "auto",
        description="auto, or a name from the sources shelf.",
        json_schema_extra=choices("sources", "auto"),
    )
    fields: dict[str, str] = Field(default={}, description="For odd column names: {messages: dialogue, id: uuid}.")
    split: str = Field("train", description="Split of a Hugging Face folder.")
    limit: Count | None = Field(None, description="Only the first N prompts; null = all.")
    turns: Literal["last", "all"] = Field(
        "last", description="last: one completion after the last user turn; all: every assistant turn anew."
    )
    special_text: Literal["keep", "reject"] = Field(
        "keep", description="Text in content that becomes control ids: keep (counted) or reject the prompt."
    )
    min_room: Int = Field(256, ge=1, description="Tokens a prompt must leave for the answer, else prompt_too_long.")

    @property
    def paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else list(self.path)


class Model(Part):
    """The target model, its tokenizer and its chat template."""

    name: str = Field(min_length=1, description="What the server must serve. (identity)")
    revision: str | None = Field(None, description="The weights' revision; null for a local model only. (identity)")
    quantization: str | None = Field(None, description="For example fp8. (identity)")
    context_length: Int = Field(ge=16, description="Tokens of prompt and answer together.")
    tokenizer: str | None = Field(
        None, description="Folder or hub id; null = name; 'embedded' = the embedded engine's own, built from its GGUF."
    )
    tokenizer_revision: str | None = Field(None, description="null = revision; a hub id needs one of them.")
    chat_template: str | None = Field(None, description="A file, in place of the tokenizer's own template.")
    template_kwargs: dict[str, Any] = Field(default={}, description="For the template: {thinking: true}.")
    date: dt.date | Literal["today"] | None = Field(
        None,
        description="The date templates print, or today; templates that print one are refused without it.",
        json_schema_extra={"pattern": DATE_OR_TODAY},
    )
    trust_remote_code: bool = Field(
        False, description="Allow the tokenizer's own Python code. Needs a pinned revision."
    )


class Sampling(Part):
    """How the model samples. Every value is sent, so that no server default applies."""

    temperature: Temperature = Field(description="0 = greedy. (identity)")
    top_p: Share = Field(description="Nucleus: the least share of probability sampled from; 1 = off. (identity)")
    max_new_tokens: Count = Field(description="Budget of an answer in tokens. Raised: only rows cut by length anew.")
    top_k: TopK = Field(-1, description="Candidates; -1 = off. (identity)")
    min_p: MinP = Field(0, description="Least probability, as a share of the likeliest token's; 0 = off. (identity)")
    repetition_penalty: RepetitionPenalty = Field(1, description="1 = off. (identity)")
    presence_penalty: Penalty = Field(0, description="0 = off. (identity)")
    frequency_penalty: Penalty = Field(0, description="0 = off. (identity)")
    stop_token_ids: list[TokenId] = Field(
        default=[], description="Ids that end an answer beside the model's own. (identity)"
    )
    samples: Int = Field(1, ge=1, le=1024, description="Answers per prompt.")

    @model_validator(mode="after")
    def _greedy_once(self) -> Sampling:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("samples > 1 at temperature 0 would store the same answer again; raise the temperature")
        return self


class SamplingChange(Part):
    """What a variant samples otherwise than the recipe; null = as the recipe."""

    temperature: Temperature | None = Field(None, description="null = as the recipe; 0 = greedy. (identity)")
    top_p: Share | None = Field(None, description="null = as the recipe. (identity)")
    max_new_tokens: Count | None = Field(None, description="null = as the recipe: budget of an answer in tokens.")
    top_k: TopK | None = Field(None, description="null = as the recipe; -1 = off. (identity)")
    min_p: MinP | None = Field(None, description="null = as the recipe. (identity)")
    repetition_penalty: RepetitionPenalty | None = Field(None, description="null = as the recipe. (identity)")
    presence_penalty: Penalty | None = Field(None, description="null = as the recipe. (identity)")
    frequency_penalty: Penalty | None = Field(None, description="null = as the recipe. (identity)")
    stop_token_ids: list[TokenId] | None = Field(None, description="null = as the recipe. (identity)")


class Variant(Part):
    """One way of asking; a hash of the prompt chooses whom it asks."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_.-]*$",
        max_length=64,
        description="As the column `variant` has it; part of prompt_key.",
    )
    share: Share = Field(description="Share of the prompts; all shares together are 1.")
    template_kwargs: dict[str, Any] = Field(default={}, description="On top of model.template_kwargs.")
    sampling: SamplingChange = Field(default=SamplingChange(), description="What is sampled otherwise.")


class Engine(Part):
    """The inference servers and how hard they are driven."""

    kind: str = Field("sglang", description="A name from the engines shelf.", json_schema_extra=choices("engines"))
    urls: list[EngineUrl] = Field(
        default=["http://127.0.0.1:30000"],
        min_length=1,
        description="One URL per server, without user, password or query.",
    )
    api_key_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="The name of an environment variable, never the key itself.",
    )
    in_flight: Int = Field(256, ge=1, le=65536, description="Requests at once, per URL.")
    retries: Int = Field(5, ge=0, le=100, description="Of one row.")
    wait_s: Float = Field(
        600, ge=0, description="Seconds without any usable server before the gate, or a run, gives up."
    )
    weights: Literal["stop", "record"] = Field(
        "stop", description="Another weight version in the middle of a run: stop, or go on and record it row by row."
    )

    @field_validator("kind")
    @classmethod
    def _kind(cls, value: str) -> str:
        return plugin_name("engines", value)


class Breaker(Part):
    """Stops a run whose answers are mostly wrong before it has cost a night."""

    share: Share = Field(0.2, description="Share of bad rows in the window that stops the run.")
    window: Int = Field(200, ge=1, description="Finished rows looked at.")


class Recipe(Part):
    """A complete written run."""

    dataset: Location = Field(description="Folder or s3://bucket/prefix.")
    prompts: Prompts = Field(description="Where the prompts come from and which of them become rows.")
    model: Model = Field(description="The target model, its tokenizer and its chat template.")
    sampling: Sampling = Field(description="How the model samples. Every value is sent: no server default applies.")
    variants: Annotated[list[Variant], Field(min_length=1)] | None = Field(
        None, description="Several ways of asking, chosen by a hash of the prompt; null = one, called default."
    )
    engine: Engine = Field(default=Engine(), description="The inference servers and how hard they are driven.")
    structure: str = Field(
        "auto",
        description="auto, plain, or a name from the structures shelf.",
        json_schema_extra=choices("structures", "auto"),
    )
    degenerate: AutoOrOff | Annotated[int, Field(ge=16), NUMBER] = Field(
        "auto", description="Ids at an answer's end that a repeated cycle may cover; auto = 256; off."
    )
    breaker: Breaker | Off = Field(
        default=Breaker(), description="Stops a run whose answers are mostly wrong before it has cost a night; or off."
    )
    chunk_rows: Literal["auto"] | Count = Field(
        "auto", description="Rows per chunk (a Prefect task); auto = max(256, rows / 240). At most 240 chunks are made."
    )
    removed: Literal["keep", "drop"] = Field("keep", description="Rows whose prompt is gone from the source.")
    on_truncated: Literal["keep", "quarantine", "continue"] = Field(
        "keep", description="Rows cut by length; continue: asked on from the ids so far."
    )
    continue_times: Int = Field(
        4, ge=1, le=1000, description="How often a row is asked on, max_new_tokens each, with on_truncated: continue."
    )
    commit: Literal["create", "lock"] = Field(
        "create",
        description="For object storage that does not honour create-only puts: refuse it, or hold a lock object.",
    )
    keep_messages: bool = Field(True, description="The source's messages as a column.")

    @field_validator("structure")
    @classmethod
    def _structure(cls, value: str) -> str:
        return value if value == "auto" else plugin_name("structures", value)

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.prompts.turns == "all" and self.on_truncated == "continue":
            raise ValueError(
                "prompts.turns: all does not go with on_truncated: continue: a turn is asked on top of whole turns; "
                "raise sampling.max_new_tokens, and use on_truncated: keep or quarantine"
            )
        if self.prompts.format != "auto":
            plugin_name("sources", self.prompts.format)
        if self.sampling.max_new_tokens >= self.model.context_length:
            raise ValueError("sampling.max_new_tokens must be less than model.context_length")
        self._check_variants()
        return self

    def _check_variants(self) -> None:
        variants = self.variants or []
        names = [variant.name for variant in variants]
        if len(set(names)) < len(names):
            raise ValueError(f"variants: each needs a name of its own, got {', '.join(names)}")
        total = sum(variant.share for variant in variants)
        if variants and abs(total - 1) > SHARES_MISS_BY:
            raise ValueError(f"variants: the shares add up to {total:.6g}, not to 1")
        for variant in variants:
            self.of_variant(variant)

    def of_variant(self, variant: Variant) -> Recipe:
        """The recipe as if all prompts were asked this one way. Raises ValueError for values that cannot be."""
        try:
            changed = {name: value for name, value in variant.sampling if value is not None}
            sampling = Sampling.model_validate(self.sampling.model_dump() | changed)
            kwargs = self.model.template_kwargs | variant.template_kwargs
            model = self.model.model_copy(update={"template_kwargs": kwargs})
            alone = self.model_copy(update={"sampling": sampling, "model": model, "variants": None})
            return Recipe.model_validate(alone.model_dump())
        except ValidationError as error:
            words = "; ".join(str(fault["msg"]) for fault in error.errors())
            raise ValueError(f"variants: {variant.name}: {words}") from None

    @property
    def label(self) -> str:
        """What runs of it are called."""
        return dataset_label(self.dataset)


def dataset_label(dataset: str) -> str:
    """The last segment of a dataset's path or URL."""
    return dataset.rstrip("/").rsplit("/", 1)[-1]


def anchored(recipe: Recipe) -> Recipe:
    """The same recipe with local paths absolute and "today" a day, so that it means the same wherever it runs again."""
    prompts = recipe.prompts.model_copy(update={"path": [_absolute(path) for path in recipe.prompts.paths]})
    model = recipe.model
    folder = model.tokenizer if model.tokenizer and Path(model.tokenizer).expanduser().is_dir() else None
    model = model.model_copy(
        update={
            "chat_template": model.chat_template and _absolute(model.chat_template),
            "tokenizer": _absolute(folder) if folder else model.tokenizer,
            "date": dt.date.today() if model.date == "today" else model.date,
        }
    )
    return recipe.model_copy(update={"dataset": _absolute(recipe.dataset), "prompts": prompts, "model": model})


def _absolute(path: str) -> str:
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    return path if "://" in path else str(Path(path).expanduser().absolute())
