#include "server/grpc/response_writer.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/bytes.h"

namespace hps::server {
namespace {

using After = ResponseWriter::After;

TEST(ResponseWriterTest, SendsAPrefixAndTheTextAndThenTheStatus) {
  ResponseWriter writer;
  writer.SetText("abc", After::kMore);
  EXPECT_EQ(writer.unsent_bytes(), kMessagePrefixBytes + 3);
  EXPECT_FALSE(writer.ends());
  OutputQueue out;
  writer.TakeUnsent(2, &out);
  writer.TakeUnsent(4, &out);
  EXPECT_EQ(writer.unsent_bytes(), 2U);
  writer.TakeUnsent(2, &out);
  EXPECT_EQ(writer.unsent_bytes(), 0U);
  EXPECT_EQ(out.bytes(), kMessagePrefixBytes + 3);
  EXPECT_EQ(writer.text(), "abc");
  writer.SetStatus(absl::StatusCode::kNotFound, "no model");
  EXPECT_TRUE(writer.ends());
  EXPECT_EQ(writer.end_code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(writer.end_message(), "no model");
}

TEST(ResponseWriterTest, HoldsTheMemoryOfRowsUntilItIsReleased) {
  BufferPool pool({.lent_bytes_max = uint64_t{1} << 20});
  ResponseWriter writer;
  writer.HoldRows(*pool.Acquire(100, BufferPool::Use::kAnswer));
  const std::span<std::byte> piece = writer.rows().first(100);
  writer.SetMessage(std::span(&piece, 1), After::kStatus);
  EXPECT_EQ(writer.unsent_bytes(), kMessagePrefixBytes + 100);
  EXPECT_TRUE(writer.ends());
  EXPECT_GT(pool.lent_bytes(), 0U);
  writer.Release();
  EXPECT_EQ(writer.unsent_bytes(), 0U);
  EXPECT_EQ(pool.lent_bytes(), 0U);
}

TEST(ResponseWriterTest, AStatusDropsWhatIsUnsent) {
  ResponseWriter writer;
  writer.SetText("abc", After::kMore);
  writer.SetStatus(absl::StatusCode::kResourceExhausted, "no memory");
  EXPECT_EQ(writer.unsent_bytes(), 0U);
  EXPECT_TRUE(writer.ends());
  writer.Clear();
  EXPECT_FALSE(writer.ends());
  EXPECT_EQ(writer.end_code(), absl::StatusCode::kOk);
  EXPECT_EQ(writer.end_message(), "");
  EXPECT_EQ(writer.text(), "");
}

}  // namespace
}  // namespace hps::server
