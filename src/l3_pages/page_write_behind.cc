#include "l3_pages/page_write_behind.h"

#include <utility>

#include "base/macros.h"

namespace hps {
namespace {

// The disk is asked to write in steps of this size, so that little is left to do for the sync.
constexpr uint64_t kSyncStepBytes = uint64_t{8} << 20;

}  // namespace

PageWriteBehind::PageWriteBehind(const PageFileHandle& file) : file_(file) {
  auto worker = WorkerPool::Create({.name = "page-write", .thread_count = 1, .queue_max = 1});
  if (worker.ok()) worker_ = *std::move(worker);
}

void PageWriteBehind::Begin(uint64_t offset, std::span<const std::byte> bytes) {
  HPS_CHECK(written_.IsOpen());
  written_.Reset(1);
  offset_ = offset;
  bytes_ = bytes;
  if (worker_ == nullptr || !worker_->Post(this).ok()) Run();
}

absl::Status PageWriteBehind::Wait() {
  written_.WaitUntil(kNoDeadline);
  return std::exchange(status_, absl::OkStatus());
}

void PageWriteBehind::Run() {
  status_ = file_.WriteAt(offset_, bytes_);
  const uint64_t end = offset_ + bytes_.size();
  if (status_.ok() && end - sync_begun_ >= kSyncStepBytes) {
    file_.BeginSync(sync_begun_, end - sync_begun_);
    sync_begun_ = end;
  }
  written_.CountDown();
}

}  // namespace hps
