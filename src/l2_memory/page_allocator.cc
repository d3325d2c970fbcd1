#include "l2_memory/page_allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace hps {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

class SystemPageBlock final : public PageBlock {
 public:
  SystemPageBlock() = default;
  SystemPageBlock(const SystemPageBlock&) = delete;
  SystemPageBlock& operator=(const SystemPageBlock&) = delete;
  ~SystemPageBlock() override {
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  }

  void Own(std::span<std::byte> bytes) { bytes_ = bytes; }

  std::span<std::byte> bytes() const override { return bytes_; }
  void Leak() override { bytes_ = {}; }

 private:
  std::span<std::byte> bytes_;
};

class SystemPageAllocator final : public PageAllocator {
 public:
  explicit SystemPageAllocator(bool huge_pages)
      : page_bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), huge_pages_(huge_pages) {}

  absl::StatusOr<std::unique_ptr<PageBlock>> Allocate(size_t bytes) override {
    const size_t wanted = RoundUp(bytes < 1 ? 1 : bytes, page_bytes_);
    auto block =
        std::make_unique<SystemPageBlock>();  // allocated first, so that a failure loses no memory
    // A huge page must start at a multiple of its size. Reserve address space for one more and
    // return both ends.
    const size_t mapped = wanted + (huge_pages_ ? kHugePageBytes : 0);
    void* memory = mapped < bytes ? MAP_FAILED
                                  : mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("level 2: out of memory for ", bytes, " bytes"));
    }
    auto* start = static_cast<std::byte*>(memory);
    if (huge_pages_) {
      start = TrimToHugePage(start, mapped, wanted);
      // Only a hint: if the system declines, ordinary pages are used.
      static_cast<void>(madvise(start, wanted, MADV_HUGEPAGE));
    }
    block->Own({start, wanted});
    return block;
  }

  size_t page_bytes() const override { return page_bytes_; }
  size_t touched_bytes() const override { return huge_pages_ ? kHugePageBytes : page_bytes_; }

 private:
  static std::byte* TrimToHugePage(std::byte* start, size_t mapped, size_t wanted) {
    void* aligned = start;
    size_t space = mapped;
    std::align(kHugePageBytes, wanted, aligned, space);
    auto* first = static_cast<std::byte*>(aligned);
    const auto before = static_cast<size_t>(first - start);
    const size_t after = mapped - before - wanted;
    if (before > 0) munmap(start, before);
    if (after > 0) munmap(first + wanted, after);
    return first;
  }

  const size_t page_bytes_;
  const bool huge_pages_;
};

}  // namespace

std::unique_ptr<PageAllocator> MakeSystemPageAllocator(bool huge_pages) {
  return std::make_unique<SystemPageAllocator>(huge_pages);
}

}  // namespace hps
