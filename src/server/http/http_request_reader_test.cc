#include "server/http/http_request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace hps::server {
namespace {

using Step = HttpRequestReader::Step;

class HttpRequestReaderTest : public testing::Test {
 protected:
  static constexpr uint64_t kBodyBytesMax = 1 << 20;

  // Gives the reader at most `step` bytes of `text_` at a time, until it says something else than
  // that it needs more. Continues behind a head by itself.
  HttpRequestReader::Parsed ReadOn(size_t step) {
    for (;;) {
      if (reader_.has_input()) {
        HttpRequestReader::Parsed parsed = reader_.Parse();
        if (parsed.step == Step::kAgain) continue;
        if (parsed.step == Step::kHead) {
          EXPECT_TRUE(reader_.BeginBody(kBodyBytesMax).ok());
          continue;
        }
        if (parsed.step != Step::kNeedsMore) return parsed;
      }
      if (text_.empty()) return {};
      const auto room = reader_.Room();
      if (!room.ok()) return {.step = Step::kNoRoom, .no_room = room.status()};
      EXPECT_FALSE(room->empty());
      const size_t size = std::min({step, room->size(), text_.size()});
      std::memcpy(room->data(), text_.data(), size);
      reader_.Received(size);
      text_.erase(0, size);
    }
  }
  std::string Body() const { return {reader_.Body().data(), reader_.Body().size()}; }

  BufferPool pool_{{.lent_bytes_max = uint64_t{8} << 20}};
  HttpRequestReader reader_{pool_};
  std::string text_;
};

TEST_F(HttpRequestReaderTest, ReadsRequestsInAnyPieces) {
  const std::vector<std::string> bodies = {"", "abc", std::string(31 << 10, 'x'),
                                           std::string(600 << 10, 'y')};
  for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}, size_t{1} << 20}) {
    for (const std::string& body : bodies) {
      if (step == 1 && body.size() > 4096) continue;
      text_ += "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body + "\r\n";  // some clients send one line too many
    }
    for (const std::string& body : bodies) {
      if (step == 1 && body.size() > 4096) continue;
      reader_.BeginRequest();
      ASSERT_EQ(ReadOn(step).step, Step::kComplete);
      EXPECT_EQ(reader_.head().path, "/a");
      EXPECT_TRUE(Body() == body) << body.size();
      reader_.ReleaseBody();
    }
    reader_.BeginRequest();
    EXPECT_EQ(ReadOn(step).step, Step::kNeedsMore);
    EXPECT_FALSE(reader_.has_input());
  }
  reader_.ReleaseInput();
  EXPECT_EQ(pool_.lent_bytes(), 0u);
}

TEST_F(HttpRequestReaderTest, ReadsChunksAndKeepsWhatFollows) {
  for (const size_t step : {1, 5, 10'000}) {
    text_ =
        "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n2800\r\n" +
        std::string(0x2800, 'z') +
        "\r\n0\r\n\r\n"
        "GET /next HTTP/1.1\r\nHost: x\r\n\r\n";
    reader_.BeginRequest();
    ASSERT_EQ(ReadOn(step).step, Step::kComplete);
    EXPECT_TRUE(Body() == "abc" + std::string(0x2800, 'z'));
    reader_.ReleaseBody();
    reader_.BeginRequest();
    ASSERT_EQ(ReadOn(step).step, Step::kComplete);
    EXPECT_EQ(reader_.head().path, "/next");
    EXPECT_FALSE(reader_.has_more());
    reader_.ReleaseInput();
  }
}

TEST_F(HttpRequestReaderTest, SaysWhatTheHeadTellsOfTheBody) {
  text_ = "POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n12345";
  reader_.BeginRequest();
  std::memcpy(reader_.Room()->data(), text_.data(), text_.size());
  reader_.Received(text_.size());
  ASSERT_EQ(reader_.Parse().step, Step::kHead);
  EXPECT_EQ(reader_.early_body_bytes(), 5u);
  EXPECT_FALSE(reader_.has_whole_body());
  EXPECT_FALSE(reader_.body_fits());
  ASSERT_TRUE(reader_.BeginBody(kBodyBytesMax).ok());
  EXPECT_FALSE(reader_.is_in_head());
}

TEST_F(HttpRequestReaderTest, RefusesAndSaysWhy) {
  text_ = "GET / HTTP/1.1\nHost: x\n\n";
  reader_.BeginRequest();
  HttpRequestReader::Parsed parsed = ReadOn(100);
  EXPECT_EQ(parsed.step, Step::kRefused);
  EXPECT_EQ(parsed.error.code, 400);
  reader_.ReleaseInput();

  text_ = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n";
  reader_.BeginRequest();
  parsed = ReadOn(100);
  EXPECT_EQ(parsed.step, Step::kRefused);
  EXPECT_EQ(parsed.error.code, 413);
}

TEST_F(HttpRequestReaderTest, APoolWithoutRoomIsSaid) {
  BufferPool small({.lent_bytes_max = 40 << 10});
  HttpRequestReader reader(small);
  const auto held = small.Acquire(32 << 10, BufferPool::Use::kRequest);
  ASSERT_TRUE(held.ok());
  reader.BeginRequest();
  EXPECT_EQ(reader.Room().status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hps::server
