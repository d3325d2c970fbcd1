# Every target does the set-up that it needs; `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help build demo demo-updates demo-redis demo-ctr demo-triton demo-train demo-online \
        train-package triton-backend bench-triton gpu gpu-tests test test-all test-gpu fuzz check \
        check-all bench format install wheel wheel-gpu clean setup-build setup-updates \
        setup-redis setup-test setup-fuzz setup-check setup-gpu setup-train setup-ctr setup-triton \
        setup-wheel
MAKEFLAGS += --no-print-directory
export NINJA_STATUS ?= [%f/%t %es] #
PREFIX ?= /usr/local
# Paths of the checkout are none of an object's: ccache gives one what another has compiled.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
HPS_CUDA_VENV ?= $(CURDIR)/.venv-cuda
export HPS_CUDA_VENV
PYTHON ?= /usr/bin/python3
SOURCE ?= stream
DEVICE ?= cpu
TRAIN_PYTHON ?= python3
SCENARIOS ?= l2 l3 import session serve
FUZZ_SECONDS ?= 60

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/\1@\2/p' Makefile | \
	  while IFS=@ read -r name what; do printf '  make %-10s %s\n' "$$name" "$$what"; done

build: setup-build  ## build everything into build/cpu (the command is build/cpu/bin/hps)
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu

demo: setup-build  ## make a model with a planted truth, import it, serve it, check every row
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu hps hps_demo $$(ninja -C build/cpu -t targets all | \
	  sed -n 's/^\(hps_grpc_client\): phony$$/\1/p')
	@examples/demo/demo.py build/cpu/bin

demo-updates: setup-updates  ## rows change while they are served (SOURCE=direct: no broker)
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu hps
	@$(PYTHON) examples/demo_updates/demo_updates.py build/cpu/bin/hps $(SOURCE)

demo-redis: setup-redis  ## level 2 on a Redis Cluster, of which a master is killed while it serves
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu hps
	@$(PYTHON) examples/demo_redis/demo_redis.py build/cpu/bin/hps

ifeq ($(DEVICE),cpu)
demo-train: train-package  ## train DeepFM (DEVICE=cuda: on a GPU), export, import, serve, compare
	@.venv-python/bin/python examples/train/demo_train.py build/cpu/bin/hps
else
# PyTorch of .venv-python has no CUDA: TRAIN_PYTHON's needs it, and NumPy and onnx.
demo-train: wheel-gpu
	@$(TRAIN_PYTHON) -m pip --disable-pip-version-check install --quiet --upgrade --no-deps \
	  --target build/gpu_package dist/gpu/hps-*.whl nanobind-backend==1.0.0
	@PYTHONPATH=build/gpu_package $(TRAIN_PYTHON) examples/train/demo_train.py build/cuda/bin/hps \
	  --device $(DEVICE)
endif

demo-ctr: setup-ctr  ## train DeepFM with PyTorch, split, import, serve predictions, compare
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu hps
	@.venv-python/bin/python examples/demo_ctr/demo_ctr.py build/cpu/bin/hps .venv/bin/python

triton-backend: setup-build  ## build the backend of Triton: build/cpu/triton/hps/libtriton_hps.so
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu triton-backend

demo-triton: setup-triton  ## hps in a tritonserver: lookups, an ensemble, perf_analyzer
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu hps triton-backend
	@.venv/bin/python examples/demo_triton/demo_triton.py build/cpu

bench-triton: setup-triton setup-ctr  ## predictions of hps serve beside an ensemble in Triton
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu hps triton-backend
	@mkdir -p build/bench
	@.venv-python/bin/python tools/bench_triton.py build/cpu --out build/bench/triton.json

demo-online: train-package  ## a trainer follows a drifting stream, and the served model follows it
	@.venv-python/bin/python examples/train/demo_online.py build/cpu/bin/hps

# The command, and the package in .venv-python/, as they are in the tree.
train-package: setup-train
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu hps
	@echo "installing the Python package into .venv-python/"
	@.venv-python/bin/pip install --quiet --no-deps --disable-pip-version-check \
	  --no-build-isolation .

