// gzip and deflate (the zlib format, as HTTP means it) of whole bodies, bounded on the way in.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/request_head.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

struct PackedBody {
  BufferPool::Lease memory;
  size_t size = 0;
};

// Unpacks a body that must not unpack to more than `bytes_max`: a bomb costs no more than that. A
// gzip body may have several members, which are one body.
// REQUIRES: gzip or deflate. Errors: INVALID_ARGUMENT (not of this format, cut off, or followed by
// something else), OUT_OF_RANGE (larger), RESOURCE_EXHAUSTED (no buffer now).
absl::StatusOr<PackedBody> Inflate(Coding coding, std::span<const std::byte> packed,
                                   uint64_t bytes_max, BufferPool& pool);

// Packs the pieces as one body. REQUIRES: gzip or deflate. Errors: OUT_OF_RANGE (it is larger than
// `bytes_max`), RESOURCE_EXHAUSTED.
absl::StatusOr<PackedBody> Deflate(Coding coding,
                                   std::span<const std::span<const std::byte>> pieces,
                                   size_t bytes_max, BufferPool& pool);

}  // namespace hps::server
