#include "server/grpc/grpc_session.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "server/grpc/call_metadata.h"
#include "server/grpc/test_http2_frames.h"
#include "server/grpc/test_http2_stream.h"

namespace hps::server {
namespace {

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr uint8_t kAck = 1;

class GrpcSessionTest : public testing::Test, public GrpcSession::Handler {
 protected:
  GrpcSessionTest() { Begin(); }

  Http2Stream* OnNewStream(int32_t id) override {
    if (!has_capacity_) return nullptr;
    auto& stream = streams_[id];
    stream = std::make_unique<RecordedStream>(id);
    return stream.get();
  }
  void OnStreamClosed(Http2Stream& stream) override { streams_[stream.id]->events += "closed; "; }

  void Begin() {
    ASSERT_TRUE(session_.Open());
    EXPECT_FALSE(session_.has_settings());
    ASSERT_TRUE(Receive(std::string(NGHTTP2_CLIENT_MAGIC) + Http2Frame{NGHTTP2_SETTINGS}.bytes()));
    EXPECT_TRUE(session_.has_settings());
    EXPECT_EQ(Sent(NGHTTP2_SETTINGS), 2U);  // its own, and the acknowledgement
    ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_SETTINGS, kAck}));
  }
  bool Receive(const std::string& bytes) {
    return session_.Receive(AsBytes(std::string_view(bytes)), kNow);
  }
  bool Receive(const Http2Frame& frame) { return Receive(frame.bytes()); }
  bool ReceiveCall(uint32_t stream) {
    return Receive(Http2Frame{NGHTTP2_HEADERS, kEndFields, stream, PackFields(CallFields("/a"))});
  }
  // Sends everything; frames_ has what was sent. How many are of this type?
  size_t Sent(uint8_t type) {
    EXPECT_TRUE(session_.FillOutput());
    EXPECT_EQ(pair_.output.Write(pair_.transport, kNow, std::chrono::seconds(1)), IoState::kDone);
    frames_.clear();
    size_t count = 0;
    for (std::string bytes = pair_.Read(); bytes.size() >= 9;) {
      const size_t size = static_cast<uint8_t>(bytes[1]) * 256U + static_cast<uint8_t>(bytes[2]);
      frames_.push_back({static_cast<uint8_t>(bytes[3]), static_cast<uint8_t>(bytes[4]),
                         static_cast<uint8_t>(bytes[8]), bytes.substr(9, size)});
      count += frames_.back().type == type ? 1 : 0;
      bytes.erase(0, 9 + size);
    }
    return count;
  }
  uint64_t bad_requests() const {
    ServerStatistics statistics;
    counters_.Fill(&statistics);
    for (const auto& [reason, count] : statistics.bad_requests) {
      if (reason == "protocol") return count;
    }
    return 0;
  }

  bool has_capacity_ = true;
  std::map<int32_t, std::unique_ptr<RecordedStream>> streams_;
  ServerCounters counters_;
  OutputPair pair_;
  GrpcSession session_{*this, pair_.output, counters_};
  std::vector<Http2Frame> frames_;
};

TEST_F(GrpcSessionTest, ReportsACallAndSendsItsAnswer) {
  ASSERT_TRUE(ReceiveCall(1));
  ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_DATA, kEndStream, 1, "abc"}));
  RecordedStream& stream = *streams_[1];
  EXPECT_EQ(stream.events, "path /a; fields; data abc; end; ");
  stream.response.SetText("answer", ResponseWriter::After::kStatus);
  session_.SubmitAnswer(stream);
  EXPECT_EQ(stream.state, Http2Stream::State::kAnswering);
  EXPECT_EQ(Sent(NGHTTP2_HEADERS), 2U);
  ASSERT_EQ(frames_.size(), 3U);
  EXPECT_EQ(frames_[1].type, NGHTTP2_DATA);
  EXPECT_EQ(frames_[1].payload, Framed("answer"));
  EXPECT_EQ(frames_[2].flags & kEndStream, kEndStream);
  EXPECT_EQ(stream.events, "path /a; fields; data abc; end; closed; ");
}

