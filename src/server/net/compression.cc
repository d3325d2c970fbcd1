#include "server/net/compression.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"

namespace hps::server {
namespace {

constexpr int kWindowBits = 15;
constexpr int kGzip = 16;  // added to the window bits: gzip's format instead of zlib's
constexpr size_t kFirstBytes = 64 << 10;
constexpr size_t kStepBytesMax = size_t{1} << 30;  // zlib counts in 32 bits

int WindowBits(Coding coding) { return kWindowBits + (coding == Coding::kGzip ? kGzip : 0); }

// zlib does not write through next_in.
Bytef* ZlibBytes(const std::byte* bytes) {
  return AsElements<Bytef>(const_cast<std::byte*>(bytes));
}

uInt StepBytes(size_t bytes) { return static_cast<uInt>(std::min(bytes, kStepBytesMax)); }

struct EndInflate {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};
struct EndDeflate {
  void operator()(z_stream* stream) const { deflateEnd(stream); }
};

absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError("no memory to pack or unpack a body; try later");
}

absl::Status DoesNotUnpack(const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("the compressed bytes do not unpack: ",
                                                 why == nullptr ? "they end too early" : why));
}

// Doubles the room, up to one byte more than the limit: that byte tells that there is more.
absl::Status Grow(uint64_t bytes_max, BufferPool& pool, CodedBytes* body) {
  if (body->size > bytes_max) {
    return absl::OutOfRangeError(
        absl::StrCat("the compressed bytes unpack to more than ", bytes_max, " bytes"));
  }
  const size_t room = std::min(std::max<uint64_t>(body->size * 2, kFirstBytes), bytes_max + 1);
  HPS_ASSIGN_OR_RETURN(BufferPool::Lease larger, pool.Acquire(room, BufferPool::Use::kRequest));
  if (body->size > 0) std::memcpy(larger.bytes().data(), body->memory.bytes().data(), body->size);
  body->memory = std::move(larger);
  return absl::OkStatus();
}

// One call of zlib, which makes progress or fails. Takes what it unpacks behind the body's bytes.
int InflateStep(const std::byte* packed_end, z_stream* stream, CodedBytes* body) {
  const std::span<std::byte> room = body->memory.bytes().subspan(body->size);
  stream->avail_in = StepBytes(static_cast<size_t>(ZlibBytes(packed_end) - stream->next_in));
  stream->next_out = ZlibBytes(room.data());
  stream->avail_out = StepBytes(room.size());
  const int result = inflate(stream, Z_NO_FLUSH);
  body->size += static_cast<size_t>(stream->next_out - ZlibBytes(room.data()));
  return result;
}

}  // namespace

absl::StatusOr<CodedBytes> Inflate(Coding coding, std::span<const std::byte> packed,
                                   uint64_t bytes_max, GzipMembers members, BufferPool& pool) {
  z_stream stream{};
  if (inflateInit2(&stream, WindowBits(coding)) != Z_OK) return OutOfMemory();
  const std::unique_ptr<z_stream, EndInflate> end(&stream);
  const std::byte* const packed_end = packed.data() + packed.size();
  const bool has_members = coding == Coding::kGzip && members == GzipMembers::kMany;
  stream.next_in = ZlibBytes(packed.data());
  CodedBytes body;
  int result = Z_OK;
  while (result == Z_OK) {
    if (body.size == body.memory.bytes().size()) HPS_RETURN_IF_ERROR(Grow(bytes_max, pool, &body));
    result = InflateStep(packed_end, &stream, &body);
    if (result == Z_STREAM_END && has_members && stream.next_in != ZlibBytes(packed_end))
      result = inflateReset(&stream);
  }
  if (result != Z_STREAM_END) return DoesNotUnpack(stream.msg);
  if (stream.next_in != ZlibBytes(packed_end)) return DoesNotUnpack("something follows their end");
  if (body.size > bytes_max) return Grow(bytes_max, pool, &body);
  return body;
}

absl::StatusOr<CodedBytes> InflateHead(Coding coding, std::span<const std::byte> packed,
                                       size_t bytes_max, BufferPool& pool) {
  z_stream stream{};
  if (inflateInit2(&stream, WindowBits(coding)) != Z_OK) return OutOfMemory();
  const std::unique_ptr<z_stream, EndInflate> end(&stream);
  stream.next_in = ZlibBytes(packed.data());
  CodedBytes head;
  HPS_ASSIGN_OR_RETURN(head.memory, pool.Acquire(bytes_max, BufferPool::Use::kRequest));
  const int result = InflateStep(packed.data() + packed.size(), &stream, &head);
  if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
    return DoesNotUnpack(stream.msg);
  head.size = std::min(head.size, bytes_max);
  return head;
}

absl::StatusOr<CodedBytes> Deflate(Coding coding,
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
  CodedBytes body;
  // zlib's bound for at most a gibibyte fits its count of 32 bits.
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
