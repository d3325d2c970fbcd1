// gzip and deflate (the zlib format, as HTTP and gRPC mean it) of whole bodies and messages,
// bounded on the way in: what is packed can unpack to a thousand times its size.
//
// Thread-safe: no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

// How bytes are compressed (content-encoding, grpc-encoding).
enum class Coding : uint8_t { kIdentity, kGzip, kDeflate, kUnknown };

// What was packed or unpacked: the first `size` bytes of the memory.
struct CodedBytes {
  BufferPool::Lease memory;
  size_t size = 0;

  std::span<std::byte> bytes() const { return memory.bytes().first(size); }
};

// How many members a gzip body may have, which are one body together (RFC 1952 2.2).
enum class GzipMembers : uint8_t { kOne, kMany };

// Unpacks what must not unpack to more than `bytes_max`: a bomb costs no more than that.
// REQUIRES: gzip or deflate. Errors: INVALID_ARGUMENT (not of this format, cut off, or followed by
// something else), OUT_OF_RANGE (larger), RESOURCE_EXHAUSTED (no buffer now).
absl::StatusOr<CodedBytes> Inflate(Coding coding, std::span<const std::byte> packed,
                                   uint64_t bytes_max, GzipMembers members, BufferPool& pool);

// The first bytes of what it unpacks to, at most `bytes_max`; the rest is not looked at.
// REQUIRES: gzip or deflate. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
absl::StatusOr<CodedBytes> InflateHead(Coding coding, std::span<const std::byte> packed,
                                       size_t bytes_max, BufferPool& pool);

// Packs the pieces as one body. REQUIRES: gzip or deflate. Errors: OUT_OF_RANGE (it is larger than
// `bytes_max`), RESOURCE_EXHAUSTED.
absl::StatusOr<CodedBytes> Deflate(Coding coding,
                                   std::span<const std::span<const std::byte>> pieces,
                                   size_t bytes_max, BufferPool& pool);

}  // namespace hps::server
