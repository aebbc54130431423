# SPDX-License-Identifier: Apache-2.0
# The front door. It is thin: the work is in CMake (CMakePresets.json names the builds).
#
#   make demo    train in FP8 with injected faults, with and without GNMR: a table and an HTML report
#   make test    all tests: units, properties, sanitizers, fuzzers
#   make build   the program at build/bin/gnmr (make build TORCH=off: without the training engine)
#   make abuse   200 kills of training runs and 10,000 damaged files (SEED=7 KILLS=50 CORRUPTIONS=1000)
#   make bench   speed, beside a floor measured in the same run
#   make lint    clang-format, ruff, mypy, and clang-tidy on the layers without torch (make lint-all: with torch)
#   make format  formats the sources: clang-format and ruff
#   make report-script  bundle the script of reports anew (needs npm and its network)
SHELL := /bin/bash
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CONFIGURE = cmake --preset
# The training engine is built with LibTorch from this Python; where none can be had, all else is built.
TORCH ?= auto
TORCH_PYTHON = $(if $(filter off,$(TORCH)),,$$(scripts/python_env.sh torch))
TORCH_FLAGS = $(if $(filter off,$(TORCH)),-DGNMR_TORCH=OFF,-DGNMR_TORCH=AUTO -DGNMR_TORCH_PYTHON="$(TORCH_PYTHON)")
# The kernels are built where nvcc is found; a first build for the demo leaves them out where there is no GPU.
CUDA ?= AUTO
DEMO_CUDA = $(if $(wildcard build/CMakeCache.txt /dev/nvidia0 /dev/dxg),,-DGNMR_CUDA=OFF)
TEST_FLAGS = -DGNMR_BUILD_TESTS=ON -DGNMR_TEST_PYTHON="$$(scripts/python_env.sh test)"
# configure, FLAGS: what CMake says is shown where it fails.
configure = $(CONFIGURE) release $(1) >build-configure.log 2>&1 || \
  { cat build-configure.log; rm -f build-configure.log; exit 1; }; rm -f build-configure.log
OURS = $(shell git ls-files '*.cpp' '*.cu' '*.cuh' '*.h' '*.c')

.PHONY: all build demo test test-release test-package test-instrumented abuse bench format lint lint-style lint-all \
  clean help report-script
all: build

help:
	@sed -n '3,12s/^# \{0,1\}//p' Makefile

build:
	@scripts/install_dependencies.sh build
	@$(call configure,$(TORCH_FLAGS) -DGNMR_CUDA=$(CUDA))
	cmake --build build --parallel $(JOBS) --target programs

# The program and the training engine, without the C library and the Python package.
demo:
	@scripts/install_dependencies.sh build
	@$(call configure,$(TORCH_FLAGS) $(DEMO_CUDA))
	cmake --build build --parallel $(JOBS) --target demo_programs
	@scripts/demo.sh

# The last lines are CTest's summary of the release build.
test: test-instrumented test-package test-release

# The layers without torch under sanitizers, and a libFuzzer harness per reader.
test-instrumented:
	@scripts/install_dependencies.sh build test
	@$(CONFIGURE) instrumented >/dev/null
	cmake --build build-instrumented --parallel $(JOBS)
	ctest --test-dir build-instrumented --parallel $(JOBS) --output-on-failure

test-release:
	@scripts/install_dependencies.sh build test
	@$(call configure,$(TORCH_FLAGS) -DGNMR_CUDA=$(CUDA) $(TEST_FLAGS))
	cmake --build build --parallel $(JOBS)
	ctest --test-dir build --parallel $(JOBS) --output-on-failure --label-exclude packaging

# `pip install .` from scratch, into an environment of its own.
test-package:
	@scripts/install_dependencies.sh build test
	@$(call configure,$(TORCH_FLAGS) -DGNMR_CUDA=$(CUDA) $(TEST_FLAGS))
	ctest --test-dir build --output-on-failure --label-regex packaging

# What docs/reliability.md promises, with random kills and random damage; the same seed does the same again. ABUSE has
# more flags: make abuse ABUSE="--only kill:3 --keep kept".
SEED ?= 1
KILLS ?= 200
CORRUPTIONS ?= 10000
abuse: build
	@scripts/install_dependencies.sh test
	@$(call configure,$(TEST_FLAGS))
	cmake --build build --parallel $(JOBS) --target gnmr_abuse gnmr_python_package
	build/bin/gnmr_abuse --seed $(SEED) --kills $(KILLS) --corruptions $(CORRUPTIONS) --jobs $(JOBS) \
	  --python "$$(scripts/python_env.sh test)" $(ABUSE)

bench:
	@scripts/install_dependencies.sh build bench
	@$(CONFIGURE) release -DGNMR_BUILD_BENCH=ON >/dev/null
	cmake --build build --parallel $(JOBS)
	bench/run.sh

TEST_PYTHON = $$(scripts/python_env.sh test)
format:
	@scripts/install_dependencies.sh format
	clang-format -i $(OURS)
	@$(TEST_PYTHON) -m ruff check --fix
	@$(TEST_PYTHON) -m ruff format

lint: lint-style
	@$(CONFIGURE) lint -DGNMR_TORCH=OFF >/dev/null
	scripts/clang_tidy.sh build-lint $(JOBS)

# With the layers on torch, which are slow to analyse.
lint-all: lint-style
	@$(CONFIGURE) lint -DGNMR_TORCH=ON -DGNMR_TORCH_PYTHON="$$(scripts/python_env.sh torch)" >/dev/null
	scripts/clang_tidy.sh build-lint $(JOBS)

# mypy needs the stub of gnmr._core, which the build of the package makes.
lint-style:
	@scripts/install_dependencies.sh build test format lint
	@clang-format --dry-run -Werror $(OURS)
	@$(TEST_PYTHON) -m ruff check
	@$(TEST_PYTHON) -m ruff format --check
	@$(call configure,$(TORCH_FLAGS) -DGNMR_CUDA=$(CUDA) $(TEST_FLAGS))
	cmake --build build --parallel $(JOBS) --target gnmr_python_types
	cd build/python && "$$(cd ../.. && scripts/python_env.sh test)" -m mypy --strict -p gnmr

report-script:
	cd gnmr/report/web && npm ci --ignore-scripts && node build.mjs

clean:
	rm -rf build build-instrumented build-lint
