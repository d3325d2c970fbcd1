// The status of a request for which an allocation failed. It is made in advance, so that returning
// or copying it needs no memory.
#pragma once

#include "absl/status/status.h"

namespace hps {

// RESOURCE_EXHAUSTED. The first call allocates it; code that may need it calls this once at its
// start.
const absl::Status& NoMemory();

}  // namespace hps
