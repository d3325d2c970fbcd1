#include "server/grpc/message_inflater.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"

namespace hps::server {
namespace {

constexpr int kWindowBits = 15;
constexpr int kGzip = 16;  // added to the window bits: gzip's format instead of zlib's
constexpr size_t kFirstBytes = size_t{64} << 10;

struct EndInflate {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};

// zlib does not write through next_in.
Bytef* ZlibBytes(const std::byte* bytes) {
  return AsElements<Bytef>(const_cast<std::byte*>(bytes));
}

// Makes room for more. The room has at most one byte more than the limit: that byte shows that the
// message exceeds it.
absl::Status Grow(size_t bytes_max, BufferPool& pool, InflatedMessage* message) {
  if (message->size > bytes_max) {
    return absl::OutOfRangeError(
        absl::StrCat("the message inflates to more than ", bytes_max, " bytes"));
  }
  const size_t wanted = std::min(std::max(message->size * 2, kFirstBytes), bytes_max + 1);
  HPS_ASSIGN_OR_RETURN(BufferPool::Lease larger, pool.Acquire(wanted, BufferPool::Use::kRequest));
  if (message->size > 0)
    std::memcpy(larger.bytes().data(), message->memory.bytes().data(), message->size);
  message->memory = std::move(larger);
  return absl::OkStatus();
}

absl::Status DoesNotInflate() { return absl::InvalidArgumentError("the message does not inflate"); }

// Starts to inflate `packed`. On success, the caller must end the stream.
absl::Status Begin(MessageCoding coding, std::span<const std::byte> packed, z_stream* stream) {
  const bool is_gzip = coding == MessageCoding::kGzip;
  if (coding == MessageCoding::kIdentity) {
    return absl::InvalidArgumentError(
        "the message's compressed flag is set, but the call has no grpc-encoding");
  }
  if (!is_gzip && coding != MessageCoding::kDeflate)
    return absl::UnimplementedError("unsupported grpc-encoding; use gzip or deflate");
  if (inflateInit2(stream, kWindowBits + (is_gzip ? kGzip : 0)) != Z_OK)
    return absl::ResourceExhaustedError("out of memory while inflating a message; try again later");
  stream->next_in = ZlibBytes(packed.data());
  stream->avail_in = static_cast<uInt>(packed.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InflatedMessage> InflateHead(MessageCoding coding, std::span<const std::byte> packed,
                                            size_t bytes_max, BufferPool& pool) {
  z_stream stream{};
  HPS_RETURN_IF_ERROR(Begin(coding, packed, &stream));
  const std::unique_ptr<z_stream, EndInflate> end(&stream);
  InflatedMessage message;
  HPS_ASSIGN_OR_RETURN(message.memory, pool.Acquire(bytes_max, BufferPool::Use::kRequest));
  stream.next_out = ZlibBytes(message.memory.bytes().data());
  stream.avail_out = static_cast<uInt>(bytes_max);
  const int result = inflate(&stream, Z_SYNC_FLUSH);
  if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return DoesNotInflate();
  message.size = bytes_max - stream.avail_out;
  return message;
}

absl::StatusOr<InflatedMessage> InflateMessage(MessageCoding coding,
                                               std::span<const std::byte> packed, size_t bytes_max,
                                               BufferPool& pool) {
  z_stream stream{};
  HPS_RETURN_IF_ERROR(Begin(coding, packed, &stream));
  const std::unique_ptr<z_stream, EndInflate> end(&stream);
  InflatedMessage message;
  int result = Z_OK;
  do {
    if (message.size == message.memory.bytes().size())
      HPS_RETURN_IF_ERROR(Grow(bytes_max, pool, &message));
    const size_t room = std::min<size_t>(message.memory.bytes().size() - message.size, 1U << 30);
    stream.next_out = ZlibBytes(message.memory.bytes().data() + message.size);
    stream.avail_out = static_cast<uInt>(room);
    result = inflate(&stream, Z_NO_FLUSH);
    message.size += room - stream.avail_out;
  } while (result == Z_OK);
  if (result != Z_STREAM_END || stream.avail_in != 0) return DoesNotInflate();
  if (message.size > bytes_max) return Grow(bytes_max, pool, &message);
  return message;
}

}  // namespace hps::server
