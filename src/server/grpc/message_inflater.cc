#include "server/grpc/message_inflater.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace hps::server {
namespace {

constexpr int kWindowBits = 15;
constexpr int kGzip = 16;  // added to the window bits: gzip's format instead of zlib's
constexpr size_t kFirstBytes = size_t{64} << 10;

// The one way to a message's compression that gRPC's C++ interface leaves open.
class CompressionReader final : public grpc::ProtoBufferReader {
 public:
  explicit CompressionReader(grpc::ByteBuffer* message) : ProtoBufferReader(message) {}

  grpc_compression_algorithm algorithm() {
    return status().ok() ? reader()->buffer_in->data.raw.compression : GRPC_COMPRESS_NONE;
  }
};

struct EndInflate {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};

// zlib's pointers are to unsigned char, and it does not write through next_in.
Bytef* ZlibBytes(const void* bytes) { return static_cast<Bytef*>(const_cast<void*>(bytes)); }

// Makes `room` larger, up to one byte more than the message may have: it tells that it has more.
absl::Status Grow(size_t bytes_max, std::string* room) {
  if (room->size() > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the message inflates to more than ", bytes_max, " bytes"));
  }
  room->resize(std::min(std::max(room->size() * 2, kFirstBytes), bytes_max + 1));
  return absl::OkStatus();
}

struct Progress {
  z_stream stream{};
  int result = Z_OK;  // zlib's last one
  size_t size = 0;    // of the message so far
};

absl::Status InflatePiece(const grpc::Slice& piece, size_t bytes_max, Progress* progress,
                          std::string* message) {
  z_stream& stream = progress->stream;
  stream.next_in = ZlibBytes(piece.begin());
  stream.avail_in = static_cast<uInt>(piece.size());
  do {
    if (progress->size == message->size()) HPS_RETURN_IF_ERROR(Grow(bytes_max, message));
    const size_t room = message->size() - progress->size;
    stream.next_out = ZlibBytes(message->data() + progress->size);
    stream.avail_out = static_cast<uInt>(room);
    progress->result = inflate(&stream, Z_NO_FLUSH);
    progress->size += room - stream.avail_out;
    if (progress->result == Z_STREAM_END) break;
    if (progress->result != Z_OK && progress->result != Z_BUF_ERROR)
      return absl::InvalidArgumentError("the message does not inflate");
  } while (stream.avail_in != 0 || stream.avail_out == 0);
  return absl::OkStatus();
}

}  // namespace

grpc_compression_algorithm CompressionOf(grpc::ByteBuffer& message) {
  return message.Valid() ? CompressionReader(&message).algorithm() : GRPC_COMPRESS_NONE;
}

absl::Status InflateMessage(grpc_compression_algorithm algorithm,
                            const std::vector<grpc::Slice>& packed, size_t bytes_max,
                            std::string* message) {
  const bool is_gzip = algorithm == GRPC_COMPRESS_GZIP;
  if (!is_gzip && algorithm != GRPC_COMPRESS_DEFLATE)
    return absl::UnimplementedError("messages are compressed by gzip or deflate");
  message->clear();
  Progress progress;
  if (inflateInit2(&progress.stream, kWindowBits + (is_gzip ? kGzip : 0)) != Z_OK)
    return absl::ResourceExhaustedError("no memory to inflate a message; try again later");
  const std::unique_ptr<z_stream, EndInflate> end(&progress.stream);
  for (const grpc::Slice& piece : packed) {
    if (piece.size() == 0) continue;
    if (progress.result == Z_STREAM_END)
      return absl::InvalidArgumentError("the message does not inflate");
    HPS_RETURN_IF_ERROR(InflatePiece(piece, bytes_max, &progress, message));
  }
  if (progress.result != Z_STREAM_END || progress.stream.avail_in != 0)
    return absl::InvalidArgumentError("the message does not inflate");
  if (progress.size > bytes_max) return Grow(bytes_max, message);
  message->resize(progress.size);
  return absl::OkStatus();
}

}  // namespace hps::server
