#include "server/http/request_head.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hps::server {
namespace {

// The code that a head is refused with, or 0.
int CodeOf(const std::string& text, RequestHead* head) {
  static std::string copy;  // what `head` has views of
  copy = text;
  HttpError error;
  error.code = 0;
  HeadEnd end;
  const std::optional<size_t> bytes = end.Find(copy, &error);
  if (!bytes) return error.code == 0 ? -1 : error.code;
  RequestParser parser;
  return parser.ParseHead(std::span(copy).first(*bytes), head, &error) ? 0 : error.code;
}

int CodeOf(const std::string& text) {
  RequestHead head;
  return CodeOf(text, &head);
}

std::string With(std::string_view fields) {
  return absl::StrCat("POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n", std::string(fields),
                      "\r\n");
}

TEST(RequestHeadTest, ReadsWhatTheServerNeeds) {
  const std::string text =
      "POST /v2/models/m/infer?a=b&c HTTP/1.1\r\nhost: x\r\nCONTENT-LENGTH: 12\r\n"
      "Content-Encoding: gzip\r\nAccept-Encoding: br, deflate;q=0.5, gzip\r\n"
      "Inference-Header-Content-Length: 7\r\nauthorization:  Bearer abc \r\n"
      "Expect: 100-continue\r\n\r\n";
  RequestHead head;
  ASSERT_EQ(CodeOf(text, &head), 0);
  EXPECT_EQ(head.method, Method::kPost);
  EXPECT_EQ(head.path, "/v2/models/m/infer");
  EXPECT_EQ(head.query, "a=b&c");
  EXPECT_TRUE(head.keep_alive);
  EXPECT_EQ(head.expectation, Expectation::kContinue);
  EXPECT_FALSE(head.chunked);
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_EQ(head.content_coding, Coding::kGzip);
  EXPECT_EQ(head.accepted_coding, Coding::kGzip);
  EXPECT_EQ(head.host, "x");
  EXPECT_EQ(head.json_bytes, 7u);
  EXPECT_EQ(head.authorization, "Bearer abc");
}

TEST(RequestHeadTest, KeepsAliveAsTheVersionSays) {
  RequestHead head;
  EXPECT_EQ(CodeOf("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &head), 0);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_EQ(CodeOf("GET / HTTP/1.0\r\n\r\n", &head), 0);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_TRUE(head.is_1_0);
  EXPECT_EQ(CodeOf("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &head), 0);
  EXPECT_TRUE(head.keep_alive);
}

TEST(RequestHeadTest, TakesTargetsInAbsoluteForm) {
  RequestHead head;
  const std::string text = "GET http://x:80/v2/health/live?q HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(CodeOf(text, &head), 0);
  EXPECT_EQ(head.path, "/v2/health/live");
  EXPECT_EQ(head.query, "q");
  EXPECT_EQ(CodeOf("GET HTTPS://other:8 HTTP/1.1\r\nHost: x\r\n\r\n", &head), 0);
  EXPECT_EQ(head.path, "/");
  EXPECT_EQ(head.host, "other") << "the target's host counts, not the field";
  EXPECT_EQ(CodeOf("GET hTTp://x?q=http://y/ HTTP/1.1\r\nHost: x\r\n\r\n", &head), 0);
  EXPECT_EQ(head.path, "/");
  EXPECT_EQ(head.query, "q=http://y/");
  for (const char* target : {"http:///v2", "http://:80/v2", "http://u@x/v2", "http://x:99999/v2",
                             "HTTP://a,b/v2", "https://[::1/v2"}) {
    EXPECT_EQ(CodeOf(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: x\r\n\r\n")), 400) << target;
  }
}

TEST(RequestHeadTest, ReadsTheHost) {
  RequestHead head;
  EXPECT_EQ(CodeOf("GET / HTTP/1.1\r\nHost: Name.example.:8000\r\n\r\n", &head), 0);
  EXPECT_EQ(head.host, "Name.example");
  EXPECT_EQ(CodeOf("GET / HTTP/1.1\r\nHost:\r\n\r\n", &head), 0);
  EXPECT_EQ(head.host, "");
  EXPECT_EQ(CodeOf("GET / HTTP/1.0\r\n\r\n", &head), 0);
  EXPECT_EQ(head.host, "");
  for (const char* host : {"a b", "a/b", "a,b", "u@h", "[::1", "x:65536", "\x80"}) {
    for (const char* target : {"/", "http://x/"}) {
      EXPECT_EQ(CodeOf(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n")), 400)
          << host;
    }
  }
}

TEST(RequestHeadTest, DecodesThePathOnce) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/v2/models/dlr%6d/%72eady", "/v2/models/dlrm/ready"},
      {"/%7e%7E%20%C3%A9", "/~~ \xc3\xa9"},
      {"/a%2Fb%2fc/d", "/a%2Fb%2fc/d"},  // no more segments than before
      {"/%252F%2541", "/%2F%41"},
      {"/%2e%2e/x", "/../x"},
      {"http://x/%61", "/a"}};
  for (const auto& [target, path] : cases) {
    RequestHead head;
    EXPECT_EQ(CodeOf("GET " + target + "?q=%41%zz HTTP/1.1\r\nHost: x\r\n\r\n", &head), 0)
        << target;
    EXPECT_EQ(head.path, path);
    EXPECT_EQ(head.query, "q=%41%zz") << "a query is decoded by the page that reads it";
  }
  for (const char* path : {"/%", "/a%4", "/%4", "/%zz", "/%-1", "/%+1", "/%0x", "/%00", "/a%0a",
                           "/%09", "/%1F", "/%7f", "/%?41"}) {
    EXPECT_EQ(CodeOf(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n")), 400) << path;
  }
}

TEST(RequestHeadTest, KnowsTheMethodsOfHttp) {
  const std::vector<std::pair<std::string, Method>> cases = {
      {"GET", Method::kGet},         {"HEAD", Method::kHead},    {"POST", Method::kPost},
      {"PUT", Method::kOther},       {"DELETE", Method::kOther}, {"CONNECT", Method::kOther},
      {"OPTIONS", Method::kOther},   {"TRACE", Method::kOther},  {"PATCH", Method::kOther},
      {"BREW", Method::kUnknown},    {"get", Method::kUnknown},  {"GETS", Method::kUnknown},
      {"M-SEARCH", Method::kUnknown}};
  for (const auto& [name, method] : cases) {
    RequestHead head;
    EXPECT_EQ(CodeOf(name + " / HTTP/1.1\r\nHost: x\r\n\r\n", &head), 0) << name;
    EXPECT_EQ(head.method, method) << name;
  }
}

// A recipient takes a higher minor version as the highest that it knows (RFC 9110 2.5).
TEST(RequestHeadTest, TakesEveryMinorVersion) {
  RequestHead head;
  for (const char* version : {"HTTP/1.1", "HTTP/1.2", "HTTP/1.9"}) {
    EXPECT_EQ(CodeOf(absl::StrCat("GET / ", version, "\r\nHost: x\r\n\r\n"), &head), 0) << version;
    EXPECT_TRUE(head.keep_alive);
    EXPECT_FALSE(head.is_1_0);
    EXPECT_EQ(CodeOf(absl::StrCat("GET / ", version, "\r\n\r\n")), 400) << "no Host";
  }
  for (const char* version : {"HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "HTTP/9.9"})
    EXPECT_EQ(CodeOf(absl::StrCat("GET / ", version, "\r\nHost: x\r\n\r\n")), 505) << version;
}

// The coding of the highest weight; gzip before deflate; identity last, if it is not named.
TEST(RequestHeadTest, ChoosesTheCodingThatTheClientPrefers) {
  struct Case {
    const char* values;  // of the fields, one a line
    Coding coding;
    bool refuses_identity = false;
  };
  for (const Case& each : std::vector<Case>{{"gzip", Coding::kGzip},
                                            {"GZip", Coding::kGzip},
                                            {"x-gzip", Coding::kGzip},
                                            {"deflate, gzip", Coding::kGzip},
                                            {"deflate;q=0.5, gzip;q=1.0", Coding::kGzip},
                                            {"gzip;q=0.5 , deflate ; q=0.8", Coding::kDeflate},
                                            {"gzip;q=0.001", Coding::kGzip},
                                            {"gzip;q=0", Coding::kIdentity},
                                            {"gzip;Q=0.000", Coding::kIdentity},
                                            {"gzip;q=0, deflate", Coding::kDeflate},
                                            {"gzip;q=2", Coding::kIdentity},
                                            {"gzip;q=", Coding::kIdentity},
                                            {"gzip;q=-1", Coding::kIdentity},
                                            {"gzip;q=nan", Coding::kIdentity},
                                            {"identity;q=1, gzip;q=0.5", Coding::kIdentity},
                                            {"identity, gzip", Coding::kGzip},
                                            {"identity;q=0.5, gzip;q=0.7", Coding::kGzip},
                                            {"br", Coding::kIdentity},
                                            {"br, gzip;q=0.1", Coding::kGzip},
                                            {"", Coding::kIdentity},
                                            {",, ,", Coding::kIdentity},
                                            {"gzip;q=0.5,,", Coding::kGzip},
                                            {"*", Coding::kGzip},
                                            {"*;q=0", Coding::kIdentity, true},
                                            {"*;q=0, gzip", Coding::kGzip, true},
                                            {"gzip;q=0, *", Coding::kDeflate},
                                            {"*;q=0.5, gzip;q=0.1", Coding::kDeflate},
                                            {"identity;q=0", Coding::kIdentity, true},
                                            {"identity;q=0, deflate", Coding::kDeflate, true},
                                            {"gzip\nbr", Coding::kGzip},
                                            {"br\ngzip;q=0.2\nDEFLATE;q=0.1", Coding::kGzip},
                                            {"gzip\ngzip;q=0", Coding::kIdentity}}) {
    std::string fields = "Accept-Encoding: ";
    for (const char c : std::string_view(each.values))
      c == '\n' ? fields.append("\r\naccept-encoding: ") : fields.append(1, c);
    RequestHead head;
    EXPECT_EQ(CodeOf(With(fields + "\r\n"), &head), 0) << each.values;
    EXPECT_EQ(head.accepted_coding, each.coding) << each.values;
    EXPECT_EQ(head.refuses_identity, each.refuses_identity) << each.values;
  }
}

TEST(RequestHeadTest, TwoContentCodingsAreNotKnown) {
  RequestHead head;
  const char* const twice = "Content-Encoding: gzip\r\nContent-Encoding: identity\r\n";
  EXPECT_EQ(CodeOf(With(twice), &head), 0);
  EXPECT_EQ(head.content_coding, Coding::kUnknown);
  EXPECT_EQ(CodeOf(With("Content-Encoding: br\r\n"), &head), 0);
  EXPECT_EQ(head.content_coding, Coding::kUnknown);
}

TEST(RequestHeadTest, RefusesWhatTwoParsersCouldReadDifferently) {
  for (const char* fields :
       {"Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: 1 1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Host : y\r\n",
        "Content-Length : 1\r\n",
        " folded: 1\r\n",
        "a: b\r\n c\r\n",
        "a: b\r\n\tc\r\n",
        "Host: y\r\n",
        "a\r\n",
        ": b\r\n",
        "a b: c\r\n",
        "a: b\x01\r\n",
        "a: b\nc: d\r\n",
        "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        "Inference-Header-Content-Length: x\r\n",
        "Inference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 1\r\n"}) {
    EXPECT_EQ(CodeOf(With(fields)), 400) << fields;
  }
  EXPECT_EQ(CodeOf(With("Transfer-Encoding: gzip, chunked\r\n")), 501);
  EXPECT_EQ(CodeOf(With("Transfer-Encoding: chunked, gzip\r\n")), 501);
  EXPECT_EQ(CodeOf(With("Transfer-Encoding: identity\r\n")), 501);
  EXPECT_EQ(CodeOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

TEST(RequestHeadTest, RefusesWhatIsNotHttp) {
  for (const char* text :
       {"GET / HTTP/1.1\nHost: x\n\n", "\n", "GET  / HTTP/1.1\r\n\r\n", "GET /\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", " GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"}) {
    EXPECT_EQ(CodeOf(text), 400) << text;
  }
  for (const char* line :
       {"GET / HTTX/1.1", "GET / http/1.1", "GET / HTTP/1.1 ", "GET / HTTP/1.10", "GET / HTTP/01.1",
        "GET / HTTP/1", "GET / HTTP/1,1", "GET / HTTP/a.1", "GET / HTTP/2.", "GET /a b HTTP/1.1",
        "GET /\tb HTTP/1.1", "GET HTTP/1.1", "GET  HTTP/1.1", "GET", "GET ", "/ HTTP/1.1",
        "GET\t/ HTTP/1.1", "G(T / HTTP/1.1", "GET /\x7f HTTP/1.1"}) {
    EXPECT_EQ(CodeOf(absl::StrCat(line, "\r\nHost: x\r\n\r\n")), 400) << line;
  }
}

TEST(RequestHeadTest, BoundsTheHead) {
  EXPECT_EQ(CodeOf(With("a: " + std::string(15'000, 'b') + "\r\n")), 0);
  EXPECT_EQ(CodeOf(With("a: " + std::string(17'000, 'b') + "\r\n")), 431);
  EXPECT_EQ(CodeOf(std::string(20'000, 'a')), 431);
}

TEST(RequestHeadTest, BoundsTheTarget) {
  const auto code_of = [](const std::string& target) {
    return CodeOf("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
  };
  EXPECT_EQ(code_of("/" + std::string(kTargetBytesMax - 1, 'a')), 0);
  EXPECT_EQ(code_of("/?" + std::string(kTargetBytesMax - 2, 'q')), 0);
  EXPECT_EQ(code_of("/" + std::string(kTargetBytesMax, 'a')), 414);
  EXPECT_EQ(code_of("/?" + std::string(kTargetBytesMax, 'q')), 414);
  EXPECT_EQ(code_of("/" + std::string(kHeadBytesMax, 'a')), 414);
  EXPECT_EQ(CodeOf("GET /" + std::string(kHeadBytesMax, 'a')), 414) << "its end has not come";
}

TEST(RequestHeadTest, FindsTheEndPieceByPiece) {
  const std::string text = With("a: b\r\nc: d\r\n") + "body";
  HeadEnd end;
  HttpError error;
  error.code = 0;
  for (size_t size = 0; size < text.size() - 4; ++size) {
    ASSERT_FALSE(end.Find(std::string_view(text).substr(0, size), &error)) << size;
    ASSERT_EQ(error.code, 0) << error.message;
  }
  EXPECT_EQ(end.Find(text, &error), text.size() - 4);
}

struct Chunked {
  int code = 0;
  std::string body;
  size_t consumed = 0;
};

// Feeds the chunks in pieces of `step` bytes, as a connection does.
Chunked ReadChunks(const std::string& text, size_t step, uint64_t bytes_max = 1 << 20) {
  RequestParser parser;
  RequestHead head;
  HttpError error;
  Chunked result;
  std::string with_chunks = With("Transfer-Encoding: chunked\r\n");
  EXPECT_TRUE(parser.ParseHead(with_chunks, &head, &error));
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    at += std::min(step, text.size() - at);
    for (;;) {
      RequestParser::ChunkStep chunk;
      const std::string_view pending = std::string_view(text).substr(begin, at - begin);
      if (!parser.ParseChunk(pending, bytes_max, &chunk, &error)) {
        result.code = error.code;
        return result;
      }
      result.body += chunk.data;
      result.consumed += chunk.consumed;
      begin += chunk.consumed;
      if (chunk.finished) return result;
      if (chunk.needs_more) break;
    }
  }
  result.code = -1;
  return result;
}

TEST(RequestHeadTest, ReadsChunks) {
  const std::string text = "3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n";
  for (const size_t step : {1, 2, 3, 7, 100}) {
    const Chunked result = ReadChunks(text + "rest", step);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.body, "abcdefg");
    EXPECT_EQ(result.consumed, text.size());
  }
}

// Would catch Beast's assertion that ended the process: the last chunk, the first one, in pieces.
TEST(RequestHeadTest, ReadsABodyWithoutBytesInPieces) {
  for (const std::string text : {"0\r\n\r\n", "000\r\n\r\n", "0;a=b\r\nT: u\r\n\r\n"}) {
    for (const size_t step : {1, 2, 3, 4, 5}) {
      const Chunked result = ReadChunks(text + "rest", step);
      EXPECT_EQ(result.code, 0) << text << step;
      EXPECT_EQ(result.body, "");
      EXPECT_EQ(result.consumed, text.size()) << text << step;
    }
  }
}

TEST(RequestHeadTest, RefusesBadChunks) {
  for (const char* text :
       {"x\r\nabc\r\n", "3\nabc\r\n0\r\n\r\n", "3\r\nabcX\r\n0\r\n\r\n", "-3\r\nabc\r\n",
        "\r\nabc\r\n", "3 \r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "10000000000000000\r\n",
        "3\r\nabc\r\n0\r\nContent-Length: 4\r\n\r\n", "3;a=\"\n0\"\r\nabc\r\n0\r\n\r\n",
        "3;a=\"\r\"\r\nabc\r\n0\r\n\r\n", "0;a=\"\n\"\r\n\r\n"}) {
    EXPECT_EQ(ReadChunks(text, 1000).code, 400) << text;
  }
  EXPECT_EQ(ReadChunks("ffffffffffffffff\r\n", 1000).code, 413);
  EXPECT_EQ(ReadChunks("8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n", 1000, 15).code, 413);
  EXPECT_EQ(ReadChunks("8\r\n12345678\r\n7\r\n1234567\r\n0\r\n\r\n", 1000, 15).code, 0);
}

TEST(RequestHeadTest, BoundsTheNumberOfChunks) {
  std::string text;
  for (size_t i = 0; i < kChunksMax; ++i) text += "1\r\na\r\n";
  EXPECT_EQ(ReadChunks(text + "1\r\na\r\n0\r\n\r\n", 60'000).code, 413);
}

}  // namespace
}  // namespace hps::server
