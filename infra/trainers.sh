#!/bin/sh
# Makes .trainers: the trainers' own packages, whose pins and torch have no place beside draftmill's.
#
# torch without CUDA (TORCH_INDEX= takes PyPI's). SpecForge without what it depends on, a GPU's SGLang and torch of one
# version: its reader of tokenized rows is Python alone. No torchvision and torchaudio, which speculators asks for:
# reading ids needs neither.
set -eu

INTO=.trainers
TORCH_INDEX=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}
SPECFORGE="specforge==0.2.0"
SPECULATORS="speculators==0.9.0"
# What speculators 0.9.0 declares, but for the two above.
READERS="hs-connectors==0.9.0 aiohttp click datasets>=4,<=5.1.0 httpx huggingface-hub loguru>=0.7.2,<=0.7.3 numpy>=2
    openai>=2 protobuf psutil pydantic>=2 pydantic-settings>=2 rich safetensors tqdm transformers>=5,<=5.19.0 typer"
TORCH="torch>=2.9,<=2.14.1"

[ -x "$INTO/bin/python" ] || "${PYTHON:-python3}" -m venv "$INTO"
pip() { "$INTO/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

echo "installing the trainers' packages into $INTO (once; 1.5 GB, some minutes)"
pip ${TORCH_INDEX:+--index-url "$TORCH_INDEX" --extra-index-url https://pypi.org/simple} "$TORCH"
# shellcheck disable=SC2086
pip $READERS
pip --no-deps "$SPECFORGE" "$SPECULATORS"
