// The HTTP half of serve_client.h: a blocking client over one socket that is kept open.
//
// For one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serve/serve_client.h"
#include "bench/serve/serve_socket.h"

namespace hps::bench {

class HttpServeClient final : public ServeClient {
 public:
  // Errors: of ServeSocket.
  static absl::StatusOr<std::unique_ptr<HttpServeClient>> Connect(const std::string& address);

  absl::StatusOr<Answer> Ask(const std::string& request) override;
  bool EndsWith(std::span<const std::byte> rows) override;
  size_t answer_bytes() const override { return body_bytes_; }

  // Of the last answer; valid until the next Ask.
  std::span<const char> body() const {
    return std::span(buffer_).subspan(head_bytes_, body_bytes_);
  }

 private:
  explicit HttpServeClient(ServeSocket socket)
      : socket_(std::move(socket)), buffer_(size_t{1} << 18) {}
  absl::StatusOr<int> Exchange(const std::string& request);

  ServeSocket socket_;
  std::vector<char> buffer_;
  size_t head_bytes_ = 0;
  size_t body_bytes_ = 0;
};

}  // namespace hps::bench
