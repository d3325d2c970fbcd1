#include "l3_pages/page_walk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"

namespace hps {
namespace {

// Bytes of one read, less what is no whole page.
constexpr size_t kWalkBytes = size_t{1} << 20;

}  // namespace

absl::Status PageWalk::Refill() {
  const PageFileDescription& description = file_.description();
  const size_t page_bytes = description.shape.page_bytes;
  if (bytes_ == nullptr) bytes_ = AllocateAligned(kWalkBytes);
  if (bytes_ == nullptr) return OutOfMemory("page file: out of memory for reading pages");
  const uint64_t end = std::min<uint64_t>(end_ + kWalkBytes / page_bytes, description.page_count());
  first_ = end_;
  const absl::Status read = file_.file().ReadAt(description.page_offset(first_),
                                                {bytes_.get(), (end - first_) * page_bytes});
  if (!read.ok()) {
    return absl::Status(read.code(),
                        absl::StrCat(read.message(), " (pages ", first_, " to ", end - 1, ")"));
  }
  end_ = end;
  return absl::OkStatus();
}

absl::StatusOr<PageWalk::Page> PageWalk::Next() {
  HPS_CHECK(!AtEnd());
  if (next_ == end_) HPS_RETURN_IF_ERROR(Refill());
  const size_t page_bytes = file_.description().shape.page_bytes;
  Page page;
  page.bytes = {bytes_.get() + (next_ - first_) * page_bytes, page_bytes};
  page.intact = file_.IsIntact(next_, page.bytes);
  ++next_;
  return page;
}

}  // namespace hps
