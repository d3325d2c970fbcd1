// gzip and deflate (the zlib format, as HTTP and gRPC mean it) of whole bodies and messages.
// Unpacking has a limit, because compressed bytes can unpack to a thousand times their size.
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

// The result of packing or unpacking: the first `size` bytes of `memory`.
struct CodedBytes {
  BufferPool::Lease memory;
  size_t size = 0;

  std::span<std::byte> bytes() const { return memory.bytes().first(size); }
};

// How many members a gzip body may have, which are one body together (RFC 1952 2.2).
enum class GzipMembers : uint8_t { kOne, kMany };

// Unpacks to at most `bytes_max` bytes. A decompression bomb takes no more memory than that.
// REQUIRES: gzip or deflate. Errors: INVALID_ARGUMENT (not of this format, cut off, or followed by
// something else), OUT_OF_RANGE (larger), RESOURCE_EXHAUSTED (no buffer now).
absl::StatusOr<CodedBytes> Inflate(Coding coding, std::span<const std::byte> packed,
                                   uint64_t bytes_max, GzipMembers members, BufferPool& pool);

// Unpacks the first bytes only, at most `bytes_max`; does not look at the rest.
// REQUIRES: gzip or deflate. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
absl::StatusOr<CodedBytes> InflateHead(Coding coding, std::span<const std::byte> packed,
                                       size_t bytes_max, BufferPool& pool);

// Packs the pieces as one body. REQUIRES: gzip or deflate. Errors: OUT_OF_RANGE (it is larger than
// `bytes_max`), RESOURCE_EXHAUSTED.
absl::StatusOr<CodedBytes> Deflate(Coding coding,
                                   std::span<const std::span<const std::byte>> pieces,
                                   size_t bytes_max, BufferPool& pool);

}  // namespace hps::server
