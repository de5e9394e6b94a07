#!/bin/sh
# The main job on this machine: starts the embedded engine on a free port, runs the demo recipe through the flow,
# verifies the dataset, shows a row, and ends the engine.
set -eu

DATASET=${DEMO_DATASET:-demo-dataset}
WORK=$(pwd)/.demo
mkdir -p "$WORK"
# Prefect's database of its own, so that a demo never writes into a team's.
export PREFECT_HOME="${PREFECT_HOME:-$WORK/prefect}"
export DRAFTMILL_STATE="${DRAFTMILL_STATE:-$WORK/state}"

: > "$WORK/engine.url"
"$BIN/draftmill" engine --port 0 > "$WORK/engine.url" 2> "$WORK/engine.log" &
ENGINE=$!
trap 'kill $ENGINE 2>/dev/null; wait $ENGINE 2>/dev/null || true' EXIT INT TERM

echo "starting the embedded engine (SmolLM2-135M on llama.cpp)"
while ! [ -s "$WORK/engine.url" ]; do
    kill -0 $ENGINE 2>/dev/null || { cat "$WORK/engine.log" >&2; echo "the engine did not start" >&2; exit 1; }
    sleep 0.2
done
URL=$(cat "$WORK/engine.url")

status=0
"$BIN/draftmill" run deployments/recipes/demo.yaml \
    --set "engine.urls=[$URL]" --set "dataset=$DATASET" ${DEMO_PROMPTS:+--set "prompts.limit=$DEMO_PROMPTS"} || status=$?
# 3: sealed, but some answers went into quarantine: a model of 135M parameters may well loop. The dataset is good.
[ $status -eq 0 ] || [ $status -eq 3 ] || exit $status

echo
"$BIN/draftmill" verify "$DATASET"
echo
"$BIN/draftmill" show "$DATASET" 0
echo
"$BIN/python" - "$DATASET" <<'PYTHON'
import json, pathlib, sys
import pandas as pd
dataset = pathlib.Path(sys.argv[1])
newest = max((dataset / "manifests").glob("*.json"))
shards = json.loads(newest.read_text())["shards"]
rows = pd.concat([pd.read_parquet(dataset / shard["path"]) for shard in shards], ignore_index=True)
print(rows[["prompt_id", "prompt_len", "finish_reason", "stop_id", "input_ids"]].head(5).to_string(max_colwidth=40))
PYTHON
echo
echo "Where to look next: $DATASET/ (the dataset), draftmill status $DATASET, README.md for your own server."
