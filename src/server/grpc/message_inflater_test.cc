#include "server/grpc/message_inflater.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "server/grpc/test_packed.h"

namespace hps::server {
namespace {

constexpr size_t kBytesMax = size_t{100} << 10;

absl::StatusOr<std::string> Inflated(MessageCoding coding, const std::string& packed,
                                     size_t bytes_max) {
  BufferPool pool(uint64_t{1} << 20, 0);
  absl::StatusOr<InflatedMessage> message =
      InflateMessage(coding, AsBytes(std::string_view(packed)), bytes_max, pool);
  if (!message.ok()) return message.status();
  return std::string(AsText(message->memory.bytes().first(message->size)));
}

TEST(MessageInflaterTest, InflatesUpToTheBound) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{64} << 10, kBytesMax - 1, kBytesMax}) {
    std::string plain(n, 'x');
    for (size_t i = 0; i < n; i += 7) plain[i] = static_cast<char>(i * 31 >> 3);
    const std::string packed = Packed(plain, 31);
    EXPECT_TRUE(*Inflated(MessageCoding::kGzip, packed, kBytesMax) == plain) << n;
    EXPECT_TRUE(*Inflated(MessageCoding::kDeflate, Packed(plain, 15), kBytesMax) == plain) << n;
    if (n == 0) continue;
    EXPECT_EQ(Inflated(MessageCoding::kGzip, packed, n - 1).status().code(),
              absl::StatusCode::kOutOfRange);
  }
}

TEST(MessageInflaterTest, RefusesWhatDoesNotInflate) {
  const std::string packed = Packed(std::string(1000, 'x'), 31);
  const auto code = [](MessageCoding coding, const std::string& bytes) {
    return Inflated(coding, bytes, 4096).status().code();
  };
  for (size_t n = 0; n < packed.size(); ++n) {
    EXPECT_EQ(code(MessageCoding::kGzip, packed.substr(0, n)), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(code(MessageCoding::kGzip, packed + "x"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MessageCoding::kGzip, packed + packed), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MessageCoding::kDeflate, "garbage"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MessageCoding::kIdentity, packed), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(MessageCoding::kUnknown, packed), absl::StatusCode::kUnimplemented);
}

TEST(MessageInflaterTest, TheHeadOfWhatIsLargeIsItsFirstBytes) {
  BufferPool pool(uint64_t{1} << 20, 0);
  const std::string plain = "begins" + std::string(1 << 20, 'x');
  const std::string packed = Packed(plain, 31);
  const auto head = [&pool](MessageCoding coding, const std::string& bytes, size_t bytes_max) {
    const auto inflated = InflateHead(coding, AsBytes(std::string_view(bytes)), bytes_max, pool);
    if (!inflated.ok()) return std::string(inflated.status().message());
    return std::string(AsText(inflated->memory.bytes().first(inflated->size)));
  };
  for (const size_t n : {1, 6, 4096})
    EXPECT_EQ(head(MessageCoding::kGzip, packed, n), plain.substr(0, n));
  EXPECT_EQ(head(MessageCoding::kDeflate, Packed("few", 15), 4096), "few");
  EXPECT_EQ(head(MessageCoding::kGzip, packed.substr(0, 200), 6), "begins") << "cut off";
  EXPECT_EQ(head(MessageCoding::kGzip, "garbage", 4096), "the message does not inflate");
  EXPECT_EQ(head(MessageCoding::kGzip, "", 4096), "");
}

TEST(MessageInflaterTest, SaysWhenThereIsNoMemory) {
  BufferPool none(0, 0);
  const std::string packed = Packed("plain", 31);
  EXPECT_EQ(InflateMessage(MessageCoding::kGzip, AsBytes(std::string_view(packed)), 4096, none)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hps::server
