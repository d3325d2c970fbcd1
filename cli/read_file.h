// Small files that the command line names: tokens, kept results.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps::cli {

// "'PATH' can't be ACTION: the system's reason", with the code that fits `error_number`.
// REQUIRES: error_number != 0.
absl::Status FileError(const std::string& path, int error_number, const char* action);

// All of a file, or of a pipe until its end. Errors: that of the system (NOT_FOUND, ...);
// INVALID_ARGUMENT for a directory; RESOURCE_EXHAUSTED for more than `bytes_max` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max);

}  // namespace hps::cli
