// Every request that is wrong gets the answer that the documentation names, and costs nobody else
// anything: the server answers on, and nothing stays behind.
#include "server/http/head_check.h"
#include "server/http/http_connection.h"
#include "server/http/test_http_world.h"
#include "server/net/compression.h"

namespace hps::server {
namespace {

struct Case {
  std::string what;
  std::string bytes;
  int code = 400;
  bool stays_open = true;
};

std::string Infer(std::string_view body) { return Post(kInferPath, body); }
std::string Raw(std::string_view fields, std::string_view body = "") {
  return absl::StrCat("POST /v2/models/emb/infer HTTP/1.1\r\nHost: localhost\r\n",
                      std::string(fields), "\r\n", std::string(body));
}
std::string Input(std::string_view members) {
  return Infer(absl::StrCat("{\"inputs\":[{", std::string(members), "}]}"));
}
std::string Repeated(std::string_view piece, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece;
  return text;
}

std::vector<Case> FramingCases() {
  return {
      {"garbage", "\x01\x02\x03\r\n\r\n", 400, false},
      {"a TLS hello", std::string("\x16\x03\x01\0\x05\r\n\r\n", 9), 400, false},
      {"bare LF", "GET /v2 HTTP/1.1\nHost: x\n\n", 400, false},
      {"no Host", "GET /v2 HTTP/1.1\r\n\r\n", 400, false},
      {"obs-fold", "GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n", 400, false},
      {"space before colon", Raw("Content-Length : 2\r\n", "{}"), 400, false},
      {"two lengths", Raw("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"), 400, false},
      {"the same length twice", Raw("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"), 400,
       false},
      {"length and chunks", Raw("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
       400, false},
      {"chunks and length", Raw("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "0\r\n\r\n"),
       400, false},
      {"negative length", Raw("Content-Length: -1\r\n"), 400, false},
      {"length of 2^64", Raw("Content-Length: 18446744073709551616\r\n"), 400, false},
      {"unknown coding of transfer", Raw("Transfer-Encoding: gzip\r\n"), 501, false},
      {"bad chunk size", Raw("Transfer-Encoding: chunked\r\n", "zz\r\n"), 400, false},
      {"huge chunk", Raw("Transfer-Encoding: chunked\r\n", "7fffffffffffffff\r\n"), 413, false},
      {"chunk without end", Raw("Transfer-Encoding: chunked\r\n", "2\r\n{}XX0\r\n\r\n"), 400,
       false},
      {"endless chunk head", Raw("Transfer-Encoding: chunked\r\n", "2;" + std::string(40'000, 'a')),
       400, false},
      {"too many chunks", Raw("Transfer-Encoding: chunked\r\n", Repeated("1\r\n \r\n", 66'000)),
       413, false},
      {"huge body", Raw("Content-Length: 99999999999\r\n"), 413, false},
      {"large head", "GET /v2 HTTP/1.1\r\nA: " + std::string(20'000, 'b'), 431, false},
      {"no host", "GET /v2 HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, false},
      {"another name", "GET /v2 HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
      {"long query", Get("/v2?" + std::string(9000, 'q')), 414, false},
      {"long path", Get("/" + std::string(20'000, 'a')), 414, false},
      {"bad percent-encoding", Get("/v2/models/%6/ready"), 400, false},
      {"a control character in a name", Get("/v2/models/e%00/ready"), 400, false},
      {"an encoded slash", Get("/v2%2Fhealth/live"), 404},
      {"a blank in the target", Get("/v2/health live"), 400, false},
      {"version 2", "GET /v2 HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, false},
      {"unknown expectation", Raw("Content-Length: 2\r\nExpect: tea\r\n", "{}"), 417},
      {"unknown content coding", Raw("Content-Length: 2\r\nContent-Encoding: br\r\n", "{}"), 415},
      {"not gzip", Raw("Content-Length: 2\r\nContent-Encoding: gzip\r\n", "{}"), 400},
      {"JSON length over the body",
       Raw("Content-Length: 2\r\nInference-Header-Content-Length: 3\r\n", "{}"), 400},
      {"JSON length not a number",
       Raw("Content-Length: 2\r\nInference-Header-Content-Length: x\r\n", "{}"), 400, false},
      {"get of infer", Get(kInferPath), 405},
      {"unknown method", "BREW /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 501},
      {"unknown method of a page", "BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501},
      {"method that no path takes", "PUT /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
      {"post of an unknown page", Post("/v1/models/emb:predict", "{}"), 404},
      {"post of an unknown page with data", Post("/api/nothing", "{}"), 404},
      {"post of a page", Post("/metrics", "{}"), 405},
      {"unknown method of an unknown path", "BREW /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
      {"post of metadata", Post("/v2/models/emb", "{}"), 405},
      {"unknown path", Get("/v2/models/emb/x"), 404},
      {"unknown model", Post("/v2/models/x/infer", R"({"inputs":[]})"), 404},
      {"unknown version", Post("/v2/models/emb/versions/9/infer", R"({"inputs":[]})"), 404},
      {"a path that is not UTF-8", Get("/v2/models/\xff\xfe/ready"), 404},
  };
}

std::vector<Case> ContentCases() {
  return {
      {"no body", Infer("")},
      {"not JSON", Infer("hello")},
      {"an array", Infer("[]")},
      {"nothing in it", Infer("{}")},
      {"no inputs", Infer(R"({"inputs":[]})")},
      {"cut", Infer(R"({"inputs":[{"name":"KEYS")")},
      {"deep nesting", Infer(Repeated("[", 100'000))},
      {"deep nesting inside", Infer("{\"a\":" + Repeated("{\"a\":", 5000))},
      {"too many inputs",
       Infer("{\"inputs\":[" +
             Repeated(R"({"name":"a","shape":[0],"datatype":"INT8","data":[]},)", 600) + "{}]}")},
      {"nine dimensions",
       Input(R"("name":"KEYS","shape":[1,1,1,1,1,1,1,1,1],"datatype":"INT64","data":[1])")},
      {"negative dimension", Input(R"("name":"KEYS","shape":[-5],"datatype":"INT64","data":[1])")},
      {"10^9 elements",
       Input(R"("name":"KEYS","shape":[1000000000],"datatype":"INT64","data":[1])")},
      {"overflowing shape",
       Input(R"("name":"KEYS","shape":[9223372036854775807,9],"datatype":"INT64","data":[1])")},
      {"fewer elements", Input(R"("name":"KEYS","shape":[3],"datatype":"INT64","data":[1])")},
      {"more elements", Input(R"("name":"KEYS","shape":[1],"datatype":"INT64","data":[1,2])")},
      {"a fraction", Input(R"("name":"KEYS","shape":[1],"datatype":"INT64","data":[1.5])")},
      {"too large an integer",
       Input(R"("name":"KEYS","shape":[1],"datatype":"INT64","data":[18446744073709551616])")},
      {"unknown datatype", Input(R"("name":"KEYS","shape":[1],"datatype":"INT63","data":[1])")},
      {"wrong datatype", Input(R"("name":"KEYS","shape":[1],"datatype":"FP32","data":[1])")},
      {"unknown input", Input(R"("name":"X","shape":[1],"datatype":"INT64","data":[1])")},
      {"a lie about bytes", Input(R"("name":"KEYS","shape":[1],"datatype":"INT64",
                                    "parameters":{"binary_data_size":8})")},
      {"a lie about 2^63 bytes",
       Input(R"("name":"KEYS","shape":[1152921504606846976],"datatype":"INT64",
               "parameters":{"binary_data_size":9223372036854775808})")},
      {"a timeout that is none", Infer(R"({"inputs":[],"parameters":{"timeout":"soon"}})")},
      {"shared memory", Input(R"("name":"KEYS","shape":[1],"datatype":"INT64",
                                "parameters":{"shared_memory_region":"r"})"),
       501},
      {"classification", JsonInfer("[1]", "1", R"(,"outputs":[{"name":"ROWS",
                                   "parameters":{"classification":2}}])"),
       501},
      {"unknown output", JsonInfer("[1]", "1", R"(,"outputs":[{"name":"X"}])"), 404},
      {"not UTF-8", Infer("{\"inputs\":[],\"id\":\"\xff\"}")},
      {"control characters", Infer("{\"inputs\":[],\"id\":\"\n\"}")},
  };
}

class MalformedRequestTest : public HttpWorld {};

TEST_F(MalformedRequestTest, GetsItsCodeAndHarmsNobody) {
  std::vector<Case> cases = FramingCases();
  for (Case& each : ContentCases()) cases.push_back(std::move(each));
  const auto bystander = Connect();
  for (const Case& each : cases) {
    const auto client = Connect();
    client->Send(each.bytes);
    const HttpReply reply = client->Read();
    EXPECT_EQ(reply.code, each.code) << each.what << ": " << reply.body;
    EXPECT_TRUE(reply.body.starts_with("{\"error\":\"")) << each.what << ": " << reply.body;
    EXPECT_EQ(reply.fields.contains("connection"), !each.stays_open) << each.what;
    if (each.stays_open) {
      EXPECT_EQ(client->Ask(BinaryInfer({1, 2, 3})).code, 200) << each.what;
    } else {
      client->EndSending();
      EXPECT_TRUE(client->AtEnd()) << each.what;
    }
    EXPECT_EQ(bystander->Ask(Get("/v2/health/live")).code, 200) << each.what;
  }
  EXPECT_GT(BadRequests("protocol"), 10u);
  EXPECT_GT(BadRequests("limit"), 5u);
  EXPECT_GT(BadRequests("syntax"), 5u);
  EXPECT_GT(BadRequests("content"), 5u);
  EXPECT_GT(BadRequests("unknown"), 3u);
  const ServerStatistics counted = Counted();
  EXPECT_GE(counted.http.requests, 2 * cases.size());
}

TEST_F(MalformedRequestTest, ARequestThatIsCutOffGetsNoAnswer) {
  const std::string request = BinaryInfer({1, 2, 3});
  for (const size_t size : {size_t{1}, size_t{20}, request.size() - 1}) {
    const auto client = Connect();
    client->Send(std::string_view(request).substr(0, size));
    client->EndSending();
    EXPECT_TRUE(client->AtEnd()) << size;
  }
  EXPECT_EQ(inference_.prepared, 0u);
}

TEST_F(MalformedRequestTest, WhatIsSmuggledIsNoRequest) {
  const auto client = Connect();
  client->Send(Raw("Content-Length: 30\r\nTransfer-Encoding: chunked\r\n",
                   "0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(client->Read().code, 400);
  EXPECT_EQ(client->Read().code, 0);
}

TEST_F(MalformedRequestTest, OneEmptyLineBeforeARequestIsPassedOver) {
  const auto client = Connect();
  EXPECT_EQ(client->Ask("\r\n" + Get("/v2")).code, 200);
  EXPECT_EQ(client->Ask("\r\n\r\n" + Get("/v2")).code, 400);
}

TEST_F(MalformedRequestTest, ABodyThatIsRefusedIsNotReset) {
  config_.body_bytes_max = 1 << 20;
  const auto client = Connect();
  // The client sends some of it before it reads: the answer must still arrive.
  client->Send(Raw("Content-Length: 2000000\r\n", std::string(600'000, 'a')));
  EXPECT_EQ(client->Read().code, 413);
}

// Catches: strangers who hold the server's bytes with bodies that nobody wants. Probes need no
// token.
TEST_F(MalformedRequestTest, OnlyInferencesHaveLargeBodies) {
  const std::string large(70'000, ' ');
  const std::string probe = "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n";
  const auto sent_to_index = [](std::string_view body, std::string_view fields) {
    return Post("/v2/repository/index", body, fields);
  };
  EXPECT_EQ(Ask(absl::StrCat(probe, "Content-Length: 65536\r\n\r\n", large.substr(0, 65536))).code,
            200);
  // Before any of it has come.
  EXPECT_EQ(Ask(absl::StrCat(probe, "Content-Length: 65537\r\n\r\n")).code, 413);
  EXPECT_EQ(Ask(absl::StrCat(probe, "Transfer-Encoding: chunked\r\n\r\n11171\r\n")).code, 413);
  EXPECT_EQ(Ask(sent_to_index(large, "")).code, 413);
  const std::string nowhere = "GET /v2/nowhere HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(Ask(nowhere + "Content-Length: 99999999\r\n\r\n").code, 404);
  BufferPool pool({.lent_bytes_max = 1 << 20});
  const std::array<std::span<const std::byte>, 1> piece = {AsBytes(std::string_view(large))};
  const CodedBytes packed = *Deflate(Coding::kGzip, piece, SIZE_MAX, pool);
  EXPECT_EQ(Ask(sent_to_index(AsText(packed.memory.bytes().first(packed.size)),
                              "Content-Encoding: gzip\r\n"))
                .code,
            413);
  EXPECT_EQ(Ask(BinaryInfer(std::vector<int64_t>(20'000, 1))).code, 200);
}

}  // namespace
}  // namespace hps::server
