// Redis beside the server: MGET of as many rows of the same table, on the same machine.
#include "bench/serve/serve_redis.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/serve/serve_socket.h"

namespace hps::bench {
namespace {

constexpr size_t kKeysPerFill = 1024;

std::string FindInPath(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string program = absl::StrCat(directory, "/", name);
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

// The server of Redis. Debian's package redis-tools has the same program, which is what the name
// that it is called by says, without the daemon that the package redis-server starts.
std::string FindServer() {
  const std::string server = FindInPath("redis-server");
  return server.empty() ? FindInPath("redis-check-rdb") : server;
}

// A string of Redis' protocol.
void AppendBulk(std::string& to, const void* bytes, size_t size) {
  absl::StrAppend(&to, "$", size, "\r\n");
  const size_t at = to.size();
  to.resize(at + size);
  std::memcpy(to.data() + at, bytes, size);
  to += "\r\n";
}

// A client whose answers have a length that is known: that of the first one, "$" and "*" counted.
class RedisClient final : public ServeClient {
 public:
  RedisClient(ServeSocket socket, size_t answer_bytes)
      : socket_(std::move(socket)), answer_bytes_(answer_bytes) {}

  absl::StatusOr<Answer> Ask(const std::string& request) override {
    HPS_RETURN_IF_ERROR(socket_.Send(request));
    for (size_t received = 0; received < answer_bytes_;) {
      HPS_RETURN_IF_ERROR(socket_.Receive(buffer_, received));
      if (buffer_[0] == '-')
        return absl::InternalError("bench serve: Redis: " + std::string(buffer_.data(), received));
    }
    return Answer::kRows;
  }
  bool EndsWith(std::span<const std::byte> rows) override {
    return rows.size() <= answer_bytes_ &&
           std::memcmp(buffer_.data() + answer_bytes_ - rows.size(), rows.data(), rows.size()) == 0;
  }
  size_t answer_bytes() const override { return answer_bytes_; }

 private:
  ServeSocket socket_;
  const size_t answer_bytes_;
  std::vector<char> buffer_ = std::vector<char>(size_t{1} << 18);
};

std::string EncodeMget(std::span<const Key> keys) {
  std::string request = absl::StrCat("*", keys.size() + 1, "\r\n$4\r\nMGET\r\n");
  for (const Key key : keys) AppendBulk(request, &key, sizeof(key));
  return request;
}

std::vector<std::byte> ExpectedAnswer(const ServeRequest& request) {
  const size_t row_bytes = request.rows.size() / request.keys.size();
  std::string text = absl::StrCat("*", request.keys.size(), "\r\n");
  for (size_t i = 0; i < request.keys.size(); ++i)
    AppendBulk(text, request.rows.data() + i * row_bytes, row_bytes);
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

absl::Status Fill(const std::string& address, const ServeWorld& world) {
  HPS_ASSIGN_OR_RETURN(ServeSocket socket, ServeSocket::Connect(address));
  RedisClient client(std::move(socket), std::strlen("+OK\r\n"));
  const std::span<const Key> keys = world.keys();
  for (size_t first = 0; first < keys.size(); first += kKeysPerFill) {
    const auto part = keys.subspan(first, std::min(kKeysPerFill, keys.size() - first));
    const std::vector<std::byte> rows = world.RowsOf(part);
    const size_t row_bytes = rows.size() / part.size();
    std::string request = absl::StrCat("*", 2 * part.size() + 1, "\r\n$4\r\nMSET\r\n");
    for (size_t i = 0; i < part.size(); ++i) {
      AppendBulk(request, &part[i], sizeof(Key));
      AppendBulk(request, rows.data() + i * row_bytes, row_bytes);
    }
    HPS_RETURN_IF_ERROR(client.Ask(request).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RedisPeer>> RedisPeer::Start(const ServeWorld& world) {
  const std::string program = FindServer();
  if (program.empty()) return absl::NotFoundError("bench serve: there is no redis-server");
  HPS_ASSIGN_OR_RETURN(const int port, FreePort());
  const std::string port_text = absl::StrCat(port);
  const std::array<const char*, 10> arguments = {
      "redis-server", "--port", port_text.c_str(), "--bind", "127.0.0.1",
      "--save",       "",       "--appendonly",    "no",     nullptr};
  auto peer = std::unique_ptr<RedisPeer>(new RedisPeer);
  HPS_ASSIGN_OR_RETURN(peer->process_, ChildProcess::Start([&](int output) {
                         dup2(output, STDOUT_FILENO);
                         dup2(output, STDERR_FILENO);
                         execv(program.c_str(), const_cast<char* const*>(arguments.data()));
                         return EXIT_FAILURE;
                       }));
  for (std::string line; line.find("eady to accept connections") == std::string::npos;) {
    HPS_ASSIGN_OR_RETURN(line, peer->process_->ReadUntil('\n'));
  }
  peer->target_.address = "127.0.0.1:" + port_text;
  HPS_RETURN_IF_ERROR(Fill(peer->target_.address, world));
  return peer;
}

const LoadTarget& RedisPeer::Target(std::span<const ServeRequest> requests) {
  for (const ServeRequest& request : requests) {
    target_.requests.push_back(EncodeMget(request.keys));
    target_.rows.push_back(ExpectedAnswer(request));
  }
  const size_t answer_bytes = target_.rows[0].size();
  protocol_ = {.name = "redis",
               .encode = {},
               .connect = [answer_bytes](const std::string& address)
                   -> absl::StatusOr<std::unique_ptr<ServeClient>> {
                 HPS_ASSIGN_OR_RETURN(ServeSocket socket, ServeSocket::Connect(address));
                 return std::make_unique<RedisClient>(std::move(socket), answer_bytes);
               }};
  target_.protocol = &protocol_;
  return target_;
}

}  // namespace hps::bench
