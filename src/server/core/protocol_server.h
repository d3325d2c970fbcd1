// One listening protocol: what the server starts, drains and reopens without knowing which it is.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "hps/config.h"
#include "hps/store.h"
#include "server/core/inference.h"
#include "server/core/model_repository.h"
#include "server/core/page_source.h"
#include "server/core/server_counters.h"
#include "server/core/server_statistics.h"

namespace hps::server {

// Largest body or message of a request other than inference, compressed and decompressed. Small,
// because probes need no token, and what is parsed into objects takes a multiple of its size.
inline constexpr uint64_t kControlBytesMax = 64 << 10;

// Gives the snapshot behind the v2 statistics extension, the metrics and the dashboard.
class StatisticsSource {
 public:
  virtual ~StatisticsSource() = default;
  virtual ServerStatistics Snapshot() const = 0;
};

// What every protocol works with; all borrowed, and they outlive it.
struct ProtocolParts {
  const ServerConfig* config = nullptr;
  Inference* inference = nullptr;
  ModelRepository* repository = nullptr;
  PageSource* pages = nullptr;
  Store* store = nullptr;  // takes changes of rows and refreshes; null: there are none
  const StatisticsSource* statistics = nullptr;
  ServerCounters* counters = nullptr;
  // How long, at most, what a client still sends is read and thrown away at the end of its
  // connection, so that it sees the last answer instead of a reset.
  Duration linger_timeout = std::chrono::seconds(2);
};

class ProtocolServer {
 public:
  // Closes what is still open.
  virtual ~ProtocolServer() = default;

  virtual const std::string& address() const = 0;  // host:port, the port really taken

  // Takes no new connection, closes idle ones at once, lets the others finish their request.
  // Returns when all are closed, or DEADLINE_EXCEEDED after having cut off the rest.
  virtual absl::Status Drain(Deadline deadline) = 0;

  // Reads certificates and tokens again. Errors: the old ones stay in use.
  virtual absl::Status Reopen() = 0;
};

// Errors: INVALID_ARGUMENT (address, certificate), NOT_FOUND (a file), UNAVAILABLE (the address is
// in use).
enum class HttpRole { kEverything, kMetricsOnly };
absl::StatusOr<std::unique_ptr<ProtocolServer>> StartHttpServer(const ProtocolParts& parts,
                                                                const std::string& address,
                                                                HttpRole role);
// UNIMPLEMENTED in a build without gRPC (CMake option HPS_GRPC).
absl::StatusOr<std::unique_ptr<ProtocolServer>> StartGrpcServer(const ProtocolParts& parts,
                                                                const std::string& address);

}  // namespace hps::server
