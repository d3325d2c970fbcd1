// Directories for what a scenario writes to the disk that it measures.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hps::bench {

// Makes the directory and those above it that are missing. Errors: those of the system, with the
// path: NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, ...
absl::Status MakeScratch(const std::string& path);

// Removes it with all that is in it, as far as that goes.
void RemoveScratch(const std::string& path);

}  // namespace hps::bench
