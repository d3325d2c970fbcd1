// A queue of page reads by io_uring: one system call begins and collects many.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "l3_pages/page_queue.h"

namespace hps {

// Errors: UNIMPLEMENTED (the system has no io_uring, refuses it, as containers may, or has one
// older than Linux 5.11; or it has refused the reads of an earlier queue), RESOURCE_EXHAUSTED
// (memory, descriptors).
absl::StatusOr<std::unique_ptr<PageQueue>> MakeUringQueue();

}  // namespace hps
