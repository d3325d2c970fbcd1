// What a build without gRPC says when it is to be served.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/core/protocol_server.h"

namespace hps::server {

absl::StatusOr<std::unique_ptr<ProtocolServer>> StartGrpcServer(const ProtocolParts& /*parts*/,
                                                                const std::string& address) {
  return absl::UnimplementedError(
      absl::StrCat(address,
                   ": this build does not have gRPC: configure it with -DHPS_GRPC=ON, or "
                   "turn it off with `server.grpc = \"\"`"));
}

}  // namespace hps::server
