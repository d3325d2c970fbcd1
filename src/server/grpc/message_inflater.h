// Inflates a compressed message of a gRPC call, up to a bound. gRPC's own filter has none: it
// checks the length of what came, and a thousandth of the limit inflates to all of it.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpc/compression.h"
#include "grpcpp/grpcpp.h"

namespace hps::server {

// How the message was packed by its client; GRPC_COMPRESS_NONE for one that is plain.
grpc_compression_algorithm CompressionOf(grpc::ByteBuffer& message);

// Errors: RESOURCE_EXHAUSTED (inflates to more than `bytes_max`, as gRPC says of plain messages; no
// memory), INVALID_ARGUMENT (does not inflate), UNIMPLEMENTED (neither gzip nor deflate).
absl::Status InflateMessage(grpc_compression_algorithm algorithm,
                            const std::vector<grpc::Slice>& packed, size_t bytes_max,
                            std::string* message);

}  // namespace hps::server
