// The memory of level 2: blocks of zeroed pages, which the system commits when they are first
// touched.
//
// One allocator serves all tables of a tier, so that another kind of memory (huge, pinned for a
// device) needs only another implementation of this interface.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace hps {

// The pages of one allocation; the destructor returns them. Their addresses are stable.
class PageBlock {
 public:
  virtual ~PageBlock() = default;
  virtual std::span<std::byte> bytes() const = 0;
  // The pages stay until the process ends, for a device that may still read them.
  virtual void Leak() = 0;
};

// Thread-safe. Must outlive its blocks.
class PageAllocator {
 public:
  virtual ~PageAllocator() = default;

  // Allocates `bytes` zeroed bytes, aligned to at least 64 and rounded up to whole pages of
  // page_bytes(). Errors: RESOURCE_EXHAUSTED if the system lacks the memory.
  virtual absl::StatusOr<std::unique_ptr<PageBlock>> Allocate(size_t bytes) = 0;

  // Allocations are rounded up to this.
  virtual size_t page_bytes() const = 0;

  // The maximum that one first touch commits.
  virtual size_t touched_bytes() const = 0;
};

// Anonymous memory of the system. `huge_pages` requests 2 MiB pages; if the system has none,
// ordinary pages are used.
std::unique_ptr<PageAllocator> MakeSystemPageAllocator(bool huge_pages);

}  // namespace hps
