// Converts a failed allocation to a status.
//
// The library throws nothing, but the standard library throws std::bad_alloc. Where that must not
// end the process, the allocating work runs in WithMemoryFor: it returns RESOURCE_EXHAUSTED, and
// destructors undo what the work had begun. Never wrap a call of a library that is not
// exception-safe; RocksDB is not.
#pragma once

#include <new>
#include <string_view>

#include "absl/status/status.h"

namespace hps {

// The message is shorter if there is no memory for it either.
inline absl::Status OutOfMemory(std::string_view what) noexcept {
  try {
    return absl::ResourceExhaustedError(absl::string_view(what.data(), what.size()));
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, absl::string_view()};
  }
}

// Runs `work`, which returns a Status or a StatusOr. `what` names the operation in the error.
template <typename Work>
auto WithMemoryFor(std::string_view what, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(what);
  }
}

}  // namespace hps
