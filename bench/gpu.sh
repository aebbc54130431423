#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels on a GPU machine: bench/gpu.sh build|check|sanitize|time|layers|step|graphs [more parts]. Each part
# takes less than eight minutes; everything goes to build-gpu, the tables for docs/benchmarks.md to build-gpu/gpu_table.md.
# `layers`, `step` and `graphs` are about real FP8 in linear layers and whole models, and need a Python with torch.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build-gpu
export PATH="$PATH:/usr/local/cuda/bin"

build() {
  cmake -S bench/gpu -B "$out" -DCMAKE_BUILD_TYPE=Release
  cmake --build "$out" --parallel "$(nproc)"
}

# What needs torch, built when first asked for.
engine() {
  cmake -S . -B "$out/engine" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGNMR_BUILD_TESTS=ON -DGNMR_BUILD_BENCH=ON >/dev/null
  cmake --build "$out/engine" --parallel "$(nproc)" --target "$@"
}

check() {
  "$out/bin/gnmr_kernels_check"
  if python3 -c 'import torch' 2>/dev/null; then
    engine gnmr_torch_tests gnmr_models_tests gnmr_train_tests
    "$out/engine/bin/gnmr_torch_tests" --gtest_filter='*Device*'
    "$out/engine/bin/gnmr_models_tests" --gtest_filter='*BlockGraphs*:*Device*'
    "$out/engine/bin/gnmr_train_tests" --gtest_filter='*Device*'
  fi
}

layers() {
  engine gnmr_gpu_layers
  "$out/engine/bin/gnmr_gpu_layers" | tee -a "$out/gpu_table.md"
}

graphs() {
  engine gnmr_gpu_graphs
  "$out/engine/bin/gnmr_gpu_graphs" | tee -a "$out/gpu_table.md"
  "$out/bin/gnmr_gpu_conditional" | tee -a "$out/gpu_table.md"
}

step() {
  engine gnmr_gpu_step
  "$out/engine/bin/gnmr_gpu_step" | tee -a "$out/gpu_table.md"
}

sanitize() {
  local tool
  for tool in memcheck racecheck initcheck; do
    echo "== $tool"
    timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 1 "$out/bin/gnmr_kernels_check" --small
  done
}

time_() {
  timeout 200 "$out/bin/gnmr_gpu_bench" --json "$out/gpu_norms.json" | tee "$out/gpu_table.md"
  timeout 60 "$out/bin/gnmr_gpu_gate" | tee -a "$out/gpu_table.md"
  timeout 100 "$out/bin/gnmr_gpu_casts" | tee -a "$out/gpu_table.md"
  timeout 60 "$out/bin/gnmr_gpu_products" | tee -a "$out/gpu_table.md"
  # torch beside it, in the same session, where a Python with torch is there.
  if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    timeout 240 python3 bench/gpu_norms.py "$out/gpu_norms.json" | tee -a "$out/gpu_table.md"
  fi
}

[ $# -gt 0 ] || { sed -n '3,5s/^# //p' "$0"; exit 2; }
for part in "$@"; do
  case "$part" in
    build | check | sanitize | layers | step | graphs) "$part" ;;
    time) time_ ;;
    *) echo "unknown part: $part" >&2; exit 2 ;;
  esac
done
