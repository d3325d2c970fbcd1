#include "bench/serve/serve_http_head.h"

#include <gtest/gtest.h>

namespace hps::bench {
namespace {

TEST(HttpAnswerHeadTest, ReadsCodeLengthAndWhetherItCloses) {
  const auto head = ParseHttpAnswerHead(
      "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nCONTENT-LENGTH:   17\r\n\r\n");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->code, 429);
  EXPECT_EQ(head->body_bytes, 17u);
  EXPECT_FALSE(head->closes);
  const auto last =
      ParseHttpAnswerHead("HTTP/1.1 503 Gone\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->closes);
}

TEST(HttpAnswerHeadTest, RefusesWhatIsNoAnswer) {
  for (const char* malformed :
       {"", "\r\n\r\n", "HTTP/1.1 ", "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
        "SPDY/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 4194305\r\n\r\n"}) {
    EXPECT_EQ(ParseHttpAnswerHead(malformed).status().code(), absl::StatusCode::kInternal)
        << malformed;
  }
}

}  // namespace
}  // namespace hps::bench
