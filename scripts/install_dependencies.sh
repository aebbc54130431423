#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing for a purpose: build, test, python, bench, format or lint. Does nothing where all is there.
#
#   scripts/install_dependencies.sh build test
#
# On Debian and Ubuntu the packages come from apt; elsewhere it says what to install.
set -euo pipefail

missing=()
optional=() # tests that need these are skipped where they cannot be had

need_command() { # COMMAND PACKAGE
  command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

need_header() { # HEADER PACKAGE
  command -v c++ >/dev/null 2>&1 || { missing+=("$2"); return; }
  printf '#if !__has_include(<%s>)\n#error missing\n#endif\n' "$1" | c++ -E -x c++ - >/dev/null 2>&1 || missing+=("$2")
}

# A header under the clang resource folder shows that the fuzzer's runtime is there.
need_fuzzer_runtime() {
  command -v clang++ >/dev/null 2>&1 || { missing+=(clang); }
  local version
  version=$(clang++ -dumpversion 2>/dev/null | cut -d. -f1) || version=14
  [ -n "${version}" ] || version=14
  ls "$(clang++ -print-resource-dir 2>/dev/null)"/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 ||
    missing+=("libclang-rt-${version}-dev")
}

# The package gnmr is built for the Python that runs its tests; one that is no system's brings its own headers.
need_python_headers() {
  python3 -c 'import pathlib, sys, sysconfig
sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())' >/dev/null 2>&1 ||
    missing+=(python3-dev)
}

for purpose in "$@"; do
  case "$purpose" in
    build)
      need_command c++ g++
      need_command cmake cmake
      need_command ninja ninja-build
      need_header nlohmann/json.hpp nlohmann-json3-dev
      need_header fmt/format.h libfmt-dev
      need_header CLI/CLI.hpp libcli11-dev
      need_header zlib.h zlib1g-dev
      ;;
    test)
      need_header gtest/gtest.h libgtest-dev
      need_python_headers
      need_fuzzer_runtime
      # Pages of reports are looked at in a browser, by a test that needs Node; without Node it is skipped anyway.
      ! command -v node >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
        command -v google-chrome >/dev/null 2>&1 || command -v chromium >/dev/null 2>&1 || optional+=(chromium)
      ;;
    python)
      need_command python3 python3
      python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)
      ;;
    bench) need_header benchmark/benchmark.h libbenchmark-dev ;;
    format) need_command clang-format clang-format ;;
    lint)
      need_command clang++ clang
      need_command clang-tidy clang-tidy
      ;;
    *) echo "install_dependencies: unknown purpose '$purpose' (build, test, python, bench, format, lint)" >&2; exit 2 ;;
  esac
done

[ $((${#missing[@]} + ${#optional[@]})) -eq 0 ] && exit 0

echo "Installing: ${missing[*]} ${optional[*]}"
if ! command -v apt-get >/dev/null 2>&1; then
  [ ${#missing[@]} -eq 0 ] && exit 0
  echo "This is no Debian or Ubuntu machine: please install the equivalents of these packages, then run make again." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    [ ${#missing[@]} -eq 0 ] && exit 0
    echo "Please run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
# Another apt (an automatic upgrade, say) may be at work: this waits for it. DPkg::Lock::Timeout covers dpkg's locks;
# those of the package lists and of the archive are only recognised by the message, so the call is repeated.
apt_wait_s=${GNMR_APT_WAIT_SECONDS:-600}
apt_get() { # ARGUMENTS of apt-get
  local messages end=$((SECONDS + apt_wait_s)) waiting=""
  until messages=$("${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o "DPkg::Lock::Timeout=$apt_wait_s" "$@" 2>&1 >/dev/null); do
    if [[ $messages != *"Could not get lock"* ]]; then
      printf 'apt-get %s failed:\n%s\n' "$*" "$messages" >&2
      return 1
    fi
    if [ "$SECONDS" -ge "$end" ]; then
      printf '%s\nIt was still locked after %s seconds: wait for the other program, then run make again.\n' \
        "$messages" "$apt_wait_s" >&2
      return 1
    fi
    [ -n "$waiting" ] || echo "Waiting for another program that uses apt (up to $apt_wait_s seconds)"
    waiting=yes
    sleep 1
  done
  [ -z "$messages" ] || printf '%s\n' "$messages" >&2
}

apt_get update
if [ ${#missing[@]} -gt 0 ]; then
  apt_get install -y --no-install-recommends "${missing[@]}"
fi
if [ ${#optional[@]} -gt 0 ]; then
  apt_get install -y --no-install-recommends "${optional[@]}" ||
    echo "Not installed: ${optional[*]}; what needs them is skipped"
fi
