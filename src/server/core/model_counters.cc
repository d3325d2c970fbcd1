#include "server/core/model_counters.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/unix_time.h"

namespace hps::server {
namespace {

uint64_t Nanoseconds(Duration duration) {
  const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

}  // namespace

void ModelCounters::CountCall(bool ok, uint64_t key_count, Duration duration) {
  (ok ? requests_ : requests_failed_).fetch_add(1, std::memory_order_relaxed);
  if (ok) {
    keys_.fetch_add(key_count, std::memory_order_relaxed);
  } else {
    failed_ns_.fetch_add(Nanoseconds(duration), std::memory_order_relaxed);
  }
  last_request_unix_ms_.store(static_cast<uint64_t>(UnixMilliseconds()), std::memory_order_relaxed);
}

size_t ModelCounters::SizeClass(size_t call_count) {
  const auto size_class = static_cast<size_t>(std::bit_width(call_count | 1)) - 1;
  return std::min(size_class, kBatchSizeClasses - 1);
}

void ModelCounters::CountBatch(size_t call_count) {
  batches_[SizeClass(call_count)].fetch_add(1, std::memory_order_relaxed);
}

void ModelCounters::AddBatchTime(size_t call_count, Duration duration) {
  batch_lookup_ns_[SizeClass(call_count)].fetch_add(Nanoseconds(duration),
                                                    std::memory_order_relaxed);
}

void ModelCounters::Fill(ModelServerStatistics* statistics) const {
  statistics->requests = requests_.load(std::memory_order_relaxed);
  statistics->requests_failed = requests_failed_.load(std::memory_order_relaxed);
  statistics->failed_ns = failed_ns_.load(std::memory_order_relaxed);
  statistics->keys = keys_.load(std::memory_order_relaxed);
  statistics->last_request_unix_ms = last_request_unix_ms_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < kStageCount; ++i) statistics->stages[i] = stages_[i].Snapshot();
  statistics->batch_sizes.clear();
  statistics->batch_lookup_ns.clear();
  statistics->batches = 0;
  for (size_t i = 0; i < kBatchSizeClasses; ++i) {
    const uint64_t count = batches_[i].load(std::memory_order_relaxed);
    statistics->batches += count;
    if (count == 0) continue;
    statistics->batch_sizes.emplace_back(uint64_t{1} << i, count);
    statistics->batch_lookup_ns.push_back(batch_lookup_ns_[i].load(std::memory_order_relaxed));
  }
}

}  // namespace hps::server
