#include "update/row_refresh.h"

#include <algorithm>
#include <cstring>

#include "base/macros.h"
#include "serving/current_rows.h"

namespace hps {
namespace {

// Rows that one thread fetches at a time: 10 to 20 us of level 2.
constexpr size_t kFetchBytes = size_t{128} << 10;
// With less to do, waking a helper takes longer than the work.
constexpr size_t kAloneBytesMax = 2 * kFetchBytes;

// A multiple of eight keys, so that rows of whole cache lines stay aligned to them in the staging.
size_t StepKeys(size_t row_bytes) {
  const size_t keys = UpdateFromKeysMax(row_bytes);
  return keys < 8 ? keys : keys / 8 * 8;
}

void RunWith(ForkJoinTeam& team, size_t helpers, ForkJoinTeam::Work& work, size_t pieces) {
  team.Call(helpers);
  team.Open(work);
  team.Publish(pieces);
  while (team.RunOne()) {
  }
  team.Close();
}

}  // namespace

class RowRefresh::StepFetch final : public ForkJoinTeam::Work {
 public:
  // Room for the keys and their rows.
  struct Room {
    std::span<Key> keys;
    HostRows rows;
  };
  StepFetch(RowRefresh& refresh, std::span<const Key> keys, const Room& room)
      : refresh_(refresh),
        keys_(keys),
        room_(room),
        outcomes_(keys.size()),
        piece_keys_(std::max<size_t>(kFetchBytes / room.rows.row_bytes, 1)) {}

  // Returns how many rows there are, in the first places of the room.
  size_t Run(const Helpers& helpers) {
    const size_t pieces = (keys_.size() + piece_keys_ - 1) / piece_keys_;
    if (helpers.team == nullptr) {
      for (size_t piece = 0; piece < pieces; ++piece) RunPiece(piece);
    } else {
      RunWith(*helpers.team, std::min(helpers.count, pieces - 1), *this, pieces);
    }
    return Collect();
  }

 private:
  void RunPiece(size_t piece) override {
    const size_t first = piece * piece_keys_;
    const size_t count = std::min(piece_keys_, keys_.size() - first);
    if (refresh_.stopped_.load(std::memory_order_relaxed)) return;
    const std::span<Key> keys = room_.keys.subspan(first, count);
    std::copy_n(keys_.begin() + static_cast<ptrdiff_t>(first), count, keys.begin());
    HostRows rows = room_.rows;
    rows.data = room_.rows.row(first);
    rows.row_count = count;
    const FetchBatch batch = {.keys = keys,
                              .rows = rows,
                              .outcomes = std::span(outcomes_).subspan(first, count),
                              .rows_go_to_device = true};
    const absl::Status fetched =
        FetchCurrentRows(*refresh_.options_.live, batch, refresh_.options_.deadline);
    if (!fetched.ok()) refresh_.Stop(fetched);
  }

  size_t Collect() {
    std::vector<Key> absent;
    size_t found = 0;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (outcomes_[i] == FetchOutcome::kAbsent) absent.push_back(keys_[i]);
      if (outcomes_[i] != FetchOutcome::kHit) continue;
      if (found != i) {
        room_.keys[found] = keys_[i];
        std::memcpy(room_.rows.row(found), room_.rows.row(i), room_.rows.row_bytes);
      }
      ++found;
    }
    if (absent.empty()) return found;
    MutexLock lock(refresh_.mutex_);
    refresh_.absent_.insert(refresh_.absent_.end(), absent.begin(), absent.end());
    return found;
  }

  RowRefresh& refresh_;
  const std::span<const Key> keys_;
  const Room room_;
  std::vector<FetchOutcome> outcomes_;
  const size_t piece_keys_;
};

RowRefresh::RowRefresh(const Options& options)
    : options_(options),
      step_keys_(StepKeys(options.live->row_bytes())),
      step_count_((options.keys.size() + step_keys_ - 1) / step_keys_) {}

