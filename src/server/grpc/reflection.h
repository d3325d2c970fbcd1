// gRPC's server reflection: tells clients such as grpcurl which services the server has, and their
// descriptors.
//
// Thread-safe: no state.
#pragma once

#include "server/grpc/proto/grpc/reflection/v1/reflection.pb.h"

namespace hps::server {

// The answer to one request of a reflection stream. An error, such as an unknown symbol, is part of
// the answer, and the stream goes on.
grpc::reflection::v1::ServerReflectionResponse Reflect(
    const grpc::reflection::v1::ServerReflectionRequest& request);

}  // namespace hps::server
