#include "bench/l1/l1_hit_rate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/macros.h"
#include "hps/types.h"
#include "tier/device_cache_factory.h"

namespace hps::bench {
namespace {

constexpr size_t kRowBytes = 16;

struct Sizes {
  uint64_t key_range = 0;
  uint64_t cache_rows = 0;  // a tenth
  size_t batch_keys = 0;
  size_t batches = 0;
};

// Keys 0 to key_range - 1 in order of use, in a ring through an entry of its own.
class ExactLru {
 public:
  ExactLru(uint64_t key_range, uint64_t capacity)
      : capacity_(capacity), ring_(key_range), links_(key_range + 1) {
    links_[ring_] = {ring_, ring_, true};
  }

  bool Touch(uint64_t key) {
    if (!links_[key].held) return false;
    Unlink(key);
    LinkFirst(key);
    return true;
  }
  void Insert(uint64_t key) {
    if (Touch(key)) return;
    if (held_count_ == capacity_) {
      const uint64_t oldest = links_[ring_].before;
      Unlink(oldest);
      links_[oldest].held = false;
    } else {
      ++held_count_;
    }
    links_[key].held = true;
    LinkFirst(key);
  }

 private:
  struct Links {
    uint64_t before = 0;
    uint64_t after = 0;
    bool held = false;
  };
  void Unlink(uint64_t key) {
    links_[links_[key].before].after = links_[key].after;
    links_[links_[key].after].before = links_[key].before;
  }
  void LinkFirst(uint64_t key) {
    links_[key].before = ring_;
    links_[key].after = links_[ring_].after;
    links_[links_[ring_].after].before = key;
    links_[ring_].after = key;
  }

  const uint64_t capacity_;
  const uint64_t ring_;
  uint64_t held_count_ = 0;
  std::vector<Links> links_;
};

// The cache, asked through its interface with keys on the host.
class Asked {
 public:
  static absl::StatusOr<std::unique_ptr<Asked>> Create(int device, const Sizes& sizes) {
    auto asked = std::make_unique<Asked>();
    HPS_ASSIGN_OR_RETURN(asked->cache_, BuiltInDeviceCacheFactory().Make(
                                            {.device = device,
                                             .bytes_max = sizes.cache_rows * 64 + (8 << 20),
                                             .calls_max = 1,
                                             .call_keys_max = sizes.batch_keys}));
    // A table is given the slots for its rows at a fill of three quarters.
    const uint64_t bytes = asked->cache_->TableBytes(kRowBytes, sizes.cache_rows / 4 * 3);
    HPS_ASSIGN_OR_RETURN(asked->table_, asked->cache_->OpenTable(kRowBytes, bytes));
    asked->rows_.resize(sizes.batch_keys * kRowBytes);
    asked->statuses_.resize(sizes.batch_keys, KeyStatus::kAbsent);
    return asked;
  }

  // Asks for the batch, inserts what it missed; gives how many positions were hits.
  absl::StatusOr<uint64_t> Ask(const std::vector<Key>& keys) {
    const DeviceCacheQuery query = {.table = table_.get(),
                                    .keys = keys.data(),
                                    .key_count = keys.size(),
                                    .rows = rows_.data(),
                                    .row_bytes = kRowBytes,
                                    .row_stride_bytes = kRowBytes};
    HPS_ASSIGN_OR_RETURN(const DeviceCallLease call, cache_->AcquireCall(keys.size()));
    HPS_RETURN_IF_ERROR(call->Begin({&query, 1}, Stream()));
    HPS_ASSIGN_OR_RETURN(const DeviceMisses misses, call->Misses(kNoDeadline));
    const std::span<const Key> missed = misses.keys[0];
    const DeviceRowPiece piece = {.statuses = std::span(statuses_).first(missed.size())};
    HPS_RETURN_IF_ERROR(call->Finish({&piece, 1}));
    HPS_RETURN_IF_ERROR(call->Wait(kNoDeadline));
    const RowBatch batch = {.keys = missed,
                            .rows = {rows_.data(), missed.size(), kRowBytes, kRowBytes}};
    HPS_RETURN_IF_ERROR(table_->InsertIfAbsent(batch, 0).status());
    HPS_RETURN_IF_ERROR(table_->Flush(kNoDeadline));
    return call->counts(0)[KeyStatus::kHitL1];
  }

 private:
  std::unique_ptr<DeviceCache> cache_;
  std::unique_ptr<DeviceCacheTable> table_;
  std::vector<std::byte> rows_;
  std::vector<KeyStatus> statuses_;
};

absl::StatusOr<Result> Measure(int device, const Sizes& sizes, double alpha) {
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<Asked> cache, Asked::Create(device, sizes));
  ExactLru exact(sizes.key_range, sizes.cache_rows);
  std::vector<double> weights(sizes.key_range);
  for (uint64_t i = 0; i < sizes.key_range; ++i)
    weights[i] = (i == 0 ? 0 : weights[i - 1]) + std::pow(static_cast<double>(i + 1), -alpha);
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(0, weights.back());
  uint64_t hits = 0, exact_hits = 0, asked = 0;
  std::vector<Key> keys(sizes.batch_keys);
  std::vector<Key> missed;
  for (size_t batch = 0; batch < sizes.batches; ++batch) {
    for (Key& key : keys)
      key = std::lower_bound(weights.begin(), weights.end(), uniform(random)) - weights.begin();
    HPS_ASSIGN_OR_RETURN(const uint64_t cache_hits, cache->Ask(keys));
    missed.clear();
    for (Key key : keys) {
      if (!exact.Touch(static_cast<uint64_t>(key))) missed.push_back(key);
    }
    for (Key key : missed) exact.Insert(static_cast<uint64_t>(key));
    if (batch < sizes.batches / 2) continue;
    hits += cache_hits;
    exact_hits += keys.size() - missed.size();
    asked += keys.size();
  }
  Result result{.name = "hit_rate", .unit = "%", .runs = sizes.batches};
  result.params = {{"alpha", absl::StrCat(alpha)},
                   {"keys", absl::StrCat(sizes.key_range)},
                   {"slots", absl::StrCat(sizes.cache_rows)},
                   {"bound", "exact LRU of as many rows"}};
  result.figure = 100.0 * static_cast<double>(hits) / static_cast<double>(asked);
  result.bound = 100.0 * static_cast<double>(exact_hits) / static_cast<double>(asked);
  result.ratio = result.figure / *result.bound;
  // Half a point of hit rate, as a ratio.
  result.target = absl::StrFormat(">= %.4f", (*result.bound - 0.5) / *result.bound);
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Result>> MeasureHitRates(const Options& options) {
  const Sizes sizes =
      options.quick ? Sizes{20'000, 2'000, 1'000, 40} : Sizes{1'000'000, 100'000, 16'384, 300};
  std::vector<Result> results;
  for (double alpha : {0.8, 1.05, 1.2}) {
    HPS_ASSIGN_OR_RETURN(Result result, Measure(options.device, sizes, alpha));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace hps::bench
