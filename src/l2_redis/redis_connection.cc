#include "l2_redis/redis_connection.h"

#include <poll.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "l2_redis/command_writer.h"

namespace hps {
namespace {

constexpr size_t kPasswordBytesMax = size_t{64} << 10;
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr std::string_view kRunId = "\r\nrun_id:";

absl::StatusOr<std::string> ReadPassword(const std::string& path) {
  absl::StatusOr<std::string> password = ReadSecretLine(path, path, kPasswordBytesMax);
  if (password.ok() && password->size() > kPasswordBytesMax)
    return absl::UnavailableError(absl::StrCat("the password in ", path, " is too long"));
  if (password.ok() && !password->empty()) return password;
  return absl::UnavailableError(absl::StrCat("no password can be read from ", path));
}

std::string RunIdOf(std::string_view info) {
  const size_t at = info.find(kRunId);
  if (at == std::string_view::npos) return "";
  info.remove_prefix(at + kRunId.size());
  return std::string(info.substr(0, info.find('\r')));
}

}  // namespace

absl::StatusOr<TlsConnection> NewRedisTls(const RedisCredentials& credentials,
                                          const std::string& host) {
  if (!credentials.tls.has_value()) return nullptr;
  const std::string& name = credentials.tls_server_name;
  absl::StatusOr<TlsConnection> made = NewTlsClient(*credentials.tls, name.empty() ? host : name);
  if (made.ok() || absl::IsResourceExhausted(made.status())) return made;
  return absl::FailedPreconditionError(made.status().message());
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Begin(
    const RedisAddress& address, const RedisCredentials& credentials) {
  std::string handshake;
  size_t replies = 1;
  if (!credentials.password_file.empty()) {
    HPS_ASSIGN_OR_RETURN(const std::string password, ReadPassword(credentials.password_file));
    ++replies;
    if (credentials.user.empty()) {
      AppendCommand({"AUTH", password}, handshake);
    } else {
      AppendCommand({"AUTH", credentials.user, password}, handshake);
    }
  }
  if (credentials.reads_replicas) {
    ++replies;
    AppendCommand({"READONLY"}, handshake);
  }
  AppendCommand({"INFO", "server"}, handshake);
  HPS_ASSIGN_OR_RETURN(TlsConnection tls, NewRedisTls(credentials, address.host));
  const bool is_unix = !address.unix_path.empty();
  HPS_ASSIGN_OR_RETURN(auto socket, ClientSocket::Connect(
                                        is_unix ? address.unix_path : address.host,
                                        is_unix ? "" : absl::StrCat(address.port), std::move(tls)));
  return std::unique_ptr<RedisConnection>(
      new RedisConnection(std::move(socket), std::move(handshake), replies));
}

RedisConnection::RedisConnection(std::unique_ptr<ClientSocket> socket, std::string handshake,
                                 size_t handshake_replies)
    : socket_(std::move(socket)),
      out_(std::move(handshake)),
      handshake_replies_(handshake_replies) {}

short RedisConnection::events() const {
  return socket_->events(static_cast<short>(out_sent_ < out_.size() ? POLLIN | POLLOUT : POLLIN));
}

absl::Status RedisConnection::Advance(ReplySink& sink) {
  if (!socket_->connected()) {
    std::array<pollfd, 1> writable = {pollfd{.fd = descriptor(), .events = POLLOUT}};
    if (poll(writable.data(), 1, 0) <= 0) return absl::OkStatus();
    HPS_RETURN_IF_ERROR(socket_->FinishConnect());
    if (!socket_->connected()) return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(Flush());
  return Receive(sink);
}

absl::Status RedisConnection::Flush() {
  while (out_sent_ < out_.size()) {
    HPS_ASSIGN_OR_RETURN(const size_t count,
                         socket_->Write(std::string_view(out_).substr(out_sent_)));
    if (count == 0) return absl::OkStatus();
    out_sent_ += count;
  }
  out_.clear();
  out_sent_ = 0;
  return absl::OkStatus();
}

absl::Status RedisConnection::Receive(ReplySink& sink) {
  std::array<char, kReadBytes> bytes;
  for (;;) {
    const absl::StatusOr<size_t> count = socket_->Read(bytes.data(), bytes.size());
    // The end of the connection may overtake an alert of TLS, so both are the same error.
    if (!count.ok()) return absl::UnavailableError(count.status().message());
    if (*count == 0) return absl::OkStatus();
    const std::string_view arrived(bytes.data(), *count);
    if (ready_) {
      HPS_RETURN_IF_ERROR(reader_.Feed(arrived, sink));
    } else {
      HPS_RETURN_IF_ERROR(reader_.Feed(arrived, handshake_));
      HPS_RETURN_IF_ERROR(FinishHandshake());
    }
    if (socket_->is_drained(*count, bytes.size())) return absl::OkStatus();
  }
}

absl::Status RedisConnection::FinishHandshake() {
  const std::vector<Reply>& replies = handshake_.replies();
  for (const Reply& reply : replies) {
    if (!reply.is_error()) continue;
    const std::string why =
        absl::StrCat("the server refuses the connection: ", PrintableText(reply.text));
    for (const std::string_view denied : {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"}) {
      if (std::string_view(reply.text).starts_with(denied)) return absl::PermissionDeniedError(why);
    }
    return absl::UnavailableError(why);
  }
  if (replies.size() > handshake_replies_)
    return absl::DataLossError("a reply that was not asked for");
  if (replies.size() < handshake_replies_) return absl::OkStatus();
  run_id_ = RunIdOf(replies.back().text);
  if (run_id_.empty()) return absl::DataLossError("INFO names no run_id");
  ready_ = true;
  handshake_.replies().clear();
  return absl::OkStatus();
}

}  // namespace hps
