// The metadata of one gRPC call: the HTTP/2 header fields that the server uses, parsed as they
// arrive.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "server/net/compression.h"

namespace hps::server {

// Limit for all fields of a call together. As in HTTP/2, each field counts 32 bytes more than its
// name and value.
inline constexpr size_t kCallFieldBytesMax = 16 << 10;

class CallMetadata {
 public:
  enum class Token : uint8_t { kAbsent, kAccepted, kRejected };
  enum class Timeout : uint8_t { kAbsent, kValid, kInvalid };

  // Adds a field. A field beyond kCallFieldBytesMax is counted and otherwise ignored. `admits`
  // tells whether a value of `authorization` is valid.
  void Add(std::string_view name, std::string_view value,
           absl::FunctionRef<bool(std::string_view)> admits);
  // Counts a field without reading it: a trailer.
  void Count(std::string_view name, std::string_view value);

  bool is_too_large() const { return bytes_ > kCallFieldBytesMax; }
  size_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  bool is_post() const { return is_post_; }
  bool is_grpc() const { return is_grpc_; }  // by its content type
  // kRejected also if the call has more than one token.
  Token token() const { return token_; }
  Timeout timeout_state() const { return timeout_state_; }
  Duration timeout() const { return timeout_; }  // REQUIRES: timeout_state() == kValid
  Coding coding() const { return coding_; }

  void Clear();

 private:
  size_t bytes_ = 0;
  std::string path_;
  bool is_post_ = false;
  bool is_grpc_ = false;
  Token token_ = Token::kAbsent;
  Timeout timeout_state_ = Timeout::kAbsent;
  Duration timeout_{};
  Coding coding_ = Coding::kIdentity;
};

}  // namespace hps::server
