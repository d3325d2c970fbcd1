#include "server/grpc/http2_output.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/grpc/test_http2_stream.h"

namespace hps::server {
namespace {

using std::chrono::seconds;

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr Duration kTimeout = seconds(4);

class Http2OutputTest : public testing::Test {
 protected:
  // Adds a message of the stream as one frame with the head "head".
  void Add(RecordedStream& stream, size_t text_bytes) {
    stream.response.SetText(std::string(text_bytes, 'x'), ResponseWriter::After::kMore);
    output().AddData(stream, AsBytes(std::string_view("head")), stream.response.unsent_bytes());
  }
  std::vector<int32_t> TakeFlushed() {
    std::vector<int32_t> ids;
    output().TakeFlushed([&ids](Http2Stream& stream) { ids.push_back(stream.id); });
    return ids;
  }
  IoState Write(TimePoint now = kNow) { return output().Write(pair_.transport, now, kTimeout); }
  Http2Output& output() { return pair_.output; }

  OutputPair pair_;
};

TEST_F(Http2OutputTest, ReportsAStreamWhenItsLastByteIsSent) {
  RecordedStream small(1);
  RecordedStream large(3);
  Add(small, 10);
  Add(large, size_t{8} << 20);
  EXPECT_TRUE(output().is_full());
  EXPECT_TRUE(small.is_in_output());
  EXPECT_EQ(TakeFlushed(), std::vector<int32_t>{});
  ASSERT_EQ(Write(), IoState::kBlocked);
  EXPECT_EQ(TakeFlushed(), std::vector<int32_t>{1});
  EXPECT_FALSE(small.is_in_output());
  EXPECT_TRUE(large.is_in_output());
  std::string received = pair_.Read();
  while (Write() == IoState::kBlocked) received += pair_.Read();
  received += pair_.Read();
  EXPECT_EQ(TakeFlushed(), std::vector<int32_t>{3});
  EXPECT_TRUE(output().is_empty());
  EXPECT_EQ(received.size(), 2 * (4 + kMessagePrefixBytes) + 10 + (size_t{8} << 20));
  EXPECT_EQ(received.substr(0, 4), "head");
}

TEST_F(Http2OutputTest, ABlockIsLateUnlessTheClientTakesAllOfIt) {
  RecordedStream stream;
  EXPECT_EQ(output().deadline(), kNoDeadline);
  Add(stream, size_t{8} << 20);
  ASSERT_EQ(Write(), IoState::kBlocked);
  EXPECT_EQ(output().deadline(), kNow + kTimeout);
  // A part of it does not extend the deadline.
  EXPECT_FALSE(pair_.Read(1 << 20).empty());
  ASSERT_EQ(Write(kNow + seconds(3)), IoState::kBlocked);
  EXPECT_EQ(output().deadline(), kNow + kTimeout);
  EXPECT_FALSE(output().IsLate(kNow + seconds(3), 0));
  EXPECT_TRUE(output().IsLate(kNow + kTimeout, 0));
  // All of it ends the block.
  while (Write(kNow + kTimeout) == IoState::kBlocked) pair_.Read();
  EXPECT_EQ(output().deadline(), kNoDeadline);
  EXPECT_FALSE(output().IsLate(kNow + seconds(9), 0));
}

TEST_F(Http2OutputTest, ASlowClientThatIsAliveHasMoreTime) {
  RecordedStream stream;
  Add(stream, size_t{8} << 20);
  ASSERT_EQ(Write(), IoState::kBlocked);
  EXPECT_FALSE(output().IsLate(kNow + kTimeout, uint64_t{1} << 30));
  EXPECT_GT(output().deadline(), kNow + kTimeout);
}

TEST_F(Http2OutputTest, ClearForgetsTheStreamsAndTheBlock) {
  RecordedStream stream;
  Add(stream, size_t{8} << 20);
  ASSERT_EQ(Write(), IoState::kBlocked);
  output().Clear();
  EXPECT_TRUE(output().is_empty());
  EXPECT_FALSE(stream.is_in_output());
  EXPECT_EQ(output().deadline(), kNoDeadline);
  EXPECT_EQ(TakeFlushed(), std::vector<int32_t>{});
}

}  // namespace
}  // namespace hps::server
