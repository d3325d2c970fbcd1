#include "base/no_memory.h"

#include "absl/strings/str_cat.h"

namespace hps {

const absl::Status& NoMemory() {
  static const absl::Status status =
      absl::ResourceExhaustedError("there is no memory for the request; try again later");
  return status;
}

absl::Status NoMemoryFor(std::string_view what) noexcept {
  try {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", absl::string_view(what.data(), what.size())));
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, absl::string_view()};
  }
}

}  // namespace hps
