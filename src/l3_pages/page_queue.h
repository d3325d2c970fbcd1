// The reads of one fetch: many pages are read at a time, into slots of memory.
//
// For one thread at a time. The slots' memory must live until the queue is destroyed, because a
// fetch that gives up at its deadline leaves reads behind, and the disk still writes into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace hps {

// Reads of one queue at a time. More do not make a disk faster: the queue of one NVMe device is
// filled by a few of such fetches.
inline constexpr size_t kPageSlotsMax = 64;

struct PageRead {
  int descriptor = -1;  // of the file
  uint64_t offset = 0;
  std::span<std::byte> into;
  size_t slot = 0;  // < kPageSlotsMax; names the read when it has ended
};

struct EndedPageRead {
  size_t slot = 0;
  // Bytes read, or a negative error number. -EAGAIN: the system took no read; read it yourself.
  int result = 0;
};

class PageQueue {
 public:
  // Waits for the reads in flight, however long the disk takes.
  virtual ~PageQueue() = default;

  // Notes a read, which begins at the latest with the next Await. REQUIRES: no read of this slot is
  // in flight.
  virtual void Begin(const PageRead& read) = 0;

  // Waits until at least one read has ended. Writes the reads that have ended to `ended` and
  // returns their number; returns 0 at once if no read is in flight. Errors: DEADLINE_EXCEEDED,
  // UNAVAILABLE (the system takes no reads now); reads stay in flight then.
  virtual absl::StatusOr<size_t> Await(std::span<EndedPageRead> ended, Deadline deadline) = 0;

  virtual size_t in_flight() const = 0;
};

}  // namespace hps
