// The last quarter of an hour of the server's sums, so that a page that has just been opened has
// lines in its charts.
//
// The server takes a sample each kPeriod, also when no page is open, into a ring of kSamplesMax:
// 181 samples of 1,552 bytes, 274 KiB, allocated once. A sample has the sums over all models and
// tables since the process began, as /api/overview has them for each. docs/overview_api.md
// describes the JSON.
//
// Thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/step_thread.h"
#include "hps/store.h"
#include "server/core/protocol_server.h"
#include "server/core/server_statistics.h"

namespace hps::server {

struct HistorySample {
  uint64_t unix_ms = 0;
  uint64_t requests_http = 0;
  uint64_t requests_grpc = 0;
  uint64_t refused = 0;
  uint64_t bad_requests = 0;
  uint64_t deadlines_exceeded = 0;
  uint64_t auth_failures = 0;
  uint64_t queue_depth = 0;  // of that moment, as no sum
  uint64_t rows_changed = 0;
  double cpu_seconds = 0;
  std::array<uint64_t, kKeyStatusCount> keys{};
  std::array<decltype(LatencyHistogram::counts), kStageCount> stages{};
  std::array<decltype(FreshnessHistogram::counts), 3> freshness{};  // of levels 1, 2, 3
};
static_assert(sizeof(HistorySample) == 1552);

class History {
 public:
  static constexpr Duration kPeriod = std::chrono::seconds(5);
  static constexpr size_t kSamplesMax = 181;

  // Takes a sample now and then each `period`, until it ends. Both sources are borrowed.
  // Errors: RESOURCE_EXHAUSTED (its thread).
  static absl::StatusOr<std::unique_ptr<History>> Start(const StatisticsSource& statistics,
                                                        const Store& store,
                                                        Duration period = kPeriod);

  // The oldest sample goes if the ring is full.
  void Add(const HistorySample& sample) HPS_EXCLUDES(mutex_);
  std::string JsonText() const HPS_EXCLUDES(mutex_);

 private:
  History(const StatisticsSource& statistics, const Store& store, Duration period);
  Duration Sample();

  const StatisticsSource& statistics_;
  const Store& store_;
  const Duration period_;
  mutable Mutex mutex_;
  std::vector<HistorySample> ring_ HPS_GUARDED_BY(mutex_);
  size_t next_ HPS_GUARDED_BY(mutex_) = 0;  // where the next sample goes, once the ring is full
  StepThread thread_;                       // declared last, so it ends first
};

}  // namespace hps::server
