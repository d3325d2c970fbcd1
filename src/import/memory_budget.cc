#include "import/memory_budget.h"

#include <sys/mman.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace hps {
namespace {

constexpr size_t kAlignment = 64;

// From this size on, memory is mapped: it returns to the system when freed, and can use huge pages,
// which help because rows are gathered at random.
constexpr size_t kMappedBytesMin = size_t{4} << 20;

}  // namespace

absl::StatusOr<std::byte*> MemoryBudget::Allocate(size_t bytes) {
  const uint64_t used = bytes_used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  HPS_CHECK(used <= bytes_max_);
  uint64_t peak = bytes_peak_.load(std::memory_order_relaxed);
  while (used > peak && !bytes_peak_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  void* memory = nullptr;
  if (bytes >= kMappedBytesMin) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
    if (memory != nullptr) ::madvise(memory, bytes, MADV_HUGEPAGE);  // failure is harmless
  } else {
    memory = std::aligned_alloc(kAlignment, RoundUp(bytes == 0 ? 1 : bytes, kAlignment));
  }
  if (memory == nullptr) {
    bytes_used_.fetch_sub(bytes, std::memory_order_relaxed);
    return absl::ResourceExhaustedError(
        absl::StrCat("import: out of memory for ", bytes, " bytes"));
  }
  return static_cast<std::byte*>(memory);
}

void MemoryBudget::Free(std::byte* memory, size_t bytes) {
  if (bytes >= kMappedBytesMin) {
    HPS_CHECK(::munmap(memory, bytes) == 0);
  } else {
    std::free(memory);
  }
  bytes_used_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace hps
