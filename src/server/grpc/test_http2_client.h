// An HTTP/2 client that sends any frames, also invalid ones.
#pragma once

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "server/grpc/test_http2_frames.h"
#include "server/net/test_socket.h"

namespace hps::server {

class Http2Client {
 public:
  // What has arrived of a stream.
  struct Answer {
    std::map<std::string, std::string> fields;  // trailers too
    std::string data;
    bool ended = false;
    int64_t reset = -1;  // why

    int code() const {
      const auto found = fields.find("grpc-status");
      return found == fields.end() ? -1 : std::stoi(found->second);
    }
    std::string message() const {
      const auto found = fields.find("grpc-message");
      return found == fields.end() ? "" : found->second;
    }
  };

  explicit Http2Client(const std::string& address) : socket_(address, std::chrono::minutes(1)) {
    EXPECT_TRUE(socket_.connected());
    const int at_once = 1;  // sends also the second of two small frames without delay
    EXPECT_EQ(setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once)), 0);
    EXPECT_EQ(nghttp2_hd_inflate_new(&inflater_), 0);
  }
  Http2Client(const Http2Client&) = delete;
  Http2Client& operator=(const Http2Client&) = delete;
  ~Http2Client() { nghttp2_hd_inflate_del(inflater_); }

  // False: the server has closed the connection.
  bool Send(std::string_view bytes) { return socket_.Send(bytes); }
  bool Send(const Http2Frame& frame) { return Send(frame.bytes()); }

  // The preface and SETTINGS: pairs of an identifier and a value.
  bool Begin(const std::vector<std::pair<uint16_t, uint32_t>>& settings = {}) {
    std::string payload;
    for (const auto& [id, value] : settings) payload += BigEndian(id, 2) + BigEndian(value, 4);
    return Send(std::string(NGHTTP2_CLIENT_MAGIC) +
                Http2Frame{.type = NGHTTP2_SETTINGS, .payload = payload}.bytes());
  }
  // Waits until the server has handled the SETTINGS.
  void Settle() {
    Send(Http2Frame{NGHTTP2_PING, 0, 0, "settled?"});
    Http2Frame frame;
    while (acknowledged_pings_ == 0 && Receive(&frame)) continue;
  }
  bool SendFields(uint32_t stream, const std::vector<std::pair<std::string, std::string>>& fields,
                  uint8_t flags = kEndFields) {
    return Send(Http2Frame{NGHTTP2_HEADERS, flags, stream, PackFields(fields)});
  }
  bool SendData(uint32_t stream, std::string_view bytes, bool end = true) {
    return Send(DataFrames(stream, bytes, end));
  }
  // Sends a call in one piece, so that no timeout of the server passes between two frames.
  bool Call(uint32_t stream, const std::string& path, std::string_view message) {
    const Http2Frame fields{NGHTTP2_HEADERS, kEndFields, stream, PackFields(CallFields(path))};
    return Send(fields.bytes() + DataFrames(stream, Framed(message), /*end=*/true));
  }

  // Receives the next frame and records it. False: end of the connection, or a minute has passed.
  bool Receive(Http2Frame* frame) {
    constexpr size_t kHeadBytes = 9;
    while (received_.size() < kHeadBytes || received_.size() < kHeadBytes + PayloadBytes()) {
      if (!ReceiveBytes()) return false;
    }
    frame->type = static_cast<uint8_t>(received_[3]);
    frame->flags = static_cast<uint8_t>(received_[4]);
    frame->stream = __builtin_bswap32(LoadLittleEndian<uint32_t>(received_.data() + 5));
    frame->payload = received_.substr(kHeadBytes, PayloadBytes());
    received_.erase(0, kHeadBytes + frame->payload.size());
    Note(*frame);
    return true;
  }
  // Waits for the end of the stream or of the connection.
  const Answer& Await(uint32_t stream) {
    Http2Frame frame;
    while (!answers_[stream].ended && answers_[stream].reset < 0 && Receive(&frame)) continue;
    return answers_[stream];
  }
  // Waits until the server closes the connection. Returns the reason in its GOAWAY; -1: none.
  int64_t AwaitEnd() {
    Http2Frame frame;
    while (Receive(&frame)) continue;
    EXPECT_TRUE(at_end_) << "the connection is still open";
    return went_away_;
  }

  const Answer& answer(uint32_t stream) { return answers_[stream]; }
  uint64_t window_bytes(uint32_t stream) { return windows_[stream]; }  // from WINDOW_UPDATEs
  size_t acknowledged_pings() const { return acknowledged_pings_; }
  // The largest stream that the server's last GOAWAY takes; -1: it has sent none.
  int64_t last_stream() const { return last_stream_; }
  bool gives_windows = true;  // sends WINDOW_UPDATEs for received data
  bool acknowledges_pings = true;
  int fd() const { return socket_.fd(); }

 private:
  // DATA frames of at most the size that every server accepts.
  static std::string DataFrames(uint32_t stream, std::string_view bytes, bool end) {
    constexpr size_t kFrameBytes = 16384;
    std::string frames;
    do {
      const std::string_view part = bytes.substr(0, kFrameBytes);
      bytes.remove_prefix(part.size());
      const uint8_t flags = end && bytes.empty() ? kEndStream : 0;
      frames += Http2Frame{NGHTTP2_DATA, flags, stream, std::string(part)}.bytes();
    } while (!bytes.empty());
    return frames;
  }
  size_t PayloadBytes() const {
    return static_cast<size_t>(static_cast<uint8_t>(received_[0])) << 16 |
           static_cast<size_t>(static_cast<uint8_t>(received_[1])) << 8 |
           static_cast<uint8_t>(received_[2]);
  }
  bool ReceiveBytes() {
    const TestSocket::Got got = socket_.Receive(&received_);
    if (got != TestSocket::Got::kNothing) at_end_ = got == TestSocket::Got::kEnd;
    return got == TestSocket::Got::kBytes;
  }
  void Note(const Http2Frame& frame) {
    Answer& answer = answers_[frame.stream];
    const auto number = [&frame](size_t at) {
      return __builtin_bswap32(LoadLittleEndian<uint32_t>(frame.payload.data() + at));
    };
    switch (frame.type) {
      case NGHTTP2_HEADERS:
        Unpack(frame.payload, &answer.fields);
        break;
      case NGHTTP2_DATA:
        answer.data += frame.payload;
        if (gives_windows && !frame.payload.empty()) {
          const std::string more = BigEndian(frame.payload.size(), 4);
          Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, 0, more});
          Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, frame.stream, more});
        }
        break;
      case NGHTTP2_RST_STREAM:
        answer.reset = number(0);
        return;
      case NGHTTP2_WINDOW_UPDATE:
        windows_[frame.stream] += number(0);
        return;
      case NGHTTP2_SETTINGS:
        if ((frame.flags & 1) == 0) Send(Http2Frame{NGHTTP2_SETTINGS, 1, 0, ""});
        return;
      case NGHTTP2_PING:
        acknowledged_pings_ += frame.flags & 1;
        if ((frame.flags & 1) == 0 && acknowledges_pings)
          Send(Http2Frame{NGHTTP2_PING, 1, 0, frame.payload});
        return;
      case NGHTTP2_GOAWAY:
        last_stream_ = number(0);
        went_away_ = number(4);
        return;
      default:
        return;
    }
    answer.ended |= (frame.flags & kEndStream) != 0;
  }
  void Unpack(const std::string& packed, std::map<std::string, std::string>* fields) {
    std::vector<uint8_t> in(packed.begin(), packed.end());
    uint8_t* at = in.data();
    for (;;) {
      nghttp2_nv field{};
      int flags = 0;
      const ssize_t used = nghttp2_hd_inflate_hd2(
          inflater_, &field, &flags, at, static_cast<size_t>(in.data() + in.size() - at), 1);
      ASSERT_GE(used, 0);
      at += used;
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        (*fields)[std::string(field.name, field.name + field.namelen)] =
            std::string(field.value, field.value + field.valuelen);
      }
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
    }
    nghttp2_hd_inflate_end_headers(inflater_);
  }

  TestSocket socket_;
  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string received_;
  bool at_end_ = false;
  int64_t went_away_ = -1;
  int64_t last_stream_ = -1;
  size_t acknowledged_pings_ = 0;
  std::map<uint32_t, Answer> answers_;
  std::map<uint32_t, uint64_t> windows_;
};

}  // namespace hps::server
