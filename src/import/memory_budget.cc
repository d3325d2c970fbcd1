#include "import/memory_budget.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace hps {
namespace {

constexpr size_t kAlignment = 64;

// From this size on, memory is mapped: it returns to the system when it is released, and can use
// huge pages, which help because rows are gathered at random.
constexpr size_t kMappedBytesMin = size_t{4} << 20;
constexpr size_t kHugePageBytes = size_t{2} << 20;

std::byte* Map(size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // failure is harmless
  return static_cast<std::byte*>(memory);
}

}  // namespace

MemoryBudget::~MemoryBudget() {
  MutexLock lock(mutex_);
  ReleaseKept();
}

uint64_t MemoryBudget::bytes_peak() const {
  MutexLock lock(mutex_);
  return bytes_peak_;
}

absl::StatusOr<std::byte*> MemoryBudget::Allocate(size_t bytes) {
  std::byte* memory = nullptr;
  {
    MutexLock lock(mutex_);
    HPS_CHECK(bytes <= bytes_max_ - bytes_used_);
    memory = TakeKept(bytes);
    bytes_used_ += bytes;
    bytes_peak_ = std::max(bytes_peak_, bytes_used_);
    uint64_t kept_bytes = 0;
    for (const Block& block : kept_) kept_bytes += block.bytes;
    if (bytes_used_ + kept_bytes > bytes_max_) ReleaseKept();
  }
  if (memory != nullptr) return memory;
  memory = bytes >= kMappedBytesMin ? Map(RoundUp(bytes, kHugePageBytes))
                                    : static_cast<std::byte*>(std::aligned_alloc(
                                          kAlignment, RoundUp(bytes == 0 ? 1 : bytes, kAlignment)));
  if (memory != nullptr) return memory;
  MutexLock lock(mutex_);
  bytes_used_ -= bytes;
  return absl::ResourceExhaustedError(absl::StrCat("import: out of memory for ", bytes, " bytes"));
}

void MemoryBudget::Free(std::byte* memory, size_t bytes) {
  if (bytes < kMappedBytesMin) std::free(memory);
  MutexLock lock(mutex_);
  bytes_used_ -= bytes;
  if (bytes >= kMappedBytesMin) kept_.push_back({memory, RoundUp(bytes, kHugePageBytes)});
}

// Null if no kept block has the size.
std::byte* MemoryBudget::TakeKept(size_t bytes) {
  for (Block& block : kept_) {
    if (bytes < kMappedBytesMin || block.bytes != RoundUp(bytes, kHugePageBytes)) continue;
    std::byte* const memory = block.memory;
    block = kept_.back();
    kept_.pop_back();
    return memory;
  }
  return nullptr;
}

void MemoryBudget::ReleaseKept() {
  for (const Block& block : kept_) HPS_CHECK(::munmap(block.memory, block.bytes) == 0);
  kept_.clear();
}

}  // namespace hps
