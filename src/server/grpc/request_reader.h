// The request messages of one gRPC call: collects them, checks their number and inflates them.
//
// Memory comes from the buffer pool. A message stays valid until ReleaseMessage.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/grpc/message_reader.h"
#include "server/net/buffer_pool.h"
#include "server/net/compression.h"

namespace hps::server {

class RequestReader {
 public:
  enum class Step : uint8_t { kNeedsMore, kMessage, kEnd };

  explicit RequestReader(BufferPool& pool) : pool_(pool) {}

  // Adds received bytes. Errors: BufferPool::Acquire's.
  absl::Status Add(std::span<const std::byte> bytes) { return reader_.Add(bytes, pool_); }
  // The client sends no more.
  void SetEnded() { is_ended_ = true; }
  bool is_ended() const { return is_ended_; }
  // Whether bytes beyond the current message have arrived.
  bool has_more() const { return reader_.has_more(); }

  // Looks for the next message. A call without `is_stream` has exactly one; it is returned when the
  // client has sent everything. Errors: UNIMPLEMENTED (a wrong number of messages),
  // INVALID_ARGUMENT (an incomplete one), MessageReader::Front's.
  absl::StatusOr<Step> Next(uint64_t bytes_max, bool is_stream);

  // The bytes of the current message, or the first bytes if it is compressed: enough for the
  // model's name and the parameters. Errors: those of Unpack, but OUT_OF_RANGE.
  absl::StatusOr<std::span<const std::byte>> Head(Coding coding);
  // Inflates the current message if it is compressed, and sets message().
  // Errors: Inflate's; INVALID_ARGUMENT (compressed with kIdentity), UNIMPLEMENTED (kUnknown).
  absl::Status Unpack(Coding coding, uint64_t bytes_max);
  std::span<const std::byte> message() const { return message_; }

  // Pool memory in use, in bytes.
  uint64_t held_bytes() const { return reader_.lent_bytes() + inflated_.memory.bytes().size(); }

  // Releases the current message. Messages behind it stay.
  void ReleaseMessage();
  // Releases the messages; the end of the request stays noted.
  void Release();
  // Prepares for another call.
  void Clear();

 private:
  BufferPool& pool_;
  MessageReader reader_;
  bool is_ended_ = false;
  MessageReader::Message packed_;
  std::span<const std::byte> message_;
  CodedBytes inflated_;
};

}  // namespace hps::server
