// The TLS side of one exchange of a client, without a socket: it takes what the server sent and
// gives what is to be sent to it.
//
// The server must show a certificate for its host that a trusted authority has signed. For one
// thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct bio_st;
struct ssl_st;

namespace hps::cli {

struct TlsTrust {
  std::string ca_file;           // PEM; empty = those of the system
  std::string certificate_file;  // PEM; the client's own, for servers that ask for one; or empty
  std::string key_file;          // PEM
};

class TlsClient {
 public:
  // `request` is sent when the server is trusted. Errors: INVALID_ARGUMENT for files that are not
  // what they should be.
  static absl::StatusOr<std::unique_ptr<TlsClient>> Create(const std::string& host,
                                                           const TlsTrust& trust,
                                                           std::string request);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // What is to be sent now; the first time, how TLS begins.
  std::string TakeOutput();

  // Takes what was received. Errors: UNAUTHENTICATED (the server is not trusted, or does not trust
  // this client), INVALID_ARGUMENT (these bytes are no TLS).
  absl::Status Feed(std::string_view received);

  const std::string& answer() const { return answer_; }  // as much as has come
  bool has_ended() const { return has_ended_; }          // the server said that this is all

 private:
  explicit TlsClient(std::string request) : request_(std::move(request)) {}

  absl::Status Advance();
  absl::Status Wrong(int result) const;

  std::string request_;
  std::string answer_;
  ssl_st* connection_ = nullptr;
  bio_st* received_ = nullptr;  // both are the connection's
  bio_st* to_send_ = nullptr;
  bool is_trusted_ = false;
  bool has_ended_ = false;
};

}  // namespace hps::cli
