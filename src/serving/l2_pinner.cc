#include "serving/l2_pinner.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "types/units.h"

namespace hps {
namespace {

bool IsWanted(const PinnedRegion& region) { return region.wanted.load(std::memory_order_relaxed); }

}  // namespace

L2Pinner::L2Pinner(std::vector<DeviceCache*> caches, uint64_t bytes_max, Executor& executor)
    : caches_(std::move(caches)),
      bytes_max_(bytes_max),
      executor_(executor),
      bytes_left_(bytes_max) {
  HPS_CHECK(!caches_.empty());
}

L2Pinner::~L2Pinner() {
  MutexLock lock(mutex_);
  HPS_CHECK(waiting_.empty() && pinning_ == nullptr);
}

void L2Pinner::Pin(PinnedRegion& region) {
  {
    MutexLock lock(mutex_);
    try {
      waiting_.push_back(&region);
    } catch (const std::bad_alloc&) {
      return;  // the host reads it
    }
    if (Post()) return;
  }
  PinWaiting();
}

bool L2Pinner::Post() {
  if (posted_) return true;
  const absl::Status posted = executor_.Post(&task_);
  posted_ = posted.ok() || absl::IsResourceExhausted(posted);
  return !absl::IsResourceExhausted(posted);
}

PinnedRegion* L2Pinner::TakeWaiting() {
  const auto found =
      std::ranges::find_if(waiting_, [bytes_left = bytes_left_](const PinnedRegion* region) {
        return IsWanted(*region) && region->memory.size() <= bytes_left;
      });
  if (found != waiting_.end()) {
    PinnedRegion* const region = *found;
    waiting_.erase(found);
    bytes_left_ -= region->memory.size();
    return region;
  }
  const auto left_out =
      std::ranges::find_if(waiting_, [](const PinnedRegion* region) { return IsWanted(*region); });
  if (left_out != waiting_.end() && !std::exchange(said_full_, true)) {
    LogInfo(
        absl::StrCat("level 2: GPUs do not read all tables by themselves, because "
                     "l2.pinned_bytes_max = ",
                     FormatByteSize(bytes_max_), " is used up; the first one left out has ",
                     (*left_out)->memory.size(), " bytes"));
  }
  return nullptr;
}

void L2Pinner::PinWaiting() {
  for (;;) {
    PinnedRegion* region = nullptr;
    {
      MutexLock lock(mutex_);
      region = TakeWaiting();
      pinning_ = region;
      if (region == nullptr) {
        posted_ = false;
        return;
      }
    }
    const absl::Status pinned = PinParts(*region);
    MutexLock lock(mutex_);
    if (pinned.ok()) {
      region->readable.store(true, std::memory_order_release);
    } else {
      bytes_left_ += region->memory.size();
      if (!absl::IsCancelled(pinned) && !std::exchange(said_refused_, true)) {
        LogWarning(
            absl::StrCat("level 2: a table's memory can't be pinned, so GPUs do not read it "
                         "by themselves: ",
                         pinned.ToString()));
      }
    }
    pinning_ = nullptr;
    pinning_ended_.NotifyAll();
  }
}

absl::Status L2Pinner::PinParts(const PinnedRegion& region) {
  const std::span<std::byte> memory = region.memory;
  for (size_t begin = 0; begin < memory.size(); begin += kPartBytes) {
    const auto part = memory.subspan(begin, std::min(kPartBytes, memory.size() - begin));
    const absl::Status pinned = IsWanted(region) ? caches_.front()->PinHostMemory(part)
                                                 : absl::CancelledError("its table ends");
    if (pinned.ok()) continue;
    UnpinParts(memory.first(begin));
    return pinned;
  }
  return absl::OkStatus();
}

void L2Pinner::UnpinParts(std::span<std::byte> memory) {
  for (size_t begin = 0; begin < memory.size(); begin += kPartBytes) {
    caches_.front()->UnpinHostMemory(
        memory.subspan(begin, std::min(kPartBytes, memory.size() - begin)));
  }
}

bool L2Pinner::DevicesAnswer() {
  bool all = true;
  for (DeviceCache* const cache : caches_) all &= cache->AwaitReturnedCalls();
  return all;
}

bool L2Pinner::Unpin(PinnedRegion& region) {
  {
    MutexLock lock(mutex_);
    region.wanted.store(false, std::memory_order_relaxed);
    if (std::erase(waiting_, &region) > 0) return true;
    while (pinning_ == &region) pinning_ended_.Wait(mutex_);
  }
  if (!region.readable.load(std::memory_order_acquire)) return true;
  if (!DevicesAnswer()) return false;  // still pinned: keeps its part of the budget
  UnpinParts(region.memory);
  {
    MutexLock lock(mutex_);
    bytes_left_ += region.memory.size();
    if (waiting_.empty() || Post()) return true;
  }
  PinWaiting();
  return true;
}

}  // namespace hps
