#!/bin/bash
# Makes a Debian 12 ready for hps: packages from Debian, Python packages into .venv*/.
#
#   tools/bootstrap.sh build    what `make build` and `make demo` need; OpenVINO and the schema of
#                               ONNX from PyPI in $HPS_BUILD_VENV (.venv-build/, 0.25 GB)
#   tools/bootstrap.sh kafka    ... and a Kafka broker (.kafka/), for `make demo-updates`
#   tools/bootstrap.sh test     ... and what the tests need: .venv/, a Kafka broker (.kafka/),
#                               PyTorch, TensorFlow and JAX for the Python package's
#                               (.venv-python/; 3.2 GB), and Triton (.venv-bench/; 0.4 GB)
#   tools/bootstrap.sh train    what `make demo-train` needs: as build, and PyTorch (.venv-python/)
#   tools/bootstrap.sh ctr      what `make demo-ctr` needs: as train, and Triton's client (.venv/)
#   tools/bootstrap.sh wheel    what `make wheel` needs: as build, pip, and headers of JAX from PyPI
#   tools/bootstrap.sh check    ... and clang's tools (the default: everything but the next)
#   tools/bootstrap.sh redis    what `make demo-redis` needs: as build, and Redis' server
#   tools/bootstrap.sh gpu      what `make gpu` needs: as test, and the CUDA toolkit, a CMake for
#                               it and headers of cuBLASLt from PyPI in $HPS_CUDA_VENV (.venv-cuda/;
#                               0.4 GB, 0.8 GB to download); neither GPU nor driver. Set the
#                               variable to share one among work trees.
#   tools/bootstrap.sh fuzz     what the preset `fuzz` needs: as build, and clang with its runtime
#   tools/bootstrap.sh bench    the peers of `hps bench serve`: as build, Redis, and Triton with its
#                               perf_analyzer and ONNX Runtime from PyPI in .venv-bench/
#   tools/bootstrap.sh triton   what `make demo-triton` needs: as bench, and its client (.venv/).
#                               `make bench-triton` needs this and ctr
#
# Needs root or sudo only when something is missing. A second run installs nothing and takes a
# fraction of a second. Every package is pinned to the version that hps is tested with
# (docs/dependencies.md says why each is needed).
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
  g++=4:12.2.*
  cmake=3.25.*
  ninja-build=1.11.*
  pkg-config=1.8.*
  python3=3.11.*
  python3-venv=3.11.*
  ccache=4.8*
  mold=1.10.*
  libabsl-dev=20220623.1-*
  librocksdb-dev=7.8.3-*
  liburing-dev=2.3-*
  libxxhash-dev=0.8.1-*
  libspdlog-dev=1:1.10.*
  libcli11-dev=2.1.2*
  libtomlplusplus-dev=3.3.*
  nlohmann-json3-dev=3.11.*
  libboost1.81-dev=1.81.0-*
  libssl-dev=3.0.*
  zlib1g-dev=1:1.2.13.*
  prometheus-cpp-dev=1.0.1-*
  libnghttp2-dev=1.52.0-*
  librdkafka-dev=2.0.2-*
  libhiredis-dev=0.14.1-*
  libgrpc++-dev=1.51.1-*
  libprotobuf-dev=3.21.12-*
  protobuf-compiler=3.21.12-*
  protobuf-compiler-grpc=1.51.1-*
  libgtest-dev=1.12.1-*
  libgmock-dev=1.12.1-*
)
# The package redis-server would start a daemon; its program is in redis-tools, too.
# Prometheus comes with promtool; install_packages keeps its daemon from starting.
# Chromium's version is that of Debian's security updates; it shows the dashboard to a test.
test_packages=(
  openssl=3.0.*
  curl=7.88.*
  chromium-headless-shell
  fonts-dejavu-core=2.37-*
  libb64-0d=1.2-*
  libfaketime=0.9.10-*
  prometheus=2.42.*
  redis-tools=5:7.0.15-*
)
# For the package of Python: its extension is compiled.
python_packages=(python3-dev=3.11.* python3-venv=3.11.* binutils=2.40-*)
# Kafka's broker runs on Java; Maven fetches it.
kafka_packages=(openjdk-17-jre-headless=17.* maven=3.8.7-*)
redis_packages=(redis-tools=5:7.0.15-*)
bench_packages=(libb64-0d=1.2-* redis-tools=5:7.0.15-*)
check_packages=(git clang-14=1:14.0.6-* clang-tidy-14=1:14.0.6-* clang-format-14=1:14.0.6-*)
fuzz_packages=(clang-14=1:14.0.6-* libclang-rt-14-dev=1:14.0.6-*)

