// A client's blocking socket that sends exactly the bytes it is told.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace hps::server {

class TestSocket {
 public:
  // `address`: a port of 127.0.0.1, "host:port". `patience`: a wait that is longer fails the test.
  TestSocket(const std::string& address, std::chrono::milliseconds patience) : patience_(patience) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connected_ = connect(fd_, static_cast<sockaddr*>(static_cast<void*>(&to)), sizeof(to)) == 0;
  }
  TestSocket(const TestSocket&) = delete;
  TestSocket& operator=(const TestSocket&) = delete;
  ~TestSocket() { Close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

  // False: the server has closed the connection.
  bool Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  enum class Got { kBytes, kEnd, kNothing };
  // Adds more bytes to `text`.
  Got Receive(std::string* text) const {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(patience_.count())) != 1) {
      ADD_FAILURE() << "nothing came for " << patience_.count() << " ms";
      return Got::kNothing;
    }
    std::array<char, 65536> bytes;
    const ssize_t received = recv(fd_, bytes.data(), bytes.size(), 0);
    if (received <= 0) return Got::kEnd;
    text->append(bytes.data(), static_cast<size_t>(received));
    return Got::kBytes;
  }

 private:
  const std::chrono::milliseconds patience_;
  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace hps::server
