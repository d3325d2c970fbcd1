// The status of a failed allocation.
//
// hps throws nothing, but what it uses of the standard library throws std::bad_alloc. It is caught
// at three boundaries, and ends at most the work inside: a request or a load (Try), a task of an
// executor (src/query/fetch, src/import/parallel.cc), a call of a session. Large allocations, whose
// size a user decides, are checked where they are made.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hps {

// RESOURCE_EXHAUSTED, without a text if there is no memory for it either.
inline absl::Status OutOfMemory(std::string_view what) noexcept {
  try {
    return absl::ResourceExhaustedError(absl::string_view(what.data(), what.size()));
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, absl::string_view()};
  }
}

// The status of a step of a request; what it throws becomes RESOURCE_EXHAUSTED or INTERNAL.
template <typename Step>
absl::Status Try(Step step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return OutOfMemory("out of memory; try again later");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("unexpected: ", error.what()));
  }
}

}  // namespace hps
