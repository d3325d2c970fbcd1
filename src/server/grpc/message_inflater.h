// Inflates a compressed message of a gRPC call. The inflated size is bounded, because a message can
// inflate to a thousand times its size.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

// How a call's messages are compressed (grpc-encoding).
enum class MessageCoding : uint8_t { kIdentity, kGzip, kDeflate, kUnknown };

struct InflatedMessage {
  BufferPool::Lease memory;
  size_t size = 0;
};

// Errors: OUT_OF_RANGE (inflates to more than `bytes_max`), RESOURCE_EXHAUSTED (no memory now),
// INVALID_ARGUMENT (does not inflate, or kIdentity), UNIMPLEMENTED (kUnknown).
absl::StatusOr<InflatedMessage> InflateMessage(MessageCoding coding,
                                               std::span<const std::byte> packed, size_t bytes_max,
                                               BufferPool& pool);

// Inflates the first bytes of a message, at most `bytes_max`, and ignores the rest. Errors: those
// of InflateMessage.
absl::StatusOr<InflatedMessage> InflateHead(MessageCoding coding, std::span<const std::byte> packed,
                                            size_t bytes_max, BufferPool& pool);

}  // namespace hps::server
