// A stream that writes down its events, and an output whose bytes a test reads.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "server/grpc/http2_output.h"
#include "server/grpc/http2_stream.h"
#include "server/net/transport.h"

namespace hps::server {

class RecordedStream final : public Http2Stream {
 public:
  explicit RecordedStream(int32_t stream_id = 1) {
    id = stream_id;
    state = State::kOpen;
  }

  size_t OnField(std::string_view name, std::string_view value) override {
    if (name == ":path") events += "path " + std::string(value) + "; ";
    return field_bytes += name.size() + value.size();
  }
  void OnFields() override { events += "fields; "; }
  void OnData(std::span<const std::byte> bytes) override {
    events += "data " + std::string(AsText(bytes)) + "; ";
  }
  void OnEnd() override { events += "end; "; }
  void OnNoMemory() override { events += "no memory; "; }

  std::string events;
  size_t field_bytes = 0;
};

// The two ends of a connection.
class OutputPair {
 public:
  OutputPair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    transport.Open(ends[0], nullptr);
    client_ = ends[1];
  }
  OutputPair(const OutputPair&) = delete;
  OutputPair& operator=(const OutputPair&) = delete;
  ~OutputPair() { close(client_); }

  // At most `bytes_max` of what the client can read now.
  std::string Read(size_t bytes_max = SIZE_MAX) const {
    std::string text;
    std::array<char, 4096> piece;
    ssize_t bytes = 1;
    while (text.size() < bytes_max && bytes > 0) {
      bytes = read(client_, piece.data(), std::min(piece.size(), bytes_max - text.size()));
      if (bytes > 0) text.append(piece.data(), static_cast<size_t>(bytes));
    }
    return text;
  }

  Transport transport;
  Http2Output output;

 private:
  int client_ = -1;
};

}  // namespace hps::server
