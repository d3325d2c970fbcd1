#include "server/core/server_counters.h"

#include <algorithm>
#include <string>

namespace hps::server {
namespace {

template <size_t kCount>
void FillByName(const std::array<const char*, kCount>& names,
                const std::array<std::atomic<uint64_t>, kCount>& counts,
                std::vector<std::pair<std::string, uint64_t>>* out) {
  out->clear();
  for (size_t i = 0; i < kCount; ++i)
    out->emplace_back(names[i], counts[i].load(std::memory_order_relaxed));
  std::sort(out->begin(), out->end());
}

}  // namespace

void LatencyCounter::Add(Duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  const auto bucket = static_cast<size_t>(
      std::lower_bound(kLatencyBucketSeconds.begin(), kLatencyBucketSeconds.end(), seconds) -
      kLatencyBucketSeconds.begin());
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0)),
                    std::memory_order_relaxed);
}

LatencyHistogram LatencyCounter::Snapshot() const {
  LatencyHistogram histogram;
  for (size_t i = 0; i < counts_.size(); ++i) {
    histogram.counts[i] = counts_[i].load(std::memory_order_relaxed);
    histogram.count += histogram.counts[i];
  }
  histogram.sum_ns = sum_ns_.load(std::memory_order_relaxed);
  return histogram;
}

void ServerCounters::Fill(ServerStatistics* statistics) const {
  statistics->http.requests = requests_http_.load(std::memory_order_relaxed);
  statistics->grpc.requests = requests_grpc_.load(std::memory_order_relaxed);
  statistics->auth_failures = auth_failures_.load(std::memory_order_relaxed);
  statistics->certificate_not_before = certificate_not_before_.load(std::memory_order_relaxed);
  statistics->certificate_not_after = certificate_not_after_.load(std::memory_order_relaxed);
  const auto open_now = [](const std::atomic<int64_t>& connections) {
    return static_cast<uint64_t>(std::max<int64_t>(connections.load(std::memory_order_relaxed), 0));
  };
  statistics->http.connections = open_now(connections_http_);
  statistics->grpc.connections = open_now(connections_grpc_);
  FillByName(kRefusedReasonNames, refused_, &statistics->refused);
  FillByName(kBadRequestReasonNames, bad_, &statistics->bad_requests);
  FillByName(kLateStageNames, late_, &statistics->deadlines_exceeded);
}

}  // namespace hps::server
