#!/bin/bash
# Packs what tools/gpu_check.sh needs to run on a machine with a GPU and nothing else of hps: the
# programs of a build, stripped, the Debian libraries that they link, and the script itself.
#
#   tools/gpu_pack.sh BUILD_DIR DEST     as in: tools/gpu_pack.sh build/cuda build/gpu_pack
#   tools/gpu_pack.sh BUILD_DIR DEST PROGRAM...     these alone: bin/hps tests/network_gpu_test
#   tools/gpu_pack.sh BUILD_DIR DEST --package WHEEL PYTHON [PROGRAM...]     also the Python package
#
# WHEEL is what `make wheel-gpu` made, PYTHON the version of the other machine's, as in 3.12, which
# needs PyTorch and NumPy. The pack then has the tests and the example of training, and those
# packages of the wheel's that PyTorch does not bring; without PROGRAM, training's programs alone.
#
# With dense networks the pack also has the parts of OpenVINO that are loaded when a network is
# compiled, and tests/server/dense_gpu_test.py (HPS_COMMAND=DEST/bin/hps; needs Python and NumPy).
#
# There: DEST/gpu_check.sh DEST OUT_DIR. That machine's own C and C++ libraries are used; they must
# be at least those of Debian 12 (glibc 2.36, g++ 12). DEST is made anew.
set -euo pipefail

if [[ $# -lt 2 || ! -r $1/gpu_tests.txt ]]; then
  echo "gpu_pack: usage: tools/gpu_pack.sh BUILD_DIR DEST [--package WHEEL PYTHON] [PROGRAM...];" \
    "BUILD_DIR is a build of \`make gpu-tests\`" >&2
  exit 2
fi
build=$1 dest=$2 here=$(dirname "$0")
shift 2

package=()
if [[ ${1-} == --package ]]; then
  package=("$2")
  python=$3
  shift 3
fi

rm -rf "$dest"
mkdir -p "$dest/bin" "$dest/tests" "$dest/lib"
programs=("$@")
if ((${#programs[@]} == 0 && ${#package[@]} > 0)); then
  programs=(bin/hps tests/train_gpu_test tests/train_host_and_device_test)
elif ((${#programs[@]} == 0)); then
  programs=(bin/hps bin/hps-bench bin/hps_demo tests/hps_with_device_faults)
  while read -r name; do programs+=("tests/$name"); done <"$build/gpu_tests.txt"
fi
for program in "${programs[@]}"; do
  if [[ ! -x $build/$program ]]; then
    echo "gpu_pack: $build/$program is not built" >&2
    exit 1
  fi
  strip -o "$dest/$program" "$build/$program"
done
cp "$build/gpu_tests.txt" "$here/gpu_check.sh" "$dest/"
# Which parts the build has, for tests in Python.
grep -E '^HPS_[A-Z0-9_]+:BOOL=' "$build/CMakeCache.txt" >"$dest/CMakeCache.txt"

# OpenVINO loads these from its own folder.
loaded=()
openvino=$(ldd "${programs[@]/#/$build/}" |
  sed -nE 's/.* => (\S+\/libopenvino\.so\S*) .*/\1/p' | head -n 1)
if [[ -n $openvino ]]; then
  loaded=("$(dirname "$openvino")"/libopenvino_{intel_cpu_plugin,onnx_frontend}.so*)
  mkdir -p "$dest"/tests/{server,common} "$dest/tools"
  cp "$here"/../tests/server/{dense_gpu_test,small_network,support}.py "$dest/tests/server/"
  cp "$here/../tests/common/waiting.py" "$dest/tests/common/"
  cp "$here/held_port.py" "$dest/tools/"
fi
# The package's own libraries link the same ones.
extensions=()
if ((${#package[@]} > 0)); then
  root=$here/..
  mkdir -p "$dest/package" "$dest/tests/python" "$dest/examples"
  "$root/.venv-python/bin/python" -m zipfile -e "${package[0]}" "$dest/package"
  "$root/.venv-python/bin/pip" --disable-pip-version-check download --quiet --no-deps \
    --only-binary :all: --python-version "$python" --dest "$dest/wheels" nanobind-backend==1.0.0 \
    onnx==1.23.2 protobuf==6.33.6 ml-dtypes==0.6.0
  for wheel in "$dest"/wheels/*.whl; do
    "$root/.venv-python/bin/python" -m zipfile -e "$wheel" "$dest/package"
  done
  rm -r "$dest/wheels"
  rm -f "$dest"/package/hps/_openvino.so "$dest"/package/hps/_tensorflow_operator.so
  extensions=("$dest"/package/hps/*.so "$dest"/package/hps/_check_network)
  strip --strip-unneeded "${extensions[@]}"
  cp "$root"/tests/python/train_{device,device_precision,autocast}_test.py "$dest/tests/python/"
  cp -r "$root/examples/train" "$root/examples/running_server.py" "$dest/examples/"
fi
for library in "${loaded[@]}"; do
  strip --strip-unneeded -o "$dest/lib/$(basename "$library")" "$library"
done

# What belongs to the C and C++ implementation is the other machine's.
ldd "${programs[@]/#/$build/}" "${loaded[@]}" "${extensions[@]}" |
  sed -nE 's/^\s+(\S+) => (\/\S+) .*/\1 \2/p' | sort -u |
  while read -r name path; do
    case "$name" in
      libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | \
        libstdc++.so.* | libgcc_s.so.* | ld-linux*) continue ;;
    esac
    strip --strip-unneeded -o "$dest/lib/$name" "$path"
  done

for program in "${programs[@]}"; do
  if ! readelf -d "$dest/$program" | grep -q 'RPATH.*\$ORIGIN/\.\./lib'; then
    echo "gpu_pack: $program has no RPATH: is $build a build of \`make gpu-tests\`?" >&2
    exit 1
  fi
done
echo "gpu_pack: $dest: ${#programs[@]} programs, $(ls "$dest/lib" | wc -l) libraries," \
  "$(du -sm "$dest" | cut -f1) MiB"
