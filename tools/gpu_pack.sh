#!/bin/bash
# Packs what tools/gpu_check.sh needs to run on a machine with a GPU and nothing else of hps: the
# programs of a build, stripped, the Debian libraries that they link, and the script itself.
#
#   tools/gpu_pack.sh BUILD_DIR DEST     as in: tools/gpu_pack.sh build/cuda build/gpu_pack
#
# There: DEST/gpu_check.sh DEST OUT_DIR. That machine's own C and C++ libraries are used; they must
# be at least those of Debian 12 (glibc 2.36, g++ 12). DEST is made anew.
set -euo pipefail

if [[ $# -ne 2 || ! -x $1/bin/hps ]]; then
  echo "gpu_pack: usage: tools/gpu_pack.sh BUILD_DIR DEST;" \
    "BUILD_DIR is a build of \`make gpu-tests\`" >&2
  exit 2
fi
build=$1 dest=$2 here=$(dirname "$0")

rm -rf "$dest"
mkdir -p "$dest/bin" "$dest/tests" "$dest/lib"
programs=(bin/hps bin/hps_demo tests/hps_with_device_faults)
while read -r name; do programs+=("tests/$name"); done <"$build/gpu_tests.txt"
for program in "${programs[@]}"; do
  if [[ ! -x $build/$program ]]; then
    echo "gpu_pack: $build/$program is not built" >&2
    exit 1
  fi
  strip -o "$dest/$program" "$build/$program"
done
cp "$build/gpu_tests.txt" "$here/gpu_check.sh" "$dest/"

# What belongs to the C and C++ implementation is the other machine's.
ldd "${programs[@]/#/$build/}" | sed -nE 's/^\s+(\S+) => (\/\S+) .*/\1 \2/p' | sort -u |
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
