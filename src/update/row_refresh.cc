#include "update/row_refresh.h"

#include <algorithm>
#include <cstring>

#include "base/macros.h"
#include "serving/current_rows.h"

namespace hps {
namespace {

// Pieces that are published ahead of the caller, for each thread.
constexpr size_t kPiecesAhead = 2;

// A multiple of eight keys, so that rows of whole cache lines stay aligned to them in the staging.
size_t PieceKeys(size_t row_bytes) {
  const size_t keys = UpdateFromKeysMax(row_bytes);
  return keys < 8 ? keys : keys / 8 * 8;
}

}  // namespace

RowRefresh::RowRefresh(const Options& options)
    : options_(options),
      piece_keys_(PieceKeys(options.live->row_bytes())),
      piece_count_((options.keys.size() + piece_keys_ - 1) / piece_keys_) {}

absl::StatusOr<size_t> RowRefresh::Run(ForkJoinPool* teams, TimePoint until) {
  const size_t pieces =
      teams == nullptr || piece_count_ <= 1 ? RunAlone(until) : RunWithTeam(*teams, until);
  {
    MutexLock lock(mutex_);
    HPS_RETURN_IF_ERROR(status_);
  }
  EraseAbsent();
  return std::min(pieces * piece_keys_, options_.keys.size());
}

size_t RowRefresh::RunAlone(TimePoint until) {
  size_t done = 0;
  while (done < piece_count_ && !stopped_.load(std::memory_order_relaxed)) {
    RunPiece(done++);
    if (RealClock().Now() >= until) break;
  }
  return done;
}

// Published pieces are always done, so those that are done are the first ones.
size_t RowRefresh::RunWithTeam(ForkJoinPool& teams, TimePoint until) {
  const ForkJoinLease team = teams.Acquire();
  const size_t threads = team->helpers_max() + 1;
  team->Call(std::min(team->helpers_max(), piece_count_ - 1));
  team->Open(*this);
  size_t published = std::min(piece_count_, kPiecesAhead * threads);
  team->Publish(published);
  while (team->RunOne()) {
    if (published == piece_count_ || stopped_.load(std::memory_order_relaxed)) continue;
    if (RealClock().Now() >= until) continue;
    published = std::min(piece_count_, published + threads);
    team->Publish(published);
  }
  team->Close();
  return published;
}

DeviceCacheTable* RowRefresh::Target(size_t cache) const {
  if (options_.cache != kCachesMax && options_.cache != cache) return nullptr;
  if (failed(cache) || options_.live->l1_health(cache).needs_clearing()) return nullptr;
  return options_.live->l1(cache);
}

void RowRefresh::RunPiece(size_t piece) {
  if (stopped_.load(std::memory_order_relaxed)) return;
  const size_t first = piece * piece_keys_;
  const std::span<const Key> keys =
      options_.keys.subspan(first, std::min(piece_keys_, options_.keys.size() - first));
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    DeviceCacheTable* const l1 = Target(cache);
    if (l1 != nullptr && UpdateFirst(cache, *l1, keys)) return;
  }
}

bool RowRefresh::UpdateFirst(size_t cache, DeviceCacheTable& l1, std::span<const Key> keys) {
  bool has_fetched = false;
  size_t found = 0;
  const auto fill = [&](std::span<Key> keys_to, HostRows rows_to) -> absl::StatusOr<size_t> {
    has_fetched = true;
    absl::StatusOr<size_t> fetched = Fetch(keys, keys_to, rows_to);
    if (!fetched.ok()) {
      MutexLock lock(mutex_);
      status_.Update(fetched.status());
      stopped_.store(true, std::memory_order_relaxed);
      return fetched;
    }
    found = *fetched;
    rows_to.row_count = found;
    if (found > 0) UpdateOthers(cache + 1, {.keys = keys_to.first(found), .rows = rows_to});
    return fetched;
  };
  const absl::Status updated = l1.UpdateFrom(keys.size(), fill, options_.deadline);
  if (stopped_.load(std::memory_order_relaxed)) return true;
  Note(cache, updated, found);
  return has_fetched;
}

absl::StatusOr<size_t> RowRefresh::Fetch(std::span<const Key> from, std::span<Key> keys,
                                         HostRows rows) {
  std::copy(from.begin(), from.end(), keys.begin());
  std::vector<FetchOutcome> outcomes(from.size());
  HPS_RETURN_IF_ERROR(FetchCurrentRows(
      *options_.live, {.keys = keys, .rows = rows, .outcomes = outcomes}, options_.deadline));
  std::vector<Key> absent;
  size_t found = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    if (outcomes[i] == FetchOutcome::kAbsent) absent.push_back(keys[i]);
    if (outcomes[i] != FetchOutcome::kHit) continue;
    if (found != i) {
      keys[found] = keys[i];
      std::memcpy(rows.row(found), rows.row(i), rows.row_bytes);
    }
    ++found;
  }
  if (!absent.empty()) {
    MutexLock lock(mutex_);
    absent_.insert(absent_.end(), absent.begin(), absent.end());
  }
  return found;
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

}  // namespace hps
