#include "base/macros.h"

#include <cstdio>
#include <cstdlib>

namespace hps::internal {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "hps: bug: %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace hps::internal
