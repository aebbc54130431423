#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels on a GPU machine: bench/gpu.sh build|check|sanitize|time [more parts]. Each part takes less than eight
# minutes; everything goes to build-gpu, the table for docs/benchmarks.md to build-gpu/gpu_table.md.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build-gpu
export PATH="$PATH:/usr/local/cuda/bin"

build() {
  cmake -S bench/gpu -B "$out" -DCMAKE_BUILD_TYPE=Release
  cmake --build "$out" --parallel "$(nproc)"
}

check() { "$out/bin/gnmr_kernels_check"; }

sanitize() {
  local tool
  for tool in memcheck racecheck initcheck; do
    echo "== $tool"
    timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 1 "$out/bin/gnmr_kernels_check" --small
  done
}

time_() {
  timeout 200 "$out/bin/gnmr_gpu_bench" --json "$out/gpu_norms.json" | tee "$out/gpu_table.md"
  timeout 100 "$out/bin/gnmr_gpu_casts" | tee -a "$out/gpu_table.md"
  # torch beside it, in the same session, where a Python with torch is there.
  if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    timeout 240 python3 bench/gpu_norms.py "$out/gpu_norms.json" | tee -a "$out/gpu_table.md"
  fi
}

[ $# -gt 0 ] || { sed -n '3,4s/^# //p' "$0"; exit 2; }
for part in "$@"; do
  case "$part" in
    build | check | sanitize) "$part" ;;
    time) time_ ;;
    *) echo "unknown part: $part" >&2; exit 2 ;;
  esac
done
