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
#include <utility>
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
    return BudgetBuffer(Memory(memory, Free{&budget, count * sizeof(T)}), count);
  }

  std::span<T> elements() const { return ElementsAs<T>(); }
  // The same memory as an array of another type, as many as fit.
  template <typename U>
  std::span<U> ElementsAs() const {
    static_assert(std::is_trivially_copyable_v<U> && alignof(U) <= 64);
    return {static_cast<U*>(static_cast<void*>(memory_.get())), count_ * sizeof(T) / sizeof(U)};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { budget->Free(memory, bytes); }
    MemoryBudget* budget = nullptr;
    size_t bytes = 0;
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  BudgetBuffer(Memory memory, size_t count) : memory_(std::move(memory)), count_(count) {}

  Memory memory_;
  size_t count_ = 0;
};

}  // namespace hps
