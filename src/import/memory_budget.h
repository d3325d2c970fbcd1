// The memory budget of an import. Every buffer that grows with the size of a table is allocated
// from it, so the limit holds by construction. It also records the peak.
//
// A large buffer that is freed is kept for the next one of its size, because the system clears the
// memory of a new one, which takes a third of the time of filling it.
//
// Thread-safe. The budget must outlive its buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/macros.h"
#include "base/mutex.h"

namespace hps {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  ~MemoryBudget();

  uint64_t bytes_max() const { return bytes_max_; }
  uint64_t bytes_peak() const;

  // Allocates `bytes` bytes, aligned to 64. Errors: RESOURCE_EXHAUSTED (the system has no memory).
  // REQUIRES: the allocations stay within bytes_max(). Their sizes are planned, so exceeding it is
  // a bug.
  absl::StatusOr<std::byte*> Allocate(size_t bytes);
  void Free(std::byte* memory, size_t bytes);

 private:
  struct Block {
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };

  std::byte* TakeKept(size_t bytes) HPS_REQUIRES(mutex_);
  void ReleaseKept() HPS_REQUIRES(mutex_);

  const uint64_t bytes_max_;
  mutable Mutex mutex_;
  uint64_t bytes_used_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_peak_ HPS_GUARDED_BY(mutex_) = 0;
  std::vector<Block> kept_ HPS_GUARDED_BY(mutex_);  // mapped, and free
};

// An array of `T` allocated from a budget; the destructor frees it. Not initialized.
template <typename T>
class BudgetBuffer {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64);

 public:
  BudgetBuffer() = default;
  static absl::StatusOr<BudgetBuffer> Create(MemoryBudget& budget, size_t count) {
    HPS_CHECK(count <= SIZE_MAX / sizeof(T));
    HPS_ASSIGN_OR_RETURN(std::byte * memory, budget.Allocate(count * sizeof(T)));
    return BudgetBuffer(memory, {&budget, count * sizeof(T)});
  }

  std::span<T> elements() const { return ElementsAs<T>(); }
  // The same memory as an array of another type, as many as fit.
  template <typename U>
  std::span<U> ElementsAs() const {
    static_assert(std::is_trivially_copyable_v<U> && alignof(U) <= 64);
    const size_t bytes = memory_ == nullptr ? 0 : memory_.get_deleter().bytes;
    return {static_cast<U*>(static_cast<void*>(memory_.get())), bytes / sizeof(U)};
  }

 private:
  struct GiveBack {
    MemoryBudget* budget;
    size_t bytes;
    void operator()(std::byte* memory) const { budget->Free(memory, bytes); }
  };
  BudgetBuffer(std::byte* memory, const GiveBack& give_back) : memory_(memory, give_back) {}

  std::unique_ptr<std::byte, GiveBack> memory_;
};

}  // namespace hps
