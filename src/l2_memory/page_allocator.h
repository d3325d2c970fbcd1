// Where level 2 gets its memory from: blocks of zeroed pages, made real by the system when they are
// first touched.
//
// One allocator serves all tables of a tier, so that another kind of memory (huge, pinned for a
// device) is one implementation of this interface away.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace hps {

// Pages of one allocation; returns them when it dies. Their addresses are stable.
class PageBlock {
 public:
  virtual ~PageBlock() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

// Thread-safe. Must outlive its blocks.
class PageAllocator {
 public:
  virtual ~PageAllocator() = default;

  // `bytes` zeroed bytes, aligned to 64 at least, rounded up to whole pages of page_bytes().
  // Errors: RESOURCE_EXHAUSTED when the system has no room for them.
  virtual absl::StatusOr<std::unique_ptr<PageBlock>> Allocate(size_t bytes) = 0;

  // What an allocation is rounded up to.
  virtual size_t page_bytes() const = 0;

  // What one first touch may make real.
  virtual size_t touched_bytes() const = 0;
};

// Anonymous memory of the system. With `huge_pages`, 2 MiB pages are asked for; where the system
// gives none, ordinary ones serve.
std::unique_ptr<PageAllocator> MakeSystemPageAllocator(bool huge_pages);

}  // namespace hps
