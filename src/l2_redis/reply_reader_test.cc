#include "l2_redis/reply_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

// A reply as text; the bytes arrive in pieces.
std::string Read(const std::string& bytes, size_t piece_bytes) {
  ReplyReader reader;
  ReplyTreeSink sink;
  for (size_t at = 0; at < bytes.size(); at += piece_bytes) {
    const absl::Status status = reader.Feed(std::string_view(bytes).substr(at, piece_bytes), sink);
    if (!status.ok()) return "error";
  }
  std::string text;
  const auto print = [&text](const Reply& reply, const auto& self) -> void {
    if (reply.is_array) {
      text += "[";
      for (const Reply& element : reply.elements) self(element, self);
      text += "]";
    } else if (reply.type == ReplyType::kInteger) {
      absl::StrAppend(&text, reply.integer, ";");
    } else if (reply.type == ReplyType::kNil) {
      text += "nil;";
    } else {
      absl::StrAppend(&text, reply.is_error() ? "!" : "", reply.text, ";");
    }
  };
  for (const Reply& reply : sink.replies()) print(reply, print);
  return text;
}

TEST(ReplyReaderTest, ReadsEveryTypeInPiecesOfAnySize) {
  const std::string bytes =
      "+OK\r\n-ERR no\r\n:42\r\n$5\r\na\r\nb\n\r\n$-1\r\n*0\r\n*-1\r\n"
      "*2\r\n*2\r\n:1\r\n$1\r\nx\r\n*1\r\n$-1\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece)
    EXPECT_EQ(Read(bytes, piece), "OK;!ERR no;42;a\r\nb\n;nil;[]nil;[[1;x;][nil;]]") << piece;
}

// hiredis' own objects reserve 7.6 GiB for the first of these.
TEST(ReplyReaderTest, ALengthReservesNothing) {
  EXPECT_EQ(Read("*1000000000\r\n", 64), "error");
  EXPECT_EQ(Read("*500000\r\n", 64), "");
  EXPECT_EQ(Read("$1000000000\r\n", 64), "");
  const std::string many(ReplyReader::kPendingBytesMax + 1, 'x');
  EXPECT_EQ(Read("$1000000000\r\n" + many, size_t{64} << 10), "error");
}

TEST(ReplyReaderTest, RefusesWhatIsNoReply) {
  for (const char* bytes : {"HTTP/1.1 400 Bad Request\r\n", "\r\n\r\n", "*x\r\n", "$-2\r\nx\r\n",
                            "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"}) {
    EXPECT_EQ(Read(bytes, 64), "error") << bytes;
  }
}

}  // namespace
}  // namespace hps
