// Turns the bytes of one HTTP connection into requests, one after another: a head, then its body.
//
// In this order: BeginRequest, then again and again Room (where the next bytes of the socket go),
// Received and Parse, until Parse returns kComplete or refuses the request.
//
// Parse stops after the head (kHead), so that the caller can refuse the request before its body is
// read; BeginBody continues. Bytes behind the request stay for the next one.
//
// Memory: one input buffer, which holds the head and a small body, and a second buffer for a large
// or chunked body; both from the server's pool. Without input, it holds none.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/http/http_error.h"
#include "server/http/request_head.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

class HttpRequestReader {
 public:
  enum class Step : uint8_t {
    kNeedsMore,
    kAgain,     // an empty line was skipped
    kHead,      // head() is complete: check it, then call BeginBody
    kComplete,  // Body() is complete
    kRefused,   // `error` says why
    kNoRoom,    // `no_room` says why: a buffer of the pool is missing
  };
  struct Parsed {
    Step step = Step::kNeedsMore;
    HttpError error{};
    absl::Status no_room{};
  };

  explicit HttpRequestReader(BufferPool& pool) : pool_(pool) {}

  // Starts the next request with the bytes that came behind the last one.
  void BeginRequest();

  // Where the next bytes go; at least one. Errors: those of BufferPool::Acquire.
  absl::StatusOr<std::span<std::byte>> Room();
  void Received(size_t bytes);

  // REQUIRES: has_input().
  Parsed Parse();

  // Valid from kHead on. Its views point into the input buffer: until ReleaseInput.
  const RequestHead& head() const { return head_; }

  // After kHead. The body, unpacked or not, may have `body_bytes_max` bytes.
  // Errors: those of BufferPool::Acquire.
  absl::Status BeginBody(uint64_t body_bytes_max);

  bool is_in_head() const { return phase_ == Phase::kHead; }
  bool has_input() const { return input_size_ > 0; }
  // After kHead: how much of the body has arrived with the head, and whether that is all of it.
  size_t early_body_bytes() const { return input_size_ - head_bytes_; }
  bool has_whole_body() const {
    return !head_.chunked && head_.content_length <= early_body_bytes();
  }
  // Whether the body fits into the input buffer.
  bool body_fits() const {
    return !head_.chunked && head_.content_length <= input_.bytes().size() - head_bytes_;
  }
  // Whether bytes have arrived that do not belong to the request.
  bool has_more() const { return input_size_ != body_end_; }

  // After kComplete.
  std::span<char> Body() const;
  // Of both buffers.
  size_t lent_bytes() const { return input_.bytes().size() + body_.bytes().size(); }

  void ReleaseBody() { body_.Release(); }
  // Drops the input, also what came behind the request.
  void ReleaseInput();

 private:
  enum class Phase : uint8_t {
    kHead,
    kInputBody,  // the body lies behind the head, in the input buffer
    kOwnBody,    // the body has a buffer of its own
    kChunks,     // as kOwnBody; its size is not known before its end
  };

  Parsed ParseHead();
  Parsed ParseChunks();
  absl::Status TakeBodyRoom(size_t bytes);

  BufferPool& pool_;
  Phase phase_ = Phase::kHead;
  BufferPool::Lease input_;
  size_t input_size_ = 0;
  size_t head_bytes_ = 0;  // 0: the head is not complete
  size_t body_end_ = 0;    // in input_: the request ends here
  BufferPool::Lease body_;
  size_t body_size_ = 0;
  uint64_t body_bytes_max_ = 0;
  bool skipped_line_ = false;
  HeadEnd head_end_;
  RequestParser parser_;
  RequestHead head_;
};

}  // namespace hps::server
