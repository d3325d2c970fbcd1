// What the running server counts, without locks: the protocols and the inference core add, the
// snapshot (server_statistics.h) is read from it.
//
// Thread-safe; every addition is one relaxed atomic operation.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "server/core/inference_call.h"
#include "server/core/server_statistics.h"

namespace hps::server {

enum class RefusedReason : uint8_t { kCapacity, kConnections, kDraining, kNotReady };
inline constexpr std::array<const char*, 4> kRefusedReasonNames = {"capacity", "connections",
                                                                   "draining", "not_ready"};

enum class BadRequestReason : uint8_t {
  kProtocol,  // not HTTP, not gRPC, or framed wrongly
  kLimit,     // a limit of base/limits.h or the configuration
  kSyntax,    // JSON or protobuf that does not parse
  kContent,   // parsed, but says something impossible: shapes, names, sizes
  kUnknown,   // a path, model or method that does not exist
  kTimeout,   // the client was too slow
};
inline constexpr std::array<const char*, 6> kBadRequestReasonNames = {
    "protocol", "limit", "syntax", "content", "unknown", "timeout"};

enum class LateStage : uint8_t { kQueue, kLookup };
inline constexpr std::array<const char*, 2> kLateStageNames = {"queue", "lookup"};

// A LatencyHistogram that many threads add to.
class LatencyCounter {
 public:
  void Add(Duration duration);
  LatencyHistogram Snapshot() const;

 private:
  std::array<std::atomic<uint64_t>, kLatencyBucketSeconds.size() + 1> counts_{};
  std::atomic<uint64_t> sum_ns_ = 0;
};

class ServerCounters {
 public:
  void CountRequest(Protocol protocol) {
    Add(protocol == Protocol::kHttp ? requests_http_ : requests_grpc_);
  }
  void CountRefused(RefusedReason reason) { Add(refused_[static_cast<size_t>(reason)]); }
  void CountBadRequest(BadRequestReason reason) { Add(bad_[static_cast<size_t>(reason)]); }
  void CountDeadlineExceeded(LateStage stage) { Add(late_[static_cast<size_t>(stage)]); }
  void CountAuthFailure() { Add(auth_failures_); }
  // The TLS certificate in use: ServerStatistics' times.
  void NoteCertificate(int64_t not_before, int64_t not_after) {
    certificate_not_before_.store(not_before, std::memory_order_relaxed);
    certificate_not_after_.store(not_after, std::memory_order_relaxed);
  }
  void AddConnections(Protocol protocol, int64_t change) {
    auto& connections = protocol == Protocol::kHttp ? connections_http_ : connections_grpc_;
    connections.fetch_add(change, std::memory_order_relaxed);
  }

  // Fills in what this object counts; the rest of `statistics` is left.
  void Fill(ServerStatistics* statistics) const;

 private:
  using Counter = std::atomic<uint64_t>;
  static void Add(Counter& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

  Counter requests_http_ = 0;
  Counter requests_grpc_ = 0;
  Counter auth_failures_ = 0;
  std::atomic<int64_t> certificate_not_before_ = 0;
  std::atomic<int64_t> certificate_not_after_ = 0;
  std::atomic<int64_t> connections_http_ = 0;
  std::atomic<int64_t> connections_grpc_ = 0;
  std::array<Counter, kRefusedReasonNames.size()> refused_{};
  std::array<Counter, kBadRequestReasonNames.size()> bad_{};
  std::array<Counter, kLateStageNames.size()> late_{};
};

}  // namespace hps::server
