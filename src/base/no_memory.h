// What a request gets when an allocation for it failed: made beforehand, so that saying it takes no
// memory. Copies of it take none either.
#pragma once

#include "absl/status/status.h"

namespace hps {

// RESOURCE_EXHAUSTED. The first call makes it: who will need it calls this once when it starts.
const absl::Status& NoMemory();

}  // namespace hps
