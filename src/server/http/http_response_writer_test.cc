#include "server/http/http_response_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <regex>
#include <string>

#include "base/bytes.h"
#include "server/http/test_http_world.h"

namespace hps::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpResponseWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    transport_.Open(ends[0], nullptr);
    client_.Open(ends[1], nullptr);
  }
  std::string Received() {
    std::string all;
    std::array<std::byte, 4096> piece;
    for (;;) {
      const IoResult result = client_.Read(piece);
      if (result.bytes == 0) return all;
      all.append(AsText(std::span(piece).first(result.bytes)));
    }
  }
  // Without the date, which differs.
  std::string Written(const HttpResponseHead& head) {
    writer_.Begin(head);
    EXPECT_EQ(writer_.Write(transport_), IoState::kDone);
    writer_.Clear();
    const std::string text = Received();
    static const std::regex kDate(
        "Date: [MTWFS][a-z]{2}, [0-9]{2} [JFMASOND][a-z]{2} [0-9]{4} [0-9:]{8} GMT\r\n");
    const std::string rest = std::regex_replace(text, kDate, "");
    EXPECT_EQ(text.size(), rest.size() + sizeof("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n") - 1);
    return rest;
  }

  FakeInference inference_;
  BufferPool pool_{{.lent_bytes_max = uint64_t{8} << 20}};
  HttpResponseWriter writer_{pool_, inference_};
  Transport transport_;
  Transport client_;
};

TEST_F(HttpResponseWriterTest, WritesFieldsAndPieces) {
  writer_.text() = "{}";
  writer_.AddPiece(AsBytes(std::string_view(writer_.text())));
  writer_.AddPiece({});
  writer_.AddPiece(AsBytes(std::string_view("rows")));
  EXPECT_EQ(
      Written({.content_type = "a/b", .policy_fields = "W: z\r\n", .extra_fields = "X: y\r\n"}),
      "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 6\r\nVary: Accept-Encoding\r\n"
      "W: z\r\nX: y\r\n\r\n{}rows");
  EXPECT_EQ(Written({.code = 404, .content_type = "a/b", .is_1_0 = true}),
            "HTTP/1.1 404 Not Found\r\nContent-Type: a/b\r\nContent-Length: 0\r\n"
            "Vary: Accept-Encoding\r\nConnection: keep-alive\r\n\r\n")
      << "nothing of the last response is left";
  writer_.AddPage({.content_type = "a/b", .fixed = {}, .made = "answer"});
  EXPECT_THAT(Written({.content_type = "a/b", .has_body = false, .close = true}),
              EndsWith("Content-Length: 6\r\nVary: Accept-Encoding\r\nConnection: close\r\n\r\n"));
}

TEST_F(HttpResponseWriterTest, PacksWhatGetsSmallerAndGivesAllBack) {
  writer_.text() = std::string(100'000, 'x');
  writer_.AddPiece(AsBytes(std::string_view(writer_.text())));
  const std::string packed = Written({.content_type = "a/b", .accepted_coding = Coding::kGzip});
  EXPECT_THAT(packed, HasSubstr("Vary: Accept-Encoding\r\nContent-Encoding: gzip\r\n"));
  EXPECT_LT(packed.size(), 2000u);
  EXPECT_EQ(pool_.lent_bytes(), 0u);
  EXPECT_EQ(inference_.admission.bytes_in_flight(), 0u);

  writer_.AddPiece(AsBytes(std::string_view("short")));
  EXPECT_THAT(Written({.content_type = "a/b", .accepted_coding = Coding::kGzip}),
              Not(HasSubstr("Content-Encoding")));
}

TEST_F(HttpResponseWriterTest, PacksEverythingForAClientThatRefusesIdentity) {
  std::string noise(100'000, ' ');
  std::mt19937_64 random(3);
  for (char& c : noise) c = static_cast<char>(random());
  for (const std::string& body : {std::string("{}"), std::string("short"), noise}) {
    writer_.AddPiece(AsBytes(std::string_view(body)));
    const std::string packed = Written(
        {.content_type = "a/b", .accepted_coding = Coding::kGzip, .refuses_identity = true});
    EXPECT_THAT(packed, HasSubstr("Content-Encoding: gzip\r\n"));
    const auto unpacked = Inflate(
        Coding::kGzip, AsBytes(std::string_view(packed).substr(packed.find("\r\n\r\n") + 4)),
        body.size(), GzipMembers::kOne, pool_);
    ASSERT_TRUE(unpacked.ok()) << unpacked.status();
    EXPECT_EQ(AsText(unpacked->bytes()), body);
  }
}

TEST_F(HttpResponseWriterTest, GoesOnWhereTheSocketWasFull) {
  const std::string body(4 << 20, 'z');
  writer_.AddPiece(AsBytes(std::string_view(body)));
  writer_.Begin({.content_type = "a/b"});
  std::string all;
  IoState state = IoState::kBlocked;
  while (state == IoState::kBlocked) {
    state = writer_.Write(transport_);
    all += Received();
  }
  EXPECT_EQ(state, IoState::kDone);
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(all.ends_with("\r\n\r\n" + body));
}

}  // namespace
}  // namespace hps::server
