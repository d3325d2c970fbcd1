#include "server/core/model_counters.h"

#include <algorithm>
#include <bit>
#include <chrono>

namespace hps::server {

void ModelCounters::CountCall(bool ok, uint64_t key_count) {
  (ok ? requests_ : requests_failed_).fetch_add(1, std::memory_order_relaxed);
  if (ok) keys_.fetch_add(key_count, std::memory_order_relaxed);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  last_request_unix_ms_.store(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()),
      std::memory_order_relaxed);
}

void ModelCounters::CountBatch(size_t call_count) {
  const auto size_class = static_cast<size_t>(std::bit_width(call_count | 1)) - 1;
  batches_[std::min(size_class, kBatchSizeClasses - 1)].fetch_add(1, std::memory_order_relaxed);
}

void ModelCounters::Fill(ModelServerStatistics* statistics) const {
  statistics->requests = requests_.load(std::memory_order_relaxed);
  statistics->requests_failed = requests_failed_.load(std::memory_order_relaxed);
  statistics->keys = keys_.load(std::memory_order_relaxed);
  statistics->last_request_unix_ms = last_request_unix_ms_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < kStageCount; ++i) statistics->stages[i] = stages_[i].Snapshot();
  statistics->batch_sizes.clear();
  statistics->batches = 0;
  for (size_t i = 0; i < kBatchSizeClasses; ++i) {
    const uint64_t count = batches_[i].load(std::memory_order_relaxed);
    statistics->batches += count;
    if (count != 0) statistics->batch_sizes.emplace_back(uint64_t{1} << i, count);
  }
}

}  // namespace hps::server
