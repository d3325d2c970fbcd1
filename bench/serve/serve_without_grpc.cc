// Stands in for serve_grpc.cc in a build without gRPC.
#include "bench/serve/serve_client.h"
#include "bench/serve/serve_open_client.h"

namespace hps::bench {

ServeProtocol GrpcProtocol() { return {.name = "grpc", .encode = {}, .connect = {}}; }

absl::StatusOr<uint16_t> StartGrpcEcho(size_t /*message_bytes*/, size_t /*threads*/) {
  return absl::UnimplementedError("bench serve: a build without gRPC");
}

absl::StatusOr<std::unique_ptr<OpenClient>> OpenGrpcClient(const LoadTarget& /*target*/,
                                                           size_t /*in_flight_max*/) {
  return absl::UnimplementedError("bench serve: a build without gRPC");
}

}  // namespace hps::bench
