// Serves a store over the KServe v2 protocol (HTTP and gRPC), with metrics and a dashboard.
//
//   absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config);
//   ... (*server)->addresses() ...
//   absl::Status status = (*server)->Drain();
//
// It opens the store for writing and listens at once; it says "ready" when the models of the
// configuration are loaded. Thread-safe. Signals are the caller's (`hps serve` maps SIGTERM to
// Drain and SIGHUP to Reopen).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"

namespace hps {

// Where a server listens, as host:port with the port that was really taken (a configured port of 0
// lets the system choose). Empty: that protocol is off, or this build lacks it.
struct ServerAddresses {
  std::string http;
  std::string grpc;
  std::string metrics;
};

// How the first loading of the models ended.
struct LoadReport {
  absl::Status status;      // of the first model that could not be loaded; the others are served
  double seconds = 0;       // since Start was called
  double open_seconds = 0;  // of them for opening the store: what a crash left is recovered there
  size_t models = 0;        // that are served
};

class Server {
 public:
  // What Start refuses before it touches anything. Errors: those of ValidateConfig;
  // INVALID_ARGUMENT: neither HTTP nor gRPC, repository control without a token.
  static absl::Status Check(const Config& config);

  // `on_loaded` is called once, on a thread of the server, when the models have been loaded: it is
  // ready then, unless one could not be.
  // Errors: those of Check and of Store::Open; INVALID_ARGUMENT (a certificate), NOT_FOUND (a
  // certificate's file), UNAVAILABLE (an address that is in use), UNIMPLEMENTED (gRPC in a build
  // that lacks it, but for its default address, which is not served then).
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const Config& config, std::function<void(const LoadReport&)> on_loaded = {});

  // Drains what the caller has not drained, and waits for what hangs.
  virtual ~Server() = default;

  virtual const ServerAddresses& addresses() const = 0;

  // Says "not ready", takes no new connection and closes idle ones at once, answers what has begun
  // to come, at most for [server] drain_timeout, then closes everything. Shortly before that time
  // is over, requests that are still looked up are answered with the rows that have come, as if
  // their deadlines had passed. A second call waits for the first. Errors: DEADLINE_EXCEEDED when
  // requests had to be cut off; the server has ended all the same.
  virtual absl::Status Drain() = 0;

  // Drains, and gives everything back in order: threads, memory, the store. Takes until
  // drain_timeout after the drain began, and half a second more. Errors: DEADLINE_EXCEEDED when
  // something was not given back by then, because a disk does not answer, say. The server must not
  // be destroyed then: the process is to end without it (std::_Exit). Nothing durable is lost, the
  // store is as after a kill -9. Nothing but the destructor may be called afterwards.
  virtual absl::Status Close() = 0;

  // Reads certificates and tokens from their files again; new connections use them.
  // Errors: those of Start; the old ones stay in use then.
  virtual absl::Status Reopen() = 0;
};

}  // namespace hps