TEST_F(GrpcSessionTest, AStreamOfAnswersEndsWithItsStatus) {
  ASSERT_TRUE(ReceiveCall(1));
  ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_DATA, kEndStream, 1, "abc"}));
  RecordedStream& stream = *streams_[1];
  for (const char* const answer : {"first", "second"}) {
    stream.response.SetText(answer, ResponseWriter::After::kMore);
    session_.SubmitAnswer(stream);
    EXPECT_EQ(Sent(NGHTTP2_DATA), 1U);
    EXPECT_EQ(frames_.back().payload, Framed(answer));
  }
  stream.response.SetStatus(absl::StatusCode::kOk, "");
  session_.SubmitEnd(stream);
  EXPECT_EQ(Sent(NGHTTP2_HEADERS), 1U);
  EXPECT_EQ(frames_.back().flags & kEndStream, kEndStream);
}

TEST_F(GrpcSessionTest, AnEndBeforeTheRequestResetsTheRestOfIt) {
  ASSERT_TRUE(ReceiveCall(1));
  streams_[1]->response.SetStatus(absl::StatusCode::kUnimplemented, "no");
  session_.SubmitEnd(*streams_[1]);
  ASSERT_TRUE(ReceiveCall(3));
  session_.SubmitHttpStatus(*streams_[3], "415");
  ASSERT_TRUE(ReceiveCall(5));
  session_.SubmitReset(*streams_[5]);
  EXPECT_EQ(Sent(NGHTTP2_RST_STREAM), 3U);
  for (const auto& [id, stream] : streams_) EXPECT_TRUE(stream->events.ends_with("closed; ")) << id;
}

TEST_F(GrpcSessionTest, GivesAStreamItsWindowBackWhenTheStreamSaysSo) {
  ASSERT_TRUE(ReceiveCall(1));
  const std::string data(16 << 10, 'x');
  const size_t frames = kStreamWindowBytes / data.size();
  for (size_t i = 0; i < frames; ++i) ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_DATA, 0, 1, data}));
  EXPECT_EQ(Sent(NGHTTP2_WINDOW_UPDATE), 0U);
  session_.Consume(*streams_[1], kStreamWindowBytes);
  EXPECT_EQ(Sent(NGHTTP2_WINDOW_UPDATE), 1U);
  EXPECT_EQ(frames_.back().stream, 1U);
}

TEST_F(GrpcSessionTest, RefusesACallForWhichThereIsNoCapacity) {
  has_capacity_ = false;
  ASSERT_TRUE(ReceiveCall(1));
  EXPECT_EQ(Sent(NGHTTP2_HEADERS), 1U);
  EXPECT_EQ(frames_.front().flags & kEndStream, kEndStream);
  EXPECT_TRUE(streams_.empty());
  EXPECT_EQ(bad_requests(), 0U);
}

TEST_F(GrpcSessionTest, EndsForBytesThatAreNotHttp2) {
  session_.Close();
  ASSERT_TRUE(session_.Open());
  EXPECT_FALSE(Receive("GET / HTTP/1.1\r\n\r\n0123456789"));
  EXPECT_EQ(bad_requests(), 1U);
  session_.Close();
  Begin();  // it can be opened again
}

TEST_F(GrpcSessionTest, EndsForAnEndlessListOfFields) {
  for (const bool has_capacity : {true, false}) {
    has_capacity_ = has_capacity;
    session_.Close();
    Begin();
    auto fields = CallFields("/a");
    for (size_t i = 0; i < 5; ++i)
      fields.emplace_back("x", std::string(4 * kCallFieldBytesMax, 'v'));
    const std::string packed = PackFields(fields);
    std::string frames;
    for (size_t i = 0; i < packed.size(); i += 16384) {
      const uint8_t type = i == 0 ? uint8_t{NGHTTP2_HEADERS} : uint8_t{NGHTTP2_CONTINUATION};
      frames += Http2Frame{type, 0, 1, packed.substr(i, 16384)}.bytes();
    }
    EXPECT_TRUE(Receive(frames));
    EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
    EXPECT_EQ(frames_.back().payload.substr(4), BigEndian(NGHTTP2_ENHANCE_YOUR_CALM, 4));
    EXPECT_TRUE(session_.has_ended());
  }
}

