#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a GPU machine: bench/gpu.sh build|check|sanitize|time|layers|step|patrol|graphs|python|python-tables [more parts].
# Each part takes less than eight minutes; everything goes to build-gpu, the tables for docs/benchmarks.md to
# build-gpu/gpu_table.md. `layers`, `step` and `graphs` are about real FP8 in linear layers and whole models, and need a
# Python with torch; `patrol` is what measuring errors costs, as in `step`. `python` runs tests of the Python package,
# also with other people's libraries, `python-tables` its benchmarks: the package of GNMR_PYTHON_DIR, or one built here.
# Libraries that are not installed are found on PYTHONPATH. GNMR_PYTHON_TESTS names test files (default: all below).
# What is printed goes to python_tests.log, gpu_python.md and compiled_blocks.md in the folder OUT, or in build-gpu.
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
}

step() {
  engine gnmr_gpu_step
  "$out/engine/bin/gnmr_gpu_step" | tee -a "$out/gpu_table.md"
}

patrol() {
  engine gnmr_gpu_step
  "$out/engine/bin/gnmr_gpu_step" 12 fp8-tensorwise patrol | tee -a "$out/gpu_table.md"
}

# On the device: what is different there, and what takes other people's loops, layers and compilers. On the CPU of that
# machine: with its torch. The longest first.
device_tests="compile_graphs compile low_linear_device_runs compiled_parts loops_torchtitan_trainer ranks_device late
  attach step state recovery_path low_linear_device kernels loops_scaler loops_hugging_face loops_accelerate
  loops_lightning loops_torchtitan loops_megatron backends_torchao conformance doctor telemetry
  backends_torchao_compiled backends_torchao_patrol late_guard refresh"
host_tests="kernels ranks_pipelining backends_torchao doctor loops_import"

# One file: its log, and one line of how it ended.
python_file() {
  local device="$1" name="$2" log="$3" code=0
  [ -e "tests/python/${name}_test.py" ] || return 0
  GNMR_TEST_DEVICE="$device" timeout -k 5 300 python3 -m pytest -q -p no:cacheprovider -rfEs --tb=short \
    "tests/python/${name}_test.py" >"$log/$device.$name" 2>&1 || code=$?
  [ "$code" -ne 124 ] || echo "timed out after 300 s" >>"$log/$device.$name"
  echo "$code" >"$log/$device.$name.code"
}
export -f python_file

# The package on PYTHONPATH, and a place for what is printed.
python_package() {
  local package="${GNMR_PYTHON_DIR:-}"
  if [ -z "$package" ]; then
    engine gnmr_python_package
    package="$out/engine/python"
  fi
  PYTHONPATH="$(realpath "$package"):${PYTHONPATH:-}"
  export PYTHONPATH PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1
  mkdir -p "${OUT:-$out}"
}

python_() {
  local place="${OUT:-$out}" log failed=0 file name code
  python_package
  log="$(mktemp -d)"
  if [ -n "${GNMR_PYTHON_TESTS:-}" ]; then
    printf 'cuda %s\n' $GNMR_PYTHON_TESTS
  else
    printf 'cuda %s\n' $device_tests
    printf 'cpu %s\n' $host_tests
  fi | xargs -P 4 -L 1 bash -c 'python_file "$1" "$2" '"$log" _
  : >"$place/python_tests.log"
  for file in "$log"/*.code; do
    name="$(basename "$file" .code)" code="$(cat "$file")"
    { echo "==== $name (code $code)"; cat "$log/$name"; } >>"$place/python_tests.log"
    # Code 5: there was nothing to run, which is what a missing library comes to.
    printf '%-28s code %-3s %s\n' "$name" "$code" "$(tail -n 1 "$log/$name" | cut -c1-150)"
    case "$code" in
      0) ;;
      5) grep -h '^SKIPPED' "$log/$name" | cut -c1-200 ;;
      *) failed=1; grep -h '^E  \|^FAILED\|^ERROR' "$log/$name" | cut -c1-200 | awk '!seen[$0]++' | tail -n 24 ;;
    esac
  done
  rm -r "$log"
  return "$failed"
}

python_tables() {
  local place="${OUT:-$out}"
  python_package
  timeout 280 python3 bench/gpu_python.py 2>&1 | tee "$place/gpu_python.md"
  timeout 400 python3 bench/compiled_blocks.py 2>&1 | tee "$place/compiled_blocks.md"
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

[ $# -gt 0 ] || { sed -n '3,9s/^# //p' "$0"; exit 2; }
for part in "$@"; do
  case "$part" in
    build | check | sanitize | layers | step | patrol | graphs) "$part" ;;
    time) time_ ;;
    python) python_ ;;
    python-tables) python_tables ;;
    *) echo "unknown part: $part" >&2; exit 2 ;;
  esac
done
