// make_format_store DIR: writes the store that is kept as tests/formats/store_format_<version>.
//
//   build/cpu/tests/make_format_store /tmp/s/store
//   rm /tmp/s/store/hps.reserve   # 1 MiB that a writer makes again
//   tar -C /tmp/s --owner=0 --group=0 -czf tests/formats/store_format_6.tar.gz store
#include <cstdio>

#include "tests/formats/format_store.h"

int main(int argument_count, char** arguments) {
  if (argument_count != 2) {
    std::fprintf(stderr, "usage: make_format_store DIR\n");
    return 2;
  }
  const absl::Status made = hps::MakeFormatStore(arguments[1]);
  if (made.ok()) return 0;
  std::fprintf(stderr, "make_format_store: %s\n", made.ToString().c_str());
  return 1;
}