stage=${1:-check}
case "$stage" in
  build) packages=("${build_packages[@]}") ;;
  kafka) packages=("${build_packages[@]}" "${kafka_packages[@]}") ;;
  test)
    packages=("${build_packages[@]}" "${test_packages[@]}" "${python_packages[@]}"
      "${kafka_packages[@]}")
    ;;
  train | ctr | wheel) packages=("${build_packages[@]}" "${python_packages[@]}") ;;
  check) packages=("${build_packages[@]}" "${test_packages[@]}" "${check_packages[@]}") ;;
  redis) packages=("${build_packages[@]}" "${redis_packages[@]}") ;;
  gpu) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
  fuzz) packages=("${build_packages[@]}" "${fuzz_packages[@]}") ;;
  bench) packages=("${build_packages[@]}" "${bench_packages[@]}") ;;
  triton) packages=("${build_packages[@]}" "${bench_packages[@]}") ;;
  *)
    echo "bootstrap: unknown stage '$stage':" \
      "expected build, kafka, redis, train, ctr, triton, test, wheel, check, gpu, fuzz or bench" >&2
    exit 2
    ;;
esac

say() { echo "bootstrap: $*"; }

# Prints the wanted packages that are not installed. One of another version is used as it is, and
# said so: this list is what hps is tested with, not a reason to downgrade a machine.
missing_packages() {
  local -A installed=()
  local name version status
  while IFS=$'\t' read -r name version status; do
    if [[ $status == ii* ]]; then installed[$name]=$version; fi
  done < <(dpkg-query -W -f '${Package}\t${Version}\t${db:Status-Abbrev}\n' "${packages[@]%%=*}" \
    2>/dev/null || true)
  local package
  for package in "${packages[@]}"; do
    name=${package%%=*}
    if [[ -z ${installed[$name]:-} ]]; then
      echo "$package"
    # shellcheck disable=SC2053
    elif [[ $package == *=* && ${installed[$name]} != ${package#*=} ]]; then
      say "$name is ${installed[$name]}; hps is tested with ${package#*=}" >&2
    fi
  done
}

install_packages() {
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      say "needs root or sudo to install: $*" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  say "installing $# packages from Debian: $*"
  "${as_root[@]}" apt-get update -qq
  # Tests need the programs of this package and no daemon: systemd starts no masked unit, and init's
  # scripts start nothing in runlevel 1.
  if [[ " $* " == *" prometheus="* ]]; then
    "${as_root[@]}" install -d /etc/systemd/system
    "${as_root[@]}" ln -sfn /dev/null /etc/systemd/system/prometheus.service
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -q --no-install-recommends "$@"
}

install_venv() {
  local wanted=tools/requirements.txt
  if cmp -s "$wanted" .venv/installed.txt; then return; fi
  say "installing Python packages into .venv/: $(grep -v '^#' "$wanted" | paste -sd' ')"
  rm -rf .venv
  /usr/bin/python3 -m venv .venv
  .venv/bin/pip install --disable-pip-version-check --quiet --requirement "$wanted"
  cp "$wanted" .venv/installed.txt
}

# Libraries and headers of the build: what the packages depend on is Python that nothing here runs.
install_build_venv() {
  local venv=${HPS_BUILD_VENV:-.venv-build} wanted=tools/build_requirements.txt
  if cmp -s "$wanted" "$venv/installed.txt"; then return; fi
  say "installing into $venv: $(grep -v '^#' "$wanted" | paste -sd' ')"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install --disable-pip-version-check --quiet --no-deps --requirement "$wanted"
  ln -sfn "$(cd "$venv" && echo lib/python3.*/site-packages)" "$venv/packages"
  cp "$wanted" "$venv/installed.txt"
}

# install_headers VENV NAME INCLUDE SIZE: keeps a wheel's folder INCLUDE alone: VENV/NAME/include.
install_headers() {
  local venv=$1 folder=$1/$2 wanted=tools/$2_requirements.txt
  if cmp -s "$wanted" "$folder/installed.txt"; then return; fi
  say "downloading headers into $folder: $(grep -v '^#' "$wanted") ($4)"
  rm -rf "$folder" "$folder.new"
  "$venv/bin/pip" install --disable-pip-version-check --quiet --no-cache-dir --no-deps \
    --target "$folder.new" --requirement "$wanted"
  mkdir "$folder"
  mv "$folder.new/$3" "$folder/include"
  rm -rf "$folder.new"
  cp "$wanted" "$folder/installed.txt"
}

# The wheel's other 350 MB are not needed to compile the package.
install_jax_headers() {
  install_headers "${HPS_BUILD_VENV:-.venv-build}" jax jaxlib/include "0.1 GB"
}

# Without dependencies: those of torch are 4 GB that only a GPU uses.
install_python_venv() {
  local wanted=tools/python_requirements.txt
  if cmp -s "$wanted" .venv-python/installed.txt; then return; fi
  say "installing PyTorch, TensorFlow, JAX and the client of Triton into .venv-python/ (3.2 GB)"
  rm -rf .venv-python
  /usr/bin/python3 -m venv .venv-python
  .venv-python/bin/pip install --disable-pip-version-check --quiet --no-cache-dir --no-deps \
    --requirement "$wanted"
  /usr/bin/python3 tools/stub_nvidia.py .venv-python/lib/python3.*/site-packages
  cp "$wanted" .venv-python/installed.txt
}

# The broker with the libraries that it needs, each file compared with its committed checksum.
install_kafka() {
  local wanted=tools/kafka/jars.sha256
  if cmp -s "$wanted" .kafka/installed.txt; then return; fi
  say "installing the Kafka broker of the tests into .kafka/ (50 MB, from Maven Central)"
  rm -rf .kafka
  mkdir -p .kafka/lib
  mvn --quiet --batch-mode --file tools/kafka/pom.xml dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$PWD/.kafka/lib"
  if ! (cd .kafka/lib && sha256sum -- * | cmp -s - "$OLDPWD/$wanted"); then
    say "files of .kafka/lib are not those of $wanted:" >&2
    (cd .kafka/lib && sha256sum -- * | diff "$OLDPWD/$wanted" - | head -n 20) >&2 || true
    exit 1
  fi
  cp "$wanted" .kafka/installed.txt
}

# Their programs alone: what the packages depend on is Python that nothing here runs.
install_bench_venv() {
  local wanted=tools/bench_requirements.txt
  if cmp -s "$wanted" .venv-bench/installed.txt; then return; fi
  say "installing Triton into .venv-bench/: $(grep -v '^#' "$wanted" | paste -sd' ')"
  rm -rf .venv-bench
  /usr/bin/python3 -m venv .venv-bench
  .venv-bench/bin/pip install --disable-pip-version-check --quiet --no-deps --requirement "$wanted"
  cp "$wanted" .venv-bench/installed.txt
}

# Whether the venv $1 has every package of tools/cuda_requirements.txt in its version.
cuda_venv_is_complete() {
  [[ -x $1/bin/python ]] && "$1/bin/python" - tools/cuda_requirements.txt <<'PYTHON'
import importlib.metadata as metadata, sys
lines = [line.strip() for line in open(sys.argv[1]) if line.strip() and line[0] != "#"]
installed = {dist.metadata["Name"].lower(): dist.version for dist in metadata.distributions()}
sys.exit(any(installed.get(name) != version
             for name, version in (line.split("==") for line in lines)))
PYTHON
}

install_cuda_venv() {
  local venv=${HPS_CUDA_VENV:-.venv-cuda} wanted=tools/cuda_requirements.txt
  if ! cuda_venv_is_complete "$venv"; then
    say "installing CUDA into $venv (0.4 GB): $(grep -v '^#' "$wanted" | paste -sd' ')"
    /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" install --disable-pip-version-check --quiet --requirement "$wanted"
  fi
  # Names that CMake and the linker look for, and a place without the version of Python in it.
  local toolkit
  toolkit=$(cd "$venv" && echo lib/python3.*/site-packages/nvidia/cu13)
  ln -sfn "$toolkit" "$venv/cuda"
  ln -sfn lib "$venv/cuda/lib64"
  ln -sfn libcudart.so.13 "$venv/cuda/lib/libcudart.so"
  if [[ ! -x $venv/cuda/bin/nvcc ]]; then
    say "there is no nvcc in $venv/cuda/bin: remove $venv and try again" >&2
    exit 1
  fi
}

# The wheel's libraries have 0.6 GB, and are loaded at run time.
install_cublas_headers() {
  install_headers "${HPS_CUDA_VENV:-.venv-cuda}" cublas nvidia/cu13/include "0.4 GB"
}

# Runs the functions side by side: they wait for downloads and write into different folders.
at_once() {
  local steps=() step status=0
  for step in "$@"; do
    "$step" &
    steps+=($!)
  done
  for step in "${steps[@]}"; do wait "$step" || status=1; done
  return $status
}

if [[ ! -r /etc/debian_version ]] || [[ $(cut -d. -f1 /etc/debian_version) != 12 ]]; then
  say "this is not Debian 12: packages may have other names or versions" >&2
fi
mapfile -t missing < <(missing_packages)
if [[ ${#missing[@]} -gt 0 ]]; then install_packages "${missing[@]}"; fi
install_build_venv
case "$stage" in
  kafka) install_kafka ;;
  test)
    at_once install_venv install_jax_headers install_python_venv install_kafka install_bench_venv
    ;;
  train) install_jax_headers && install_python_venv ;;
  ctr) install_venv && install_jax_headers && install_python_venv ;;
  wheel) install_jax_headers ;;
  check) install_venv ;;
  gpu) install_venv && install_cuda_venv && install_cublas_headers ;;
  bench) install_bench_venv ;;
  triton) install_venv && install_bench_venv ;;
esac
say "ready ($stage)"
