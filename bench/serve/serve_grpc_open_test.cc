// The gRPC client of the open loop against a server that does what a request tells it to.
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "bench/serve/serve_open_client.h"
#include "bench/serve/test_open_client.h"
#include "server/grpc/http2_field.h"

namespace hps::bench {
namespace {

// Its texts live until it is submitted.
nghttp2_nv TextField(std::string_view name, std::string_view value) {
  return server::Http2Field(name, value, NGHTTP2_NV_FLAG_NONE);
}

// One connection, served until it ends. The sixth byte of a request's data, the first of its
// message, is a letter: what to do with it.
class LetterSession {
 public:
  explicit LetterSession(int fd) : fd_(fd), rows_(100'000, 'r') {}
  LetterSession(const LetterSession&) = delete;
  LetterSession& operator=(const LetterSession&) = delete;
  ~LetterSession() {
    nghttp2_session_del(session_);
    close(fd_);
  }

  void Serve() {
    nghttp2_session_callbacks* callbacks = nullptr;
    EXPECT_EQ(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, OnData);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, OnFrame);
    EXPECT_EQ(nghttp2_session_server_new(&session_, callbacks, this), 0);
    nghttp2_session_callbacks_del(callbacks);
    EXPECT_EQ(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0), 0);
    std::array<uint8_t, 4096> room;
    while (!ends_ && Flush()) {
      const ssize_t got = recv(fd_, room.data(), room.size(), 0);
      if (got <= 0 || nghttp2_session_mem_recv(session_, room.data(), static_cast<size_t>(got)) < 0)
        return;
    }
  }

 private:
  static LetterSession& Of(void* session) { return *static_cast<LetterSession*>(session); }

  static int OnData(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t bytes,
                    void* session) {
    Of(session).requests_[id].append(AsText(std::as_bytes(std::span(data, bytes))));
    return 0;
  }
  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* session) {
    const bool is_end =
        frame->hd.type == NGHTTP2_DATA && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (is_end) Of(session).Answer(frame->hd.stream_id);
    return 0;
  }
  static ssize_t ReadRows(nghttp2_session* session, int32_t id, uint8_t* buffer, size_t bytes_max,
                          uint32_t* flags, nghttp2_data_source* source, void*) {
    auto& rest = *static_cast<std::string*>(source->ptr);
    const size_t bytes = std::min(bytes_max, rest.size());
    std::memcpy(buffer, rest.data(), bytes);
    rest.erase(0, bytes);
    if (!rest.empty()) return static_cast<ssize_t>(bytes);
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const nghttp2_nv status = TextField("grpc-status", "0");
    EXPECT_EQ(nghttp2_submit_trailer(session, id, &status, 1), 0);
    return static_cast<ssize_t>(bytes);
  }

  void Answer(int32_t id) {
    const std::string request = requests_[id];
    EXPECT_EQ(request.substr(0, 5), std::string("\0\0\0\0\1", 5));
    const char letter = request.back();
    const std::map<char, std::string_view> codes = {{'r', "8"}, {'l', "4"}, {'f', "14"}};
    if (letter == 'n') return;
    if (letter == 'x') ends_ = true;
    if (letter == 'g') {
      EXPECT_EQ(nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, nullptr, 0),
                0);
      return;
    }
    if (codes.contains(letter)) {
      const std::array fields = {TextField(":status", "200"),
                                 TextField("grpc-status", codes.at(letter))};
      EXPECT_EQ(nghttp2_submit_response(session_, id, fields.data(), fields.size(), nullptr), 0);
      return;
    }
    answers_[id] = letter == 'w' ? std::string(rows_.size(), 'w') : rows_;
    const nghttp2_nv field = TextField(":status", "200");
    const nghttp2_data_provider rows = {.source = {.ptr = &answers_[id]},
                                        .read_callback = ReadRows};
    EXPECT_EQ(nghttp2_submit_response(session_, id, &field, 1, &rows), 0);
  }

  bool Flush() {
    const uint8_t* data = nullptr;
    while (!ends_) {
      const ssize_t bytes = nghttp2_session_mem_send(session_, &data);
      if (bytes <= 0) return bytes == 0;
      for (ssize_t sent = 0; sent < bytes;) {
        const ssize_t more =
            send(fd_, data + sent, static_cast<size_t>(bytes - sent), MSG_NOSIGNAL);
        if (more <= 0) return false;
        sent += more;
      }
    }
    return false;
  }

  const int fd_;
  const std::string rows_;
  nghttp2_session* session_ = nullptr;
  bool ends_ = false;
  std::map<int32_t, std::string> requests_;
  std::map<int32_t, std::string> answers_;
};

struct GrpcLetterServer final : public LetterServer {
  GrpcLetterServer() : LetterServer([](int fd) { LetterSession(fd).Serve(); }) {}
};

Outcome SendOverGrpc(const LoadTarget& target, uint64_t count, size_t in_flight_max) {
  return SendAndCollect(OpenGrpcClient(target, in_flight_max), count, in_flight_max);
}

TEST(GrpcOpenClientTest, CountsAnswersByKindAndCode) {
  GrpcLetterServer server;
  const Outcome outcome = SendOverGrpc(server.Target({"o", "r", "l", "f"}), 800, 64);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.kinds, (std::map<OpenAnswer::Kind, int>{{OpenAnswer::Kind::kRows, 200},
                                                            {OpenAnswer::Kind::kRefused, 200},
                                                            {OpenAnswer::Kind::kLate, 200},
                                                            {OpenAnswer::Kind::kFailed, 200}}));
  EXPECT_EQ(outcome.codes, (std::map<int, int>{{0, 200}, {4, 200}, {8, 200}, {14, 200}}));
}

TEST(GrpcOpenClientTest, SendsAsManyAsMayBeInFlight) {
  GrpcLetterServer server;
  const LoadTarget target = server.Target({"n"});
  auto client = OpenGrpcClient(target, 40);
  ASSERT_TRUE(client.ok()) << client.status();
  for (uint64_t i = 0; i < 40; ++i) EXPECT_TRUE((*client)->Send(i, (*client)->Now()));
  EXPECT_FALSE((*client)->Send(40, (*client)->Now()));
  const auto until = (*client)->Now() + std::chrono::milliseconds(2);
  while ((*client)->Now() < until)
    EXPECT_TRUE((*client)->Poll(until, [](auto&) { ADD_FAILURE(); }).ok());
  EXPECT_EQ((*client)->in_flight(), 40u);
}

// All that are in flight on it fail, and the next one opens another.
TEST(GrpcOpenClientTest, ABrokenConnectionIsOpenedAgain) {
  GrpcLetterServer server;
  for (const char* letter : {"x", "g"}) {
    const Outcome outcome = SendOverGrpc(server.Target({letter, "o"}), 100, 1);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.kinds, (std::map<OpenAnswer::Kind, int>{{OpenAnswer::Kind::kRows, 50},
                                                              {OpenAnswer::Kind::kFailed, 50}}));
  }
}

TEST(GrpcOpenClientTest, WrongRowsAreAnError) {
  GrpcLetterServer server;
  EXPECT_EQ(SendOverGrpc(server.Target({"w"}), 1, 1).status.code(), absl::StatusCode::kInternal);
}

TEST(GrpcOpenClientTest, NobodyListensIsAnError) {
  LoadTarget target{.requests = {"o"}, .rows = {}};
  target.address = "nothing";
  EXPECT_EQ(OpenGrpcClient(target, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps::bench
