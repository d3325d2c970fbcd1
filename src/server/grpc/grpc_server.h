// The gRPC server: what all its calls work with.
//
// StartGrpcServer (server/core/protocol_server.h) makes one.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/core/protocol_server.h"
#include "server/grpc/control_methods.h"
#include "server/grpc/grpc_stream.h"
#include "server/grpc/stream_places.h"
#include "server/net/connection_server.h"

namespace hps::server {

class GrpcServer final : public ConnectionServer {
 public:
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const ProtocolParts& parts,
                                                           const std::string& address);
  ~GrpcServer() override;

  // ---- For its connections and their streams.

  const ControlMethods& control() const { return control_; }
  StreamLimiter& places() { return places_; }
  // Of health's Watch, which asks for no token: strangers take no streams of inferences.
  StreamLimiter& watch_places() { return watch_places_; }

  // An object for one more call of a connection that has so many; null where the server has no more
  // for it. Throws std::bad_alloc, with nothing changed.
  GrpcStream* TakeStream(size_t connection_calls);
  void ReturnStream(GrpcStream& stream);

 private:
  GrpcServer(const ProtocolParts& parts, bool has_token);

  std::unique_ptr<ServedConnection> NewConnection() override;
  void OnRefusedConnection(int /*fd*/) override {}

  const ControlMethods control_;
  StreamLimiter places_;
  StreamLimiter watch_places_;

  Mutex streams_mutex_;
  std::vector<std::unique_ptr<GrpcStream>> streams_ HPS_GUARDED_BY(streams_mutex_);
  std::vector<GrpcStream*> free_streams_ HPS_GUARDED_BY(streams_mutex_);
};

}  // namespace hps::server
