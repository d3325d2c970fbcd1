// What the server has measured of itself, as plain numbers: the v2 statistics extension, the
// metrics page, the dashboard and `hps top` all read this.
//
// ServerStatistics is a snapshot; ServerCounters (server/core/server_counters.h) is what the
// running server counts into, without locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inference/network_runs.h"

namespace hps::server {

// Upper bounds of the latency buckets, in seconds: 5 us, which a small lookup in memory takes, to
// 10 s, about four to a decade. The last bucket of a histogram has no bound.
inline constexpr std::array<double, 22> kLatencyBucketSeconds = {
    5e-6, 10e-6, 20e-6, 30e-6, 50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 1e-3, 2e-3,
    3e-3, 5e-3,  10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1.0,    2.0,  10.0};

struct LatencyHistogram {
  std::array<uint64_t, kLatencyBucketSeconds.size() + 1> counts{};  // not cumulative
  uint64_t count = 0;
  uint64_t sum_ns = 0;
};

// Where a request's time goes: kTotal from its first byte to its last answer byte handed to the
// system; the others are parts of it.
enum class Stage : uint8_t { kTotal, kDecode, kQueue, kLookup, kEncode };
inline constexpr size_t kStageCount = 5;
inline constexpr std::array<const char*, kStageCount> kStageNames = {"total", "decode", "queue",
                                                                     "lookup", "encode"};

struct ModelServerStatistics {
  std::string model;
  std::string version;
  uint64_t requests = 0;         // answered OK
  uint64_t requests_failed = 0;  // admitted, answered with an error
  uint64_t failed_ns = 0;        // that they took, until then
  uint64_t keys = 0;
  uint64_t batches = 0;  // lookups that answered them
  uint64_t last_request_unix_ms = 0;
  std::array<LatencyHistogram, kStageCount> stages;
  // Lookups by how many calls they answered: (calls, lookups), ascending, in powers of two.
  std::vector<std::pair<uint64_t, uint64_t>> batch_sizes;
  std::vector<uint64_t> batch_lookup_ns;  // that the lookups of each of batch_sizes took
  uint64_t queue_depth = 0;               // calls that wait now
  std::optional<NetworkRuns> network{};   // of the version that is served; none: no network
};

struct ProtocolStatistics {
  uint64_t connections = 0;  // open now
  uint64_t requests = 0;     // of every kind, also refused ones
};

struct ServerStatistics {
  uint64_t start_unix_ms = 0;
  double ready_after_seconds = 0;  // start to ready; 0 while not ready
  bool ready = false;
  bool draining = false;
  ProtocolStatistics http;
  ProtocolStatistics grpc;
  uint64_t keys_in_flight = 0;
  uint64_t bytes_in_flight = 0;
  // By reason, ascending: "capacity", "draining", "connections", ...
  std::vector<std::pair<std::string, uint64_t>> refused;
  std::vector<std::pair<std::string, uint64_t>> bad_requests;
  std::vector<std::pair<std::string, uint64_t>> deadlines_exceeded;  // by stage
  uint64_t auth_failures = 0;
  // When the TLS certificate is valid: Unix times in seconds; 0 = there is none.
  int64_t certificate_not_before = 0;
  int64_t certificate_not_after = 0;
  std::vector<ModelServerStatistics> models;
};

}  // namespace hps::server
