// Inflates a compressed message of a gRPC call, up to a bound: a thousandth of it inflates to all
// of it.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

// How a call's messages are packed (grpc-encoding).
enum class MessageCoding : uint8_t { kIdentity, kGzip, kDeflate, kUnknown };

struct InflatedMessage {
  BufferPool::Lease memory;
  size_t size = 0;
};

// Errors: OUT_OF_RANGE (inflates to more than `bytes_max`), RESOURCE_EXHAUSTED (no memory now),
// INVALID_ARGUMENT (does not inflate), UNIMPLEMENTED (neither gzip nor deflate).
absl::StatusOr<InflatedMessage> InflateMessage(MessageCoding coding,
                                               std::span<const std::byte> packed, size_t bytes_max,
                                               BufferPool& pool);

// The first bytes of it, at most `bytes_max`, whatever follows. Errors: as InflateMessage.
absl::StatusOr<InflatedMessage> InflateHead(MessageCoding coding, std::span<const std::byte> packed,
                                            size_t bytes_max, BufferPool& pool);

}  // namespace hps::server
