#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the Python that tests run with: the active one where it has all that they need, else one in .venv, made here.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=tests/requirements.txt
has_all() { "$1" -c 'import numpy, ml_dtypes' >/dev/null 2>&1; }

if has_all python3; then
  command -v python3
  exit 0
fi
python=.venv/bin/python
if ! has_all "$python"; then
  {
    if ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then scripts/install_dependencies.sh python; fi
    [ -x "$python" ] || python3 -m venv .venv
    "$python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
  } >&2
fi
echo "$PWD/$python"
