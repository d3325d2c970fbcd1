// The unsent part of one gRPC call's response: views of a message's bytes, and the status that
// follows.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/grpc/message_reader.h"
#include "server/grpc/output_queue.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

class ResponseWriter {
 public:
  // What follows the unsent bytes.
  enum class After : uint8_t { kMore, kStatus };

  // The memory of an answer with rows. It is held until Release.
  void HoldRows(BufferPool::Lease rows) { rows_ = std::move(rows); }
  std::span<std::byte> rows() const { return rows_.bytes(); }

  // Sets the message to send: pieces, which must live until Release, or a text.
  void SetMessage(std::span<const std::span<std::byte>> pieces, After after);
  void SetText(std::string text, After after);
  // Drops unsent bytes; the status is next. `message` is encoded for grpc-message.
  void SetStatus(absl::StatusCode code, std::string_view message);

  // The last text that was set.
  const std::string& text() const { return text_; }
  size_t unsent_bytes() const { return unsent_bytes_; }
  bool ends() const { return after_ == After::kStatus; }
  absl::StatusCode end_code() const { return end_code_; }
  const std::string& end_message() const { return end_message_; }  // encoded

  // Moves views of the next `bytes` to `out`. REQUIRES: bytes <= unsent_bytes().
  void TakeUnsent(size_t bytes, OutputQueue* out);

  // Releases the message's memory.
  void Release();
  // Prepares for another call.
  void Clear();

 private:
  void BeginMessage();
  void EndMessage(After after);

  BufferPool::Lease rows_;
  std::string text_;
  std::array<std::byte, kMessagePrefixBytes> prefix_{};
  std::vector<std::span<const std::byte>> pieces_;
  size_t first_piece_ = 0;
  size_t unsent_bytes_ = 0;
  After after_ = After::kMore;
  absl::StatusCode end_code_ = absl::StatusCode::kOk;
  std::string end_message_;
};

}  // namespace hps::server
