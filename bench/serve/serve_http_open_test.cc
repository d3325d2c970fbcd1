// The HTTP client of the open loop against a server that does what a request tells it to.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "bench/serve/serve_open_client.h"
#include "bench/serve/test_open_client.h"

namespace hps::bench {
namespace {

// A request is one letter: what to do with it.
class HttpLetterServer final : public LetterServer {
 public:
  HttpLetterServer() : LetterServer(Serve) {}

  static const std::string& body() {
    static const std::string kBody(300'000, 'r');
    return kBody;
  }

 private:
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
};

Outcome SendOverHttp(const LoadTarget& target, uint64_t count, size_t in_flight_max) {
  return SendAndCollect(OpenHttpClient(target, in_flight_max), count, in_flight_max);
}

TEST(HttpOpenClientTest, CountsAnswersByKindAndCode) {
  HttpLetterServer server;
  const Outcome outcome = SendOverHttp(server.Target({"o", "r", "l", "f", "x", "p"}), 600, 16);
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
  HttpLetterServer server;
  const LoadTarget target = server.Target({"o"});
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
  HttpLetterServer server;
  const LoadTarget target = server.Target({"n"});
  auto client = OpenHttpClient(target, 1);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Send(0, (*client)->Now()));
  const auto until = (*client)->Now() + std::chrono::milliseconds(2);
  while ((*client)->Now() < until)
    EXPECT_TRUE((*client)->Poll(until, [](auto&) { ADD_FAILURE(); }).ok());
  EXPECT_EQ((*client)->in_flight(), 1u);
}

TEST(HttpOpenClientTest, WrongRowsAndWhatIsNoAnswerAreErrors) {
  HttpLetterServer server;
  for (const char* letter : {"w", "g"}) {
    const Outcome outcome = SendOverHttp(server.Target({letter}), 1, 1);
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
