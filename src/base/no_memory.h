// Want of memory as a status.
//
// The library throws nothing, but what it uses of the standard library throws std::bad_alloc. Where
// that must not end the process, the work that allocates runs in WithMemoryFor: RESOURCE_EXHAUSTED,
// and what it had begun is taken back by its destructors. Never around a call of a library that is
// not safe against it: RocksDB is not.
//
// Thread-safe.
#pragma once

#include <new>
#include <string_view>

#include "absl/status/status.h"

namespace hps {

// RESOURCE_EXHAUSTED for a request, made beforehand, so that to say it takes no memory; nor do
// copies. The first call makes it: who will need it calls this once when it starts.
const absl::Status& NoMemory();

// RESOURCE_EXHAUSTED that says `what` had none; no words where there is none for them either.
absl::Status NoMemoryFor(std::string_view what) noexcept;

// Runs `work`, which returns a status or a StatusOr. `what` names what had no memory.
template <typename Work>
auto WithMemoryFor(std::string_view what, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return NoMemoryFor(what);
  }
}

}  // namespace hps
