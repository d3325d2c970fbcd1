// The gRPC server: owns what its connections share, the call objects and the limits.
//
// StartGrpcServer (server/core/protocol_server.h) creates it.
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
  // Health's Watch needs no token. Its streams have a separate limit, so that clients without a
  // token cannot use up the inference streams.
  StreamLimiter& places(bool is_watch) { return is_watch ? watch_places_ : places_; }

  // Counts a bad request by its status. `invalid`: the reason if it is INVALID_ARGUMENT.
  void CountBadRequest(const absl::Status& status, BadRequestReason invalid);

  // Returns an object for a new call of a connection that has `connection_calls` already. Null: the
  // server is at its capacity. Throws std::bad_alloc; nothing is changed then.
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
