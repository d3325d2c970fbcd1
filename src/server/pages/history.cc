#include "server/pages/history.h"

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/macros.h"
#include "base/unix_time.h"
#include "server/pages/process_statistics.h"
#include "server/pages/snapshot.h"

namespace hps::server {
namespace {

using Json = nlohmann::ordered_json;

// Grows when a member changes its meaning or goes; new members don't count.
constexpr int kHistoryVersion = 1;

uint64_t Sum(const std::vector<std::pair<std::string, uint64_t>>& counts) {
  uint64_t sum = 0;
  for (const auto& [reason, count] : counts) sum += count;
  return sum;
}

template <typename Counts>
void AddTo(Counts& sum, const Counts& counts) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += counts[i];
}

Json SampleJson(const HistorySample& sample) {
  return {{"unix_ms", sample.unix_ms},
          {"requests", {{"http", sample.requests_http}, {"grpc", sample.requests_grpc}}},
          {"refused", sample.refused},
          {"bad_requests", sample.bad_requests},
          {"deadlines_exceeded", sample.deadlines_exceeded},
          {"auth_failures", sample.auth_failures},
          {"queue_depth", sample.queue_depth},
          {"rows_changed", sample.rows_changed},
          {"cpu_seconds", sample.cpu_seconds},
          {"keys", sample.keys},
          {"stages", sample.stages},
          {"freshness", sample.freshness}};
}

HistorySample TakeSample(const StatisticsSource& statistics, const Store& store) {
  const ServerStatistics server = statistics.Snapshot();
  const StoreStatistics stored = store.Statistics();
  const UpdateStatistics& updates = stored.updates;
  HistorySample sample = {.unix_ms = static_cast<uint64_t>(UnixMilliseconds()),
                          .requests_http = server.http.requests,
                          .requests_grpc = server.grpc.requests,
                          .refused = Sum(server.refused),
                          .bad_requests = Sum(server.bad_requests),
                          .deadlines_exceeded = Sum(server.deadlines_exceeded),
                          .auth_failures = server.auth_failures,
                          .rows_changed = updates.rows_upserted + updates.rows_deleted,
                          .cpu_seconds = ReadProcessStatistics().cpu_seconds,
                          .freshness = {updates.l1_freshness.counts, updates.l2_freshness.counts,
                                        updates.l3_freshness.counts}};
  for (const ModelServerStatistics& model : server.models) {
    sample.queue_depth += model.queue_depth;
    for (size_t stage = 0; stage < kStageCount; ++stage)
      AddTo(sample.stages[stage], model.stages[stage].counts);
  }
  for (const TableStatistics& table : stored.tables) AddTo(sample.keys, table.keys.by_status);
  return sample;
}

}  // namespace

absl::StatusOr<std::unique_ptr<History>> History::Start(const StatisticsSource& statistics,
                                                        const Store& store, Duration period) {
  std::unique_ptr<History> history(new History(statistics, store, period));
  HPS_RETURN_IF_ERROR(
      history->thread_.Start("hps-history", [&owner = *history] { return owner.Sample(); }));
  return history;
}

History::History(const StatisticsSource& statistics, const Store& store, Duration period)
    : statistics_(statistics), store_(store), period_(period) {
  ring_.reserve(kSamplesMax);
}

Duration History::Sample() {
  try {
    Add(TakeSample(statistics_, store_));
  } catch (const std::bad_alloc&) {
    // A gap in the charts is better than a server that ends.
  }
  return period_;
}

void History::Add(const HistorySample& sample) {
  MutexLock lock(mutex_);
  if (ring_.size() < kSamplesMax) {
    ring_.push_back(sample);
    return;
  }
  ring_[next_] = sample;
  next_ = (next_ + 1) % kSamplesMax;
}

std::string History::JsonText() const {
  Json samples = Json::array();
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < ring_.size(); ++i)
      samples.push_back(SampleJson(ring_[(next_ + i) % ring_.size()]));
  }
  const Json json = {{"version", kHistoryVersion},
                     {"period_seconds", std::chrono::duration<double>(period_).count()},
                     {"key_statuses", kKeyStatusNames},
                     {"stages", kStageNames},
                     {"latency_bucket_seconds", kLatencyBucketSeconds},
                     {"samples", std::move(samples)}};
  return json.dump();
}

}  // namespace hps::server