gpu: setup-gpu  ## build with CUDA into build/cuda, without tests (no GPU needed)
	@PATH=$(HPS_CUDA_VENV)/bin:$$PATH cmake --preset cuda -DHPS_BUILD_TESTS=OFF >/dev/null
	@$(HPS_CUDA_VENV)/bin/ninja -C build/cuda

gpu-tests: setup-gpu  ## as gpu, with the tests, for this machine or for tools/gpu_pack.sh
	@PATH=$(HPS_CUDA_VENV)/bin:$$PATH cmake --preset cuda -DHPS_BUILD_TESTS=ON >/dev/null
	@$(HPS_CUDA_VENV)/bin/ninja -C build/cuda

test: setup-test  ## build and run the tests, some also under sanitizers: "N passed, N failed"
	@tools/run_tests.py

# HPS_TEST_TRIALS_PERCENT=5000 makes fifty times as many trials, as for a release.
test-all: setup-test  ## as test, everything under each sanitizer, with all trials (ONLY=l2: a part)
	@tools/run_tests.py --all --only "$(ONLY)" --timeout 14400

test-gpu: gpu-tests  ## what needs a GPU: tests, benchmarks of level 1; JSON into build/gpu_check
	@tools/gpu_check.sh build/cuda build/gpu_check

# A finding ends it: the input that makes the program fail lies in build/fuzz/found/.
fuzz: setup-fuzz  ## run the fuzz programs, each for a minute (FUZZ_SECONDS=60), with clang
	@cmake --preset fuzz >/dev/null
	@ninja -C build/fuzz fuzz-programs
	@tools/fuzz.sh build/fuzz $(FUZZ_SECONDS)

check: setup-check  ## layers, style, format, clang's analysis; clang-tidy on changed files
	@tools/check.py

check-all: setup-check  ## as check, with clang and clang-tidy on all files, tests too
	@tools/check.py --all

bench: setup-test build  ## run the benchmarks (SCENARIOS="l2 l3 import session serve"): build/bench
	@mkdir -p build/bench
	@set -e; for scenario in $(SCENARIOS); do \
	  build/cpu/bin/hps bench $$scenario --out build/bench/$$scenario.json; \
	  .venv/bin/python tools/bench_report.py build/bench/$$scenario.json \
	  --out build/bench/$$scenario.html; done

format: setup-check  ## format every source file in place
	@git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format-14 -i
	@echo "formatted"

install: setup-build  ## install the library, its headers and the command below PREFIX (/usr/local)
	@cmake --preset cpu >/dev/null
	@ninja -C build/cpu installed
	@cmake --install build/cpu --prefix $(PREFIX)

wheel: setup-wheel  ## build the Python package into dist/, over the libraries of build/cpu
	@/usr/bin/python3 -m venv build/wheel-venv
	@build/wheel-venv/bin/pip --disable-pip-version-check wheel --no-deps --wheel-dir dist .

# CMake and nvcc of .venv-cuda/; the extension itself has no CUDA.
wheel-gpu: setup-wheel gpu  ## the same with level 1 and training on the GPU
	@/usr/bin/python3 -m venv build/wheel-venv
	@PATH=$(HPS_CUDA_VENV)/bin:$$PATH build/wheel-venv/bin/pip --disable-pip-version-check wheel \
	  --no-deps --wheel-dir dist/gpu --config-settings=cmake.define.HPS_BUILD=$(CURDIR)/build/cuda \
	  --config-settings=build-dir=build/python-gpu .

clean:  ## remove what was built (.venv/, .venv-python/ and .venv-cuda/ stay)
	rm -rf build dist

setup-build:
	@tools/bootstrap.sh build
setup-updates:
	@tools/bootstrap.sh $(if $(filter direct,$(SOURCE)),build,kafka)
setup-redis:
	@tools/bootstrap.sh redis
setup-test:
	@tools/bootstrap.sh test
setup-fuzz:
	@tools/bootstrap.sh fuzz
setup-check:
	@tools/bootstrap.sh check
setup-gpu:
	@tools/bootstrap.sh gpu
setup-train:
	@tools/bootstrap.sh train
setup-ctr:
	@tools/bootstrap.sh ctr
setup-triton:
	@tools/bootstrap.sh triton
setup-wheel:
	@tools/bootstrap.sh wheel
