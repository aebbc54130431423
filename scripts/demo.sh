#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo: a small model trained in FP8 with injected faults, with and without recovery. Needs build/bin/gnmr
# (`make demo` builds it). Without the training engine, a recorded run with known faults is replayed instead.
set -euo pipefail
cd "$(dirname "$0")/.."
gnmr=build/bin/gnmr

if [ -e "${GNMR_ENGINE:-build/lib/libgnmr_engine.so}" ]; then
  exec "$gnmr" lab demo "$@"
fi

run=examples/fault_run
pace=0
[ -t 2 ] && pace=120 # steps per second, to be watched

cat <<'TEXT'
The training engine was not built (no Python with torch was found: docs/train.md), so nothing is trained here.
Instead a recorded run is replayed.

A training run with 40 linear layers in low precision, 320 steps, 11 known faults in single layers (inputs that
saturate, gradients that overflow, one that underflows to 0, one NaN) and two bad batches in which no layer is at fault.
The norms come from a documented generator (examples/fault_run). At most 3 layers may be in recovery at one time.

TEXT
"$gnmr" replay "$run/norms.csv" --truth "$run/truth.csv" --max-o 3 --live --steps-per-second "$pace"
cat <<'TEXT'

The same run with the preset `paper` (no Fall-GNMR, fixed thresholds, plain history):

TEXT
"$gnmr" replay "$run/norms.csv" --truth "$run/truth.csv" --max-o 3 --preset paper | sed '/most often/,$d'
cat <<'TEXT'

Your own run: build/bin/gnmr replay YOUR_LOG   (CSV, TensorBoard, trainer_state.json, Megatron, llm.c, W&B, JSON Lines)
TEXT
