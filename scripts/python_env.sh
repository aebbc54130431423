#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints a Python that has what is needed: `torch` (to build the training engine) or `test` (that, and what the tests
# compare with). It is the active one where it has all, else one in .venv, made here. A torch that the active Python has
# is used: no second one is downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-test}
case "$purpose" in
  torch) modules='torch' ;;
  test) modules='torch, numpy, ml_dtypes, safetensors, transformers, nanobind, scikit_build_core, pytest, mypy, ruff'
        modules+=', accelerate, lightning, tensorboard, torchao, peft, torchtitan, megatron' ;;
  *) echo "python_env: unknown purpose '$purpose' (torch, test)" >&2; exit 2 ;;
esac
# Looking for a module does not load it: torch takes seconds.
has() { # PYTHON MODULES
  "$1" -c 'import importlib.util, sys
sys.exit(any(importlib.util.find_spec(name.strip()) is None for name in sys.argv[1].split(",")))' "$2" >/dev/null 2>&1
}

if has python3 "$modules"; then
  command -v python3
  exit 0
fi
python=.venv/bin/python
if ! has "$python" "$modules"; then
  {
    if ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then scripts/install_dependencies.sh python; fi
    [ -x "$python" ] || python3 -m venv .venv
    # The active Python may itself be a virtual environment, so its packages are named by their folders.
    if has python3 torch; then
      folder=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
      python3 -c 'import sysconfig
print("\n".join(sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})))' >"$folder/active_python.pth"
    fi
    pip=("$python" -m pip install --quiet --disable-pip-version-check)
    if ! has "$python" torch; then
      echo "Installing torch into .venv (once; hundreds of MB, or some GB where pip gives the build with CUDA)"
      "${pip[@]}" -r scripts/requirements.txt
    fi
    if [ "$purpose" = test ]; then
      "${pip[@]}" -r tests/requirements.txt
      "${pip[@]}" --no-deps -r tests/requirements_alone.txt ||
        echo "python_env: without torchtitan and Megatron-Core; the tests with them are left out"
    fi
  } >&2
fi
echo "$PWD/$python"
