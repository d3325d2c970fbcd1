// What connections and their streams need of the gRPC server that they belong to.
//
// Thread-safe; outlives them.
#pragma once

#include <atomic>
#include <string_view>

#include "absl/status/status.h"
#include "base/executor.h"
#include "server/core/protocol_server.h"
#include "server/grpc/control_methods.h"
#include "server/grpc/stream_places.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

class GrpcConnection;
class GrpcStream;

// What all of them work with.
struct GrpcShared {
  const ProtocolParts parts;
  const ControlMethods control;
  BufferPool pool;
  StreamPlaces places;
  std::atomic<bool> draining = false;
};

class GrpcHost {
 public:
  virtual ~GrpcHost() = default;

  virtual GrpcShared& shared() = 0;
  const ProtocolParts& parts() { return shared().parts; }
  const ControlMethods& control() { return shared().control; }
  BufferPool& pool() { return shared().pool; }
  StreamPlaces& places() { return shared().places; }
  bool draining() { return shared().draining.load(std::memory_order_relaxed); }

  // Whether a call with this metadatum `authorization` may pass.
  virtual bool Admits(std::string_view authorization) const = 0;

  // From now on the connection hears of its socket. Errors: RESOURCE_EXHAUSTED.
  virtual absl::Status Watch(GrpcConnection& connection, int fd) = 0;
  // Has the connection driven by one of the server's own threads, soon.
  virtual void Wake(GrpcConnection& connection, int fd) = 0;

  // An object for one more call; null where the server has no more, or no memory for it.
  virtual GrpcStream* TakeStream() = 0;
  virtual void ReturnStream(GrpcStream& stream) = 0;

  // Runs `task` where it may take its time. Errors: RESOURCE_EXHAUSTED.
  virtual absl::Status PostSlow(Task* task) = 0;

  // The connection has closed its socket and may be opened again with another.
  virtual void OnClosed(GrpcConnection& connection) = 0;
};

}  // namespace hps::server