absl::StatusOr<size_t> RowRefresh::Run(ForkJoinPool* teams, TimePoint until) {
  until_ = until;
  const size_t bytes = options_.keys.size() * options_.live->row_bytes();
  if (teams == nullptr || bytes <= kAloneBytesMax) {
    Drive({});
    if (options_.beside) options_.beside();
  } else {
    teams_ = teams;
    const ForkJoinLease team = teams->Acquire();
    const size_t pieces = kDrivers + (options_.beside ? 1 : 0);
    RunWith(*team, pieces - 1, *this, pieces);
  }
  {
    MutexLock lock(mutex_);
    HPS_RETURN_IF_ERROR(status_);
  }
  EraseAbsent();
  return std::min(next_step_.load() * step_keys_, options_.keys.size());
}

void RowRefresh::RunPiece(size_t piece) {
  if (piece == kDrivers) return options_.beside();
  if (next_step_.load(std::memory_order_relaxed) >= step_count_) return;
  const ForkJoinLease team = teams_->Acquire();
  Drive({.team = team.get(), .count = std::max<size_t>(team->helpers_max() / kDrivers, 1)});
}

// A step that was taken is always done, so those that are done are the first ones.
void RowRefresh::Drive(const Helpers& helpers) {
  while (!stopped_.load(std::memory_order_relaxed)) {
    if (next_step_.load(std::memory_order_relaxed) > 0 && RealClock().Now() >= until_) return;
    const size_t step = next_step_.fetch_add(1, std::memory_order_relaxed);
    if (step >= step_count_) return;
    RunStep(step, helpers);
  }
}

DeviceCacheTable* RowRefresh::Target(size_t cache) const {
  if (options_.cache != kCachesMax && options_.cache != cache) return nullptr;
  if (failed(cache) || options_.live->l1_health(cache).needs_clearing()) return nullptr;
  return options_.live->l1(cache);
}

void RowRefresh::RunStep(size_t step, const Helpers& helpers) {
  const size_t first = step * step_keys_;
  const std::span<const Key> keys =
      options_.keys.subspan(first, std::min(step_keys_, options_.keys.size() - first));
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    DeviceCacheTable* const l1 = Target(cache);
    if (l1 != nullptr && UpdateFirst(cache, *l1, keys, helpers)) return;
  }
}

bool RowRefresh::UpdateFirst(size_t cache, DeviceCacheTable& l1, std::span<const Key> keys,
                             const Helpers& helpers) {
  bool has_fetched = false;
  size_t found = 0;
  const auto fill = [&](std::span<Key> keys_to, HostRows rows_to) -> absl::StatusOr<size_t> {
    has_fetched = true;
    found = StepFetch(*this, keys, {.keys = keys_to, .rows = rows_to}).Run(helpers);
    if (stopped_.load(std::memory_order_relaxed))
      return absl::UnavailableError("the refresh has ended");
    rows_to.row_count = found;
    if (found > 0) UpdateOthers(cache + 1, {.keys = keys_to.first(found), .rows = rows_to});
    return found;
  };
  const absl::Status updated = l1.UpdateFrom(keys.size(), fill, options_.deadline);
  if (stopped_.load(std::memory_order_relaxed)) return true;
  Note(cache, updated, found);
  return has_fetched;
}

void RowRefresh::UpdateOthers(size_t first_cache, const RowBatch& batch) {
  for (size_t cache = first_cache; cache < kCachesMax; ++cache) {
    DeviceCacheTable* const l1 = Target(cache);
    if (l1 != nullptr) Note(cache, l1->Update(batch, options_.deadline), batch.keys.size());
  }
}

void RowRefresh::EraseAbsent() {
  MutexLock lock(mutex_);
  if (absent_.empty()) return;
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    DeviceCacheTable* const l1 = Target(cache);
    if (l1 != nullptr) Note(cache, l1->Erase(absent_, options_.deadline), absent_.size());
  }
}

void RowRefresh::Note(size_t cache, const absl::Status& status, size_t row_count) {
  if (!status.ok()) failed_[cache].store(true, std::memory_order_relaxed);
  rows_refreshed_.fetch_add(row_count, std::memory_order_relaxed);
}

void RowRefresh::Stop(const absl::Status& status) {
  MutexLock lock(mutex_);
  status_.Update(status);
  stopped_.store(true, std::memory_order_relaxed);
}

}  // namespace hps
