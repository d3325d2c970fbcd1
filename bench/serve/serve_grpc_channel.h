// What both clients of gRPC share: a channel, the method, and looking at an answer's bytes.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace hps::bench {

inline constexpr char kGrpcInferMethod[] = "/inference.GRPCInferenceService/ModelInfer";

// A connection of its own. Errors: UNAVAILABLE, after ten seconds.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectGrpc(const std::string& address);

bool EndsWith(const grpc::ByteBuffer& answer, std::span<const std::byte> rows);

}  // namespace hps::bench
