// For tests of the open loop's clients: a server on loopback that does what each request's letter
// tells it to, and what a client made of its answers.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/serve/serve_open_client.h"

namespace hps::bench {

inline constexpr auto kLong = std::chrono::minutes(1);

// A socket with an address of its own, where nobody listens yet.
inline int BoundSocket(std::string* at) {
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

// One thread for each connection, which is `serve`'s to close.
class LetterServer {
 public:
  explicit LetterServer(std::function<void(int)> serve)
      : serve_(std::move(serve)), listener_(BoundSocket(&address_)) {
    EXPECT_EQ(listen(listener_, 128), 0);
    acceptor_ = std::thread([this] { Accept(); });
  }
  LetterServer(const LetterServer&) = delete;
  LetterServer& operator=(const LetterServer&) = delete;
  // Clients have closed their connections by then.
  ~LetterServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }

  LoadTarget Target(const std::vector<std::string>& requests) const {
    std::vector<std::byte> rows(1000);
    std::memset(rows.data(), 'r', rows.size());
    return {.protocol = nullptr,
            .address = address_,
            .requests = requests,
            .rows = std::vector(requests.size(), rows)};
  }

 private:
  void Accept() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      threads_.emplace_back([this, fd] { serve_(fd); });
    }
  }

  const std::function<void(int)> serve_;
  std::string address_;
  const int listener_;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

// Sends `count` requests as far as connections allow, and collects all answers.
struct Outcome {
  absl::Status status;
  std::map<OpenAnswer::Kind, int> kinds;
  std::map<int, int> codes;
  size_t connections = 0;
};

inline Outcome SendAndCollect(absl::StatusOr<std::unique_ptr<OpenClient>> client, uint64_t count,
                              size_t in_flight_max) {
  Outcome outcome;
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

}  // namespace hps::bench
