#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/install_dependencies.sh with an apt-get that is locked: it waits, and gives up only on other errors or in the
# end. Nothing is installed: apt-get, sudo, the compiler and sleep are stand-ins on PATH.
#
#   apt_lock_test.sh SCRIPT SCRATCH
set -euo pipefail
script=$1
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/bin"

stand_in() { # NAME, its lines on standard input
  { echo '#!/usr/bin/env bash'; cat; } >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}
stand_in c++ <<<'exit 1' # so that every header is missing
stand_in sleep <<<'exit 0'
stand_in sudo <<<'exec "$@"'
stand_in apt-get <<'LINES'
echo "$*" >>"$SCRATCH/calls"
if [ "$(wc -l <"$SCRATCH/calls")" -le "$LOCKED_CALLS" ]; then
  echo "$MESSAGE" >&2
  exit 100
fi
LINES

fail() {
  echo "FAILED: $1"
  echo "--- calls of apt-get:"; cat "$scratch/calls"
  echo "--- output:"; cat "$scratch/output"
  exit 1
}
run() { # LOCKED_CALLS MESSAGE WAIT_SECONDS; the status is in $status, what was called in calls
  rm -f "$scratch/calls"
  status=0
  SCRATCH=$scratch LOCKED_CALLS=$1 MESSAGE=$2 GNMR_APT_WAIT_SECONDS=$3 PATH=$scratch/bin:$PATH \
    "$script" bench >"$scratch/output" 2>&1 || status=$?
}

lock='E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1234 (apt-get)'
run 3 "$lock" 60
[ "$status" -eq 0 ] || fail "a lock that is released must be waited for (status $status)"
[ "$(wc -l <"$scratch/calls")" -eq 5 ] || fail "expected 4 calls of update and one of install"
grep -q 'DPkg::Lock::Timeout=60 install .*libbenchmark-dev' "$scratch/calls" || fail "install must wait for dpkg's lock"
[ "$(grep -c 'Waiting for another program' "$scratch/output")" -eq 1 ] || fail "it must say once that it waits"

run 100 "$lock" 0
[ "$status" -ne 0 ] || fail "a lock that stays must end in an error"
grep -q 'held by process 1234' "$scratch/output" || fail "the error must name who holds the lock"

run 100 'E: Unable to locate package libbenchmark-dev' 60
[ "$status" -ne 0 ] || fail "another error must end it"
[ "$(wc -l <"$scratch/calls")" -eq 1 ] || fail "another error must not be repeated"
grep -q 'Unable to locate package' "$scratch/output" || fail "the error must be shown"
echo "every check holds"
