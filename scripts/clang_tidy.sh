#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy on all sources of a configured build; a unity build is analysed many files at a time.
#
#   scripts/clang_tidy.sh build-lint 4
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
jobs=${2:-2}
# Texts that the build embeds do not exist in a folder that is only configured, and hold no code.
python3 -c 'import json, os, sys
files = {entry["file"] for entry in json.load(open(sys.argv[1]))}
print("\0".join(sorted(f for f in files if os.path.exists(f) and "torch_headers" not in f)), end="\0")' \
  "$build/compile_commands.json" |
  xargs -0 -n 1 -P "$jobs" clang-tidy -p "$build" --quiet
