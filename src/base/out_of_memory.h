// Makes a failed allocation a status.
//
// The library throws nothing, but what it uses of the standard library throws std::bad_alloc. Where
// that must not end the process, the work that allocates runs in here: RESOURCE_EXHAUSTED, and what
// it had begun is taken back by its destructors. Never around a call of a library that is not safe
// against it: RocksDB is not.
#pragma once

#include <new>
#include <string_view>

#include "absl/status/status.h"

namespace hps {

// Says less where there is no memory for the words either.
inline absl::Status OutOfMemory(std::string_view what) noexcept {
  try {
    return absl::ResourceExhaustedError(absl::string_view(what.data(), what.size()));
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, absl::string_view()};
  }
}

// Runs `work`, which returns a status or a StatusOr. `what` names what had no memory.
template <typename Work>
auto WithMemoryFor(std::string_view what, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(what);
  }
}

}  // namespace hps
