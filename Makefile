# SPDX-License-Identifier: Apache-2.0
# The front door. It is thin: the work is in CMake (CMakePresets.json names the builds).
#
#   make demo    train in FP8 with injected faults, with and without GNMR: a table and an HTML report
#   make test    all tests: units, properties, sanitizers, fuzzers
#   make build   the program at build/bin/gnmr (make build TORCH=off: without the training engine)
#   make abuse   200 kills of training runs and 10,000 damaged files (SEED=7 KILLS=50 CORRUPTIONS=1000)
#   make bench   speed, beside a floor measured in the same run
#   make format  clang-format on our own files; make lint: clang-tidy
SHELL := /bin/bash
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CONFIGURE = cmake --preset
# The training engine is built with LibTorch from this Python; where none can be had, all else is built.
TORCH ?= auto
TORCH_PYTHON = $(if $(filter off,$(TORCH)),,$$(scripts/python_env.sh torch))
TORCH_FLAGS = $(if $(filter off,$(TORCH)),-DGNMR_TORCH=OFF,-DGNMR_TORCH=AUTO -DGNMR_TORCH_PYTHON="$(TORCH_PYTHON)")
OURS = $(shell git ls-files '*.cpp' '*.h' '*.c')

.PHONY: all build demo test test-release test-package test-sanitized test-fuzz abuse bench format lint clean help
all: build

help:
	@sed -n '3,11s/^# \{0,1\}//p' Makefile

build:
	@scripts/install_dependencies.sh build
	@$(CONFIGURE) release $(TORCH_FLAGS) >build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }
	@rm -f build-configure.log
	cmake --build build --parallel $(JOBS) --target programs

demo: build
	@scripts/demo.sh

# The short runs first: a failure there is seen early. The last lines are CTest's summary of the release build.
test: test-sanitized test-fuzz test-package test-release

test-release: build
	@scripts/install_dependencies.sh test
	@$(CONFIGURE) release -DGNMR_BUILD_TESTS=ON -DGNMR_TEST_PYTHON="$$(scripts/python_env.sh test)" >/dev/null
	cmake --build build --parallel $(JOBS)
	ctest --test-dir build --parallel $(JOBS) --output-on-failure --label-exclude packaging

# What takes as long as all other tests: `pip install .` from scratch, into an environment of its own.
test-package: build
	@scripts/install_dependencies.sh test
	@$(CONFIGURE) release -DGNMR_BUILD_TESTS=ON -DGNMR_TEST_PYTHON="$$(scripts/python_env.sh test)" >/dev/null
	ctest --test-dir build --output-on-failure --label-regex packaging

test-sanitized:
	@scripts/install_dependencies.sh build test
	@$(CONFIGURE) sanitized >/dev/null
	cmake --build build-sanitized --parallel $(JOBS)
	ctest --test-dir build-sanitized --parallel $(JOBS) --output-on-failure

test-fuzz:
	@scripts/install_dependencies.sh build test
	@$(CONFIGURE) fuzz >/dev/null
	cmake --build build-fuzz --parallel $(JOBS) --target fuzzers
	ctest --test-dir build-fuzz --parallel $(JOBS) --output-on-failure

# What docs/reliability.md promises, with random kills and random damage; the same seed does the same again. ABUSE has
# more flags: make abuse ABUSE="--only kill:3 --keep kept".
SEED ?= 1
KILLS ?= 200
CORRUPTIONS ?= 10000
abuse: build
	@scripts/install_dependencies.sh test
	@$(CONFIGURE) release -DGNMR_BUILD_TESTS=ON -DGNMR_TEST_PYTHON="$$(scripts/python_env.sh test)" >/dev/null
	cmake --build build --parallel $(JOBS) --target gnmr_abuse gnmr_python_package
	build/bin/gnmr_abuse --seed $(SEED) --kills $(KILLS) --corruptions $(CORRUPTIONS) --jobs $(JOBS) \
	  --python "$$(scripts/python_env.sh test)" $(ABUSE)

bench:
	@scripts/install_dependencies.sh build bench
	@$(CONFIGURE) release -DGNMR_BUILD_BENCH=ON >/dev/null
	cmake --build build --parallel $(JOBS)
	bench/run.sh

format:
	@scripts/install_dependencies.sh format
	clang-format -i $(OURS)

lint:
	@scripts/install_dependencies.sh build test lint
	@$(CONFIGURE) release -DGNMR_BUILD_TESTS=ON >/dev/null
	clang-tidy -p build --quiet $(filter gnmr/% apps/%,$(filter %.cpp,$(OURS)))

clean:
	rm -rf build build-sanitized build-fuzz
