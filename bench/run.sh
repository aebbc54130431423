#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks that `make bench` has built; docs/benchmarks.md says how to read them.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in controller replay formats; do
  "build/bin/gnmr_${name}_bench" --benchmark_counters_tabular=true "$@"
done
# The training engine beside plain torch in Python, where both are there.
if [ -e build/lib/libgnmr_engine.so ]; then
  "$(scripts/python_env.sh torch)" bench/train_speed.py build/lib/libgnmr_engine.so
fi
