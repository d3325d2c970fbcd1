#include "server/grpc/request_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "server/net/test_packed.h"

namespace hps::server {
namespace {

using Step = RequestReader::Step;

constexpr uint64_t kMessageBytesMax = 1 << 20;

std::string Framed(const std::string& message, bool is_compressed = false) {
  std::string bytes(1, static_cast<char>(is_compressed));
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes += static_cast<char>(message.size() >> static_cast<unsigned>(shift));
  return bytes + message;
}

class RequestReaderTest : public testing::Test {
 protected:
  void Add(const std::string& bytes) {
    ASSERT_TRUE(reader_.Add(AsBytes(std::string_view(bytes))).ok());
  }
  absl::StatusOr<Step> Next(bool is_stream) { return reader_.Next(kMessageBytesMax, is_stream); }

  BufferPool pool_{{.lent_bytes_max = uint64_t{8} << 20}};
  RequestReader reader_{pool_};
};

TEST_F(RequestReaderTest, GivesTheOnlyMessageWhenTheClientHasSentAll) {
  EXPECT_EQ(*Next(/*is_stream=*/false), Step::kNeedsMore);
  Add(Framed("abc"));
  EXPECT_EQ(*Next(/*is_stream=*/false), Step::kNeedsMore);
  reader_.SetEnded();
  ASSERT_EQ(*Next(/*is_stream=*/false), Step::kMessage);
  ASSERT_TRUE(reader_.Unpack(Coding::kIdentity, kMessageBytesMax).ok());
  EXPECT_EQ(AsText(reader_.message()), "abc");
}

TEST_F(RequestReaderTest, GivesTheMessagesOfAStreamInOrderAndThenItsEnd) {
  Add(Framed("abc") + Framed("de"));
  reader_.SetEnded();
  for (const char* const expected : {"abc", "de"}) {
    ASSERT_EQ(*Next(/*is_stream=*/true), Step::kMessage);
    ASSERT_TRUE(reader_.Unpack(Coding::kIdentity, kMessageBytesMax).ok());
    EXPECT_EQ(AsText(reader_.message()), expected);
    reader_.ReleaseMessage();
  }
  EXPECT_EQ(*Next(/*is_stream=*/true), Step::kEnd);
}

TEST_F(RequestReaderTest, RefusesAWrongNumberOfMessagesAndAnIncompleteOne) {
  Add(Framed("a") + Framed("b"));
  EXPECT_EQ(Next(/*is_stream=*/false).status().code(), absl::StatusCode::kUnimplemented);
  reader_.Clear();
  reader_.SetEnded();
  EXPECT_EQ(Next(/*is_stream=*/false).status().code(), absl::StatusCode::kUnimplemented);
  Add(Framed("abc").substr(0, 7));
  EXPECT_EQ(Next(/*is_stream=*/true).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RequestReaderTest, InflatesAMessageAndItsHead) {
  const std::string plain(100'000, 'x');
  Add(Framed(Packed(plain, 31), /*is_compressed=*/true));
  reader_.SetEnded();
  ASSERT_EQ(*Next(/*is_stream=*/false), Step::kMessage);
  const absl::StatusOr<std::span<const std::byte>> head = reader_.Head(Coding::kGzip);
  ASSERT_TRUE(head.ok());
  EXPECT_GT(head->size(), 0U);
  EXPECT_LT(head->size(), plain.size());
  ASSERT_TRUE(reader_.Unpack(Coding::kGzip, kMessageBytesMax).ok());
  EXPECT_TRUE(AsText(reader_.message()) == plain);
  EXPECT_GT(reader_.held_bytes(), 0U);
  reader_.ReleaseMessage();
  EXPECT_EQ(reader_.held_bytes(), 0U);
  EXPECT_EQ(pool_.lent_bytes(), 0U);
}

TEST_F(RequestReaderTest, RefusesACodingThatItDoesNotKnow) {
  Add(Framed("abc", /*is_compressed=*/true));
  reader_.SetEnded();
  ASSERT_EQ(*Next(/*is_stream=*/false), Step::kMessage);
  EXPECT_EQ(reader_.Unpack(Coding::kUnknown, kMessageBytesMax).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(reader_.Head(Coding::kUnknown).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(reader_.Unpack(Coding::kIdentity, kMessageBytesMax).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps::server
