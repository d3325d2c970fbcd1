// The HTTP client of the open loop against a server that does what a request tells it to.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/serve_open_client.h"

namespace hps::bench {
namespace {

constexpr auto kLong = std::chrono::minutes(1);

// A socket with an address of its own, where nobody listens yet.
int BoundSocket(std::string* at) {
  const int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = static_cast<sockaddr*>(static_cast<void*>(&address));
  EXPECT_EQ(bind(bound, any, size), 0);
  EXPECT_EQ(getsockname(bound, any, &size), 0);
  *at = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  return bound;
}

// One thread for each connection. A request is one letter: what to do with it.
class LetterServer {
 public:
  LetterServer() : listener_(BoundSocket(&address_)) {
    EXPECT_EQ(listen(listener_, 128), 0);
    acceptor_ = std::thread([this] { Accept(); });
  }
  // Clients have closed their connections by then.
  ~LetterServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }

  const std::string& address() const { return address_; }
  static const std::string& body() {
    static const std::string kBody(300'000, 'r');
    return kBody;
  }

 private:
  void Accept() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      threads_.emplace_back([fd] { Serve(fd); });
    }
  }

  static void SendAll(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  static std::string Head(int code, size_t bytes, const char* more = "") {
    return absl::StrCat("HTTP/1.1 ", code, " x\r\nContent-Length: ", bytes, "\r\n", more, "\r\n");
  }

  static void Serve(int fd) {
    char letter = 0;
    while (recv(fd, &letter, 1, 0) == 1) {
      if (letter == 'o') SendAll(fd, Head(200, body().size()) + body());
      if (letter == 'w') SendAll(fd, Head(200, body().size()) + std::string(body().size(), 'w'));
      if (letter == 'r') SendAll(fd, Head(429, 4) + "full");
      if (letter == 'l') SendAll(fd, Head(504, 0));
      if (letter == 'f') SendAll(fd, Head(503, 0, "Connection: close\r\n"));
      if (letter == 'p') {  // in pieces
        const std::string head = Head(200, body().size());
        for (const char byte : head) SendAll(fd, {&byte, 1});
        SendAll(fd, body());
      }
      if (letter == 'g') SendAll(fd, "garbage\r\n\r\n");
      if (letter == 'x' || letter == 'f') break;
    }
    close(fd);
  }

  std::string address_;
  const int listener_;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

LoadTarget TargetOf(const LetterServer& server, const std::vector<std::string>& requests) {
  std::vector<std::byte> rows(1000);
  std::memset(rows.data(), 'r', rows.size());
  return {.protocol = nullptr,
          .address = server.address(),
          .requests = requests,
          .rows = std::vector(requests.size(), rows)};
}

// Sends `count` requests as far as connections allow, and collects all answers.
struct Outcome {
  absl::Status status;
  std::map<OpenAnswer::Kind, int> kinds;
  std::map<int, int> codes;
  size_t connections = 0;
};

Outcome SendAndCollect(const LoadTarget& target, uint64_t count, size_t in_flight_max) {
  Outcome outcome;
  auto client = OpenHttpClient(target, in_flight_max);
  if (!client.ok()) return {.status = client.status(), .kinds = {}, .codes = {}};
  const auto begin = (*client)->Now();
  uint64_t sent = 0;
  while (sent < count || (*client)->in_flight() > 0) {
    while (sent < count && (*client)->Send(sent, begin)) ++sent;
    EXPECT_LE((*client)->in_flight(), in_flight_max);
    outcome.status = (*client)->Poll((*client)->Now() + kLong, [&](const OpenAnswer& answer) {
      ++outcome.kinds[answer.kind];
      ++outcome.codes[answer.code];
      EXPECT_EQ(answer.arrival, begin);
      EXPECT_GE(answer.end, begin);
    });
    if (!outcome.status.ok() || (*client)->Now() > begin + kLong) break;
  }
  outcome.connections = (*client)->connections();
  return outcome;
}

TEST(HttpOpenClientTest, CountsAnswersByKindAndCode) {
  LetterServer server;
  const Outcome outcome = SendAndCollect(TargetOf(server, {"o", "r", "l", "f", "x", "p"}), 600, 16);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.kinds, (std::map<OpenAnswer::Kind, int>{{OpenAnswer::Kind::kRows, 200},
                                                            {OpenAnswer::Kind::kRefused, 100},
                                                            {OpenAnswer::Kind::kLate, 100},
                                                            {OpenAnswer::Kind::kFailed, 200}}));
  EXPECT_EQ(outcome.codes,
            (std::map<int, int>{{0, 100}, {200, 200}, {429, 100}, {503, 100}, {504, 100}}));
  EXPECT_LE(outcome.connections, 16u);
}

TEST(HttpOpenClientTest, OpensAConnectionForEachRequestInFlight) {
  LetterServer server;
  const LoadTarget target = TargetOf(server, {"o"});
  auto client = OpenHttpClient(target, 40);
  ASSERT_TRUE(client.ok()) << client.status();
  for (uint64_t i = 0; i < 40; ++i) EXPECT_TRUE((*client)->Send(i, (*client)->Now()));
  EXPECT_FALSE((*client)->Send(40, (*client)->Now()));
  EXPECT_EQ((*client)->in_flight(), 40u);
  EXPECT_EQ((*client)->connections(), 40u);
  int answers = 0;
  while (answers < 40) {
    ASSERT_TRUE((*client)->Poll((*client)->Now() + kLong, [&](auto&) { ++answers; }).ok());
  }
  // A free one is used again.
  EXPECT_TRUE((*client)->Send(41, (*client)->Now()));
  EXPECT_EQ((*client)->connections(), 40u);
}

TEST(HttpOpenClientTest, PollEndsWithoutAnAnswer) {
  LetterServer server;
  const LoadTarget target = TargetOf(server, {"n"});
  auto client = OpenHttpClient(target, 1);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Send(0, (*client)->Now()));
  const auto until = (*client)->Now() + std::chrono::milliseconds(2);
  while ((*client)->Now() < until)
    EXPECT_TRUE((*client)->Poll(until, [](auto&) { ADD_FAILURE(); }).ok());
  EXPECT_EQ((*client)->in_flight(), 1u);
}

TEST(HttpOpenClientTest, WrongRowsAndWhatIsNoAnswerAreErrors) {
  LetterServer server;
  for (const char* letter : {"w", "g"}) {
    const Outcome outcome = SendAndCollect(TargetOf(server, {letter}), 1, 1);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kInternal) << letter << outcome.status;
  }
}

TEST(HttpOpenClientTest, NobodyListensIsAnError) {
  LoadTarget target{.requests = {"o"}, .rows = {}};
  const int bound = BoundSocket(&target.address);  // so that nobody else comes to have the port
  EXPECT_EQ(OpenHttpClient(target, 1).status().code(), absl::StatusCode::kUnavailable);
  close(bound);
  target.address = "nothing";
  EXPECT_EQ(OpenHttpClient(target, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps::bench
