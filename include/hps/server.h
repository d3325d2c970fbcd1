// Serves a store over the KServe v2 protocol (HTTP and gRPC), with metrics and a dashboard.
//
//   absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config);
//   ... (*server)->addresses() ...
//   absl::Status status = (*server)->Drain();
//
// The server opens the store for writing and accepts connections before the models are loaded. It
// reports "ready" when all configured models are loaded. It handles no signals; `hps serve` calls
// Drain on SIGTERM and Reopen on SIGHUP.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"

namespace hps {

// The addresses that a server listens on, as host:port. If the configured port is 0, the port here
// is the one that the operating system chose. Empty = the protocol is off or not in this build.
struct ServerAddresses {
  std::string http;
  std::string grpc;
  std::string metrics;
};

// Result of the first loading of the models.
struct LoadReport {
  absl::Status status;      // error of the first model that could not be loaded
  double seconds = 0;       // since the call of Start
  double open_seconds = 0;  // the part of them spent opening the store, crash recovery included
  size_t models = 0;        // number of models that are served
};

class Server {
 public:
  // The checks that Start makes before it opens anything. Errors: those of ValidateConfig;
  // INVALID_ARGUMENT: neither HTTP nor gRPC is on, or repository control is on without a token.
  static absl::Status Check(const Config& config);

  // `on_loaded` is called once, on a thread of the server, when loading has ended. The server is
  // ready then if the report's status is OK.
  // Errors: those of Check and of Store::Open; INVALID_ARGUMENT (certificate), NOT_FOUND (file of
  // a certificate), FAILED_PRECONDITION (a token or key that every user of the machine may read),
  // RESOURCE_EXHAUSTED (the process may open too few files), UNAVAILABLE (address in use),
  // UNIMPLEMENTED (gRPC in a build without it, unless server.grpc has its default value, which is
  // ignored then).
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const Config& config, std::function<void(const LoadReport&)> on_loaded = {});

  // Drains, and waits for all background work without a limit. See Close.
  virtual ~Server() = default;

  virtual const ServerAddresses& addresses() const = 0;

  // Stops serving. Reports "not ready", refuses new connections, closes idle ones and answers the
  // requests that have begun to arrive, for at most server.drain_timeout. Shortly before that time
  // ends, running lookups are cancelled and answered with the rows that they have. Then all
  // connections are closed. A second call waits for the first.
  // Errors: DEADLINE_EXCEEDED if connections with open requests were closed. The server has stopped
  // then, too.
  virtual absl::Status Drain() = 0;

  // Drains, then releases threads, memory and the store, by 0.5 s after the drain timeout.
  // Errors: DEADLINE_EXCEEDED if something was not released by then, for example because a disk
  // does not respond. In that case do not destroy the server, but end the process with std::_Exit.
  // No committed data is lost. After Close, call nothing but the destructor.
  virtual absl::Status Close() = 0;

  // Reads certificates and tokens from their files again; new connections use them.
  // Errors: those of Start; the old ones stay in use then.
  virtual absl::Status Reopen() = 0;
};

}  // namespace hps
