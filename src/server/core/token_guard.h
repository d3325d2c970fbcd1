// The bearer token that requests must carry: from a file, or from HPS_TOKEN in the environment.
//
// Only its hash is kept, and hashes are compared in constant time, so neither the time that a
// refusal takes nor a memory dump tells more than that a token was wrong.
//
// Thread-safe: immutable; a reload makes a new one.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hps::server {

class TokenGuard {
 public:
  // Reads the first line of `token_file`, which `setting` of [server.security] names, or HPS_TOKEN
  // when it is empty. Neither: every request is let in. Never waits. Errors: NOT_FOUND (the file),
  // INVALID_ARGUMENT (no regular file, or a token that is empty, too long, or with blanks).
  static absl::StatusOr<std::unique_ptr<const TokenGuard>> Create(
      const std::string& token_file, const char* setting = "token_file");

  bool has_token() const { return has_token_; }

  // `authorization`: the value of the field (HTTP) or metadatum (gRPC), "Bearer TOKEN".
  bool Admits(std::string_view authorization) const;

 private:
  using Hash = std::array<unsigned char, 32>;

  static Hash HashOf(std::string_view token);

  bool has_token_ = false;
  Hash hash_{};
};

}  // namespace hps::server
