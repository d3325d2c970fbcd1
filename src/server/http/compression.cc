#include "server/http/compression.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::server {
namespace {

constexpr int kWindowBits = 15;
constexpr int kGzip = 16;  // added to the window bits: gzip's format instead of zlib's
constexpr size_t kFirstBytes = 64 << 10;
constexpr size_t kStepBytesMax = size_t{1} << 30;  // zlib counts in 32 bits

int WindowBits(Coding coding) { return kWindowBits + (coding == Coding::kGzip ? kGzip : 0); }

// zlib reads and writes through pointers to unsigned char, and does not write through next_in.
Bytef* ZlibBytes(const std::byte* bytes) {
  return static_cast<Bytef*>(const_cast<void*>(static_cast<const void*>(bytes)));
}

struct EndInflate {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};
struct EndDeflate {
  void operator()(z_stream* stream) const { deflateEnd(stream); }
};

absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError("no memory to pack or unpack a body; try later");
}

// Doubles the room, up to one byte more than the body may have: that byte tells that it has more.
absl::Status Grow(PackedBody* body, uint64_t bytes_max, BufferPool& pool) {
  if (body->size > bytes_max) {
    return absl::OutOfRangeError(
        absl::StrCat("the body unpacks to more than ", bytes_max, " bytes"));
  }
  const size_t room = std::min<uint64_t>(body->memory.bytes().size() * 2, bytes_max + 1);
  HPS_ASSIGN_OR_RETURN(BufferPool::Lease larger, pool.Acquire(room, BufferPool::Use::kRequest));
  std::memcpy(larger.bytes().data(), body->memory.bytes().data(), body->size);
  body->memory = std::move(larger);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PackedBody> Inflate(Coding coding, std::span<const std::byte> packed,
                                   uint64_t bytes_max, BufferPool& pool) {
  z_stream stream{};
  if (inflateInit2(&stream, WindowBits(coding)) != Z_OK) return OutOfMemory();
  const std::unique_ptr<z_stream, EndInflate> end(&stream);
  PackedBody body;
  HPS_ASSIGN_OR_RETURN(body.memory, pool.Acquire(std::min<uint64_t>(bytes_max + 1, kFirstBytes),
                                                 BufferPool::Use::kRequest));
  stream.next_in = ZlibBytes(packed.data());
  const Bytef* const packed_end = ZlibBytes(packed.data() + packed.size());
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    const uint64_t room = std::min<uint64_t>(body.memory.bytes().size(), bytes_max + 1);
    if (body.size >= room) {
      HPS_RETURN_IF_ERROR(Grow(&body, bytes_max, pool));
      continue;
    }
    const size_t used = static_cast<size_t>(stream.next_in - ZlibBytes(packed.data()));
    stream.avail_in = static_cast<uInt>(std::min(packed.size() - used, kStepBytesMax));
    const size_t step = std::min<uint64_t>(room - body.size, kStepBytesMax);
    stream.next_out = ZlibBytes(body.memory.bytes().data() + body.size);
    stream.avail_out = static_cast<uInt>(step);
    const uInt in_before = stream.avail_in;
    result = inflate(&stream, Z_NO_FLUSH);
    const size_t made = step - stream.avail_out;
    body.size += made;
    const bool stuck = made == 0 && stream.avail_in == in_before;
    if ((result != Z_OK && result != Z_STREAM_END) || (stuck && result != Z_STREAM_END)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the body does not unpack: ", stream.msg != nullptr ? stream.msg : "it ends too early"));
    }
    // A gzip body is a series of members (RFC 1952 2.2).
    if (result == Z_STREAM_END && coding == Coding::kGzip && stream.next_in != packed_end) {
      inflateReset(&stream);
      result = Z_OK;
    }
  }
  if (body.size > bytes_max) HPS_RETURN_IF_ERROR(Grow(&body, bytes_max, pool));
  if (stream.next_in != packed_end) {
    return absl::InvalidArgumentError("the body does not unpack: something follows its end");
  }
  return body;
}

absl::StatusOr<PackedBody> Deflate(Coding coding,
                                   std::span<const std::span<const std::byte>> pieces,
                                   size_t bytes_max, BufferPool& pool) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, WindowBits(coding), MAX_MEM_LEVEL,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return OutOfMemory();
  }
  const std::unique_ptr<z_stream, EndDeflate> end(&stream);
  uint64_t total = 0;
  for (const std::span<const std::byte> piece : pieces) total += piece.size();
  if (total > kStepBytesMax) return OutOfMemory();
  PackedBody body;
  // Of what is at most a gibibyte, so that it fits zlib's count, too.
  const size_t room = std::min<size_t>(bytes_max, deflateBound(&stream, total));
  HPS_ASSIGN_OR_RETURN(body.memory, pool.Acquire(room, BufferPool::Use::kAnswer));
  stream.next_out = ZlibBytes(body.memory.bytes().data());
  stream.avail_out = static_cast<uInt>(room);
  for (size_t i = 0; i < pieces.size(); ++i) {
    stream.next_in = ZlibBytes(pieces[i].data());
    stream.avail_in = static_cast<uInt>(pieces[i].size());
    const bool is_last = i + 1 == pieces.size();
    const int result = deflate(&stream, is_last ? Z_FINISH : Z_NO_FLUSH);
    HPS_CHECK(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR);
    if (is_last ? result != Z_STREAM_END : stream.avail_in > 0)
      return absl::OutOfRangeError(absl::StrCat("the body packs to more than ", room, " bytes"));
  }
  body.size = stream.total_out;
  return body;
}

}  // namespace hps::server