// nghttp2 reads no field of more than 64 KiB.
TEST_F(GrpcSessionTest, EndsForAFieldThatIsTooLongWithTheTrueReason) {
  auto fields = CallFields("/a");
  fields.emplace_back("x", std::string(100'000, 'v'));
  ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_HEADERS, 0, 1, PackFields(fields).substr(0, 16384)}));
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
  ASSERT_EQ(frames_.size(), 2U);
  EXPECT_EQ(frames_[0].type, NGHTTP2_RST_STREAM);
  EXPECT_EQ(frames_[0].payload, BigEndian(NGHTTP2_ENHANCE_YOUR_CALM, 4));
  EXPECT_EQ(frames_[1].payload.substr(4), BigEndian(NGHTTP2_ENHANCE_YOUR_CALM, 4));
  session_.Close();
  Begin();
  ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_HEADERS, kEndFields, 1, "\xff\xff\xff\xff\xff"}));
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
  EXPECT_EQ(frames_.back().payload.substr(4), BigEndian(NGHTTP2_COMPRESSION_ERROR, 4));
}

TEST_F(GrpcSessionTest, AStreamThatTheClientHasSkippedEndsTheSession) {
  // The streams that are opened, and one that is late.
  const std::vector<std::pair<std::vector<uint32_t>, uint32_t>> cases = {
      {{5}, 3}, {{5}, 1}, {{1, 5, 9}, 3}, {{1, 3, 129}, 5}, {{201}, 75}};
  for (const auto& [opened, late] : cases) {
    SCOPED_TRACE(late);
    session_.Close();
    Begin();
    for (const uint32_t id : opened) ASSERT_TRUE(ReceiveCall(id));
    ASSERT_TRUE(ReceiveCall(late));
    EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
    EXPECT_EQ(frames_.back().payload.substr(4), BigEndian(NGHTTP2_PROTOCOL_ERROR, 4));
    EXPECT_TRUE(session_.has_ended());
  }
}

TEST_F(GrpcSessionTest, TrailersOfAStreamThatHasEndedAreIgnored) {
  for (const uint32_t id : {1U, 3U, 201U}) {
    ASSERT_TRUE(ReceiveCall(id));
    session_.SubmitReset(*streams_[static_cast<int32_t>(id)]);
  }
  EXPECT_EQ(Sent(NGHTTP2_RST_STREAM), 3U);
  for (const uint32_t id : {1U, 3U, 201U}) {
    ASSERT_TRUE(Receive(
        Http2Frame{NGHTTP2_HEADERS, kEndFields | kEndStream, id, PackFields({{"x", "y"}})}));
  }
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 0U);
  ASSERT_TRUE(ReceiveCall(203));
  EXPECT_EQ(streams_[203]->events, "path /a; fields; ");
}

TEST_F(GrpcSessionTest, EndsForAFloodOfPings) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_PING, 0, 0, "12345678"}));
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
  EXPECT_TRUE(session_.has_ended());
  EXPECT_EQ(bad_requests(), 1U);
}

TEST_F(GrpcSessionTest, TakesTheCallsThatAreUnderWayWhenItGoesAway) {
  ASSERT_TRUE(ReceiveCall(1));
  session_.SubmitShutdownNotice();
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
  ASSERT_EQ(frames_.size(), 2U);
  EXPECT_EQ(frames_[0].payload, BigEndian(0x7fffffff, 4) + BigEndian(NGHTTP2_NO_ERROR, 4));
  const Http2Frame ping = frames_[1];
  EXPECT_EQ(ping.type, NGHTTP2_PING);
  ASSERT_TRUE(ReceiveCall(3));
  ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_PING, kAck, 0, std::string(8, '\0')}));
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 0U) << "of another ping";
  ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_PING, kAck, 0, ping.payload}));
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
  EXPECT_EQ(frames_[0].payload, BigEndian(3, 4) + BigEndian(NGHTTP2_NO_ERROR, 4));
  EXPECT_FALSE(session_.has_ended());
  for (const int32_t id : {1, 3}) {
    EXPECT_EQ(streams_[id]->events, "path /a; fields; ");
    session_.SubmitReset(*streams_[id]);
  }
  EXPECT_EQ(Sent(NGHTTP2_RST_STREAM), 2U);
  EXPECT_TRUE(session_.has_ended());
}

TEST_F(GrpcSessionTest, PingsAndGoesAway) {
  session_.SubmitPing();
  EXPECT_EQ(Sent(NGHTTP2_PING), 1U);
  ASSERT_TRUE(Receive(Http2Frame{NGHTTP2_PING, kAck, 0, frames_.back().payload}));
  EXPECT_FALSE(session_.has_ended());
  session_.SubmitGoAway();
  EXPECT_EQ(Sent(NGHTTP2_GOAWAY), 1U);
  EXPECT_TRUE(session_.has_ended());
  EXPECT_EQ(bad_requests(), 0U);
}

}  // namespace
}  // namespace hps::server
