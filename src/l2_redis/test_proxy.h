// A TCP proxy between a test and a Redis server, which damages what the server says.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "l2_redis/redis_address.h"

namespace hps {

class TestProxy {
 public:
  // What becomes of the replies, from the next on.
  struct Harm {
    static constexpr size_t kNever = SIZE_MAX;
    size_t cut_after = kNever;    // so many bytes: then the connection is closed
    size_t stall_after = kNever;  // so many bytes: then nothing comes any more
    std::string instead;          // said in the place of each piece of a reply
    std::string instead_of;       // ... only to commands with this text, which no server gets
    bool swallows = false;        // no server gets a command
    Duration delay{};             // of each piece of a reply
  };

  explicit TestProxy(const std::string& server) : server_(*ParseRedisAddress(server)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    HPS_CHECK(bind(listener_, Generic(&address), sizeof(address)) == 0);
    HPS_CHECK(listen(listener_, 64) == 0);
    socklen_t size = sizeof(address);
    HPS_CHECK(getsockname(listener_, Generic(&address), &size) == 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  TestProxy(const TestProxy&) = delete;
  TestProxy& operator=(const TestProxy&) = delete;
  ~TestProxy() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }

  const std::string& address() const { return address_; }

  void Set(const Harm& harm) {
    MutexLock lock(mutex_);
    harm_ = harm;
    passed_ = 0;
  }

 private:
  struct Pair {
    int client = -1;
    int server = -1;
  };

  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static sockaddr* Generic(sockaddr_in* address) {
    return static_cast<sockaddr*>(static_cast<void*>(address));
  }

  void Run() {
    std::vector<Pair> pairs;
    while (!stop_) {
      std::vector<pollfd> waits = {{.fd = listener_, .events = POLLIN}};
      for (const Pair& pair : pairs) {
        waits.push_back({.fd = pair.client, .events = POLLIN});
        waits.push_back({.fd = pair.server, .events = POLLIN});
      }
      poll(waits.data(), waits.size(), 20);
      std::vector<Pair> kept;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const bool goes_on = (waits[1 + 2 * i].revents == 0 || PassCommands(pairs[i])) &&
                             (waits[2 + 2 * i].revents == 0 || PassReplies(pairs[i]));
        if (goes_on) {
          kept.push_back(pairs[i]);
        } else {
          close(pairs[i].client);
          close(pairs[i].server);
        }
      }
      pairs = std::move(kept);
      if (waits[0].revents != 0) pairs.push_back(Accept());
    }
    for (const Pair& pair : pairs) {
      close(pair.client);
      close(pair.server);
    }
  }

  Pair Accept() {
    Pair pair;
    pair.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    pair.server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(server_.port);
    // Of a server that is down, the end follows with the first read.
    (void)connect(pair.server, Generic(&address), sizeof(address));
    return pair;
  }

  bool PassCommands(const Pair& pair) {
    std::array<char, 65536> bytes;
    const ssize_t count = recv(pair.client, bytes.data(), bytes.size(), 0);
    {
      MutexLock lock(mutex_);
      if (harm_.swallows) return count > 0;
      const std::string_view command(bytes.data(),
                                     static_cast<size_t>(std::max<ssize_t>(count, 0)));
      if (!harm_.instead_of.empty() && command.find(harm_.instead_of) != command.npos)
        return SendAll(pair.client, harm_.instead);
    }
    return count > 0 && SendAll(pair.server, {bytes.data(), static_cast<size_t>(count)});
  }

  bool PassReplies(const Pair& pair) {
    std::array<char, 65536> bytes;
    const ssize_t count = recv(pair.server, bytes.data(), bytes.size(), 0);
    if (count <= 0) return false;
    std::string_view reply(bytes.data(), static_cast<size_t>(count));
    MutexLock lock(mutex_);
    const TimePoint passes_at = RealClock().Now() + harm_.delay;
    while (RealClock().Now() < passes_at && !stop_) never_.WaitUntil(mutex_, passes_at);
    if (!harm_.instead.empty() && harm_.instead_of.empty())
      return SendAll(pair.client, harm_.instead);
    const size_t end = std::min(harm_.cut_after, harm_.stall_after);
    const size_t passes = std::min(reply.size(), end - std::min(end, passed_));
    passed_ += reply.size();
    if (!SendAll(pair.client, reply.substr(0, passes))) return false;
    return passed_ < harm_.cut_after;
  }

  static bool SendAll(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  const RedisAddress server_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar never_;  // not notified by anybody: a wait for it is a delay
  Harm harm_ HPS_GUARDED_BY(mutex_);
  size_t passed_ HPS_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace hps
