// A queue of page reads by threads that call pread, where there is no io_uring.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "l3_pages/page_queue.h"

namespace hps {

// As many reads run at a time as `workers` has threads. `workers` must outlive the queue. Errors:
// RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<PageQueue>> MakePreadQueue(Executor& workers);

}  // namespace hps
