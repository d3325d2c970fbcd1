#include "server/http/http_server.h"

#include <pthread.h>

#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "server/http/test_http_world.h"

namespace hps::server {
namespace {

class HttpServerTest : public HttpWorld {};

TEST_F(HttpServerTest, AnswersBinaryWithBinary) {
  const auto client = Connect();
  for (const size_t count : {size_t{1}, size_t{31}, size_t{33}, size_t{1024}, size_t{100'000}}) {
    std::vector<int64_t> keys(count);
    for (size_t i = 0; i < count; ++i) keys[i] = static_cast<int64_t>(i * 7);
    const HttpReply reply = client->Ask(BinaryInfer(keys));
    ASSERT_EQ(reply.code, 200) << reply.body;
    const size_t json_bytes = std::stoull(reply.fields.at("inference-header-content-length"));
    EXPECT_EQ(reply.body.substr(0, json_bytes),
              absl::StrCat(R"({"id":"a","model_name":"emb","model_version":"1","outputs":[)",
                           R"({"name":"ROWS","datatype":"FP32","shape":[)", count,
                           R"(,4],"parameters":{"binary_data_size":)", count * 16, "}}]}"));
    const std::string rows = reply.body.substr(json_bytes);
    ASSERT_EQ(rows.size(), count * 16);
    for (size_t i = 0; i < count * 4; ++i) {
      ASSERT_EQ(RowElement(rows, i), FakeElement(keys[i / 4], i % 4));
    }
  }
}

TEST_F(HttpServerTest, AnswersJsonWithJson) {
  const HttpReply reply = Ask(JsonInfer("[[1],[2]]", "2,1"));
  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.body, R"({"model_name":"emb","model_version":"1","outputs":[{"name":"ROWS",)"
                        R"("datatype":"FP32","shape":[2,4],"data":[8,9,10,11,16,17,18,19]}]})");
  EXPECT_EQ(reply.fields.at("content-type"), "application/json");
  EXPECT_FALSE(reply.fields.contains("inference-header-content-length"));
}

// Catches: an answer that no JSON parser but Python's takes, as one row has NaN.
TEST_F(HttpServerTest, WritesWhatIsNoNumberAsNullOrAsAskedFor) {
  inference_.on_run = [](InferenceCall& call) {
    const std::array<float, 4> row = {1.5F, std::numeric_limits<float>::quiet_NaN(),
                                      std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity()};
    std::memcpy(call.outputs[0].data, row.data(), sizeof(row));
    call.OnDone(absl::OkStatus());
  };
  const auto client = Connect();
  const auto data = [&](std::string_view parameters) {
    const HttpReply reply = client->Ask(JsonInfer("[1]", "1", parameters));
    return reply.code == 200 ? reply.body.substr(reply.body.find("\"data\":")) : reply.body;
  };
  EXPECT_EQ(data(""), "\"data\":[1.5,null,null,null]}]}");
  EXPECT_EQ(data(R"(,"parameters":{"nonfinite":"text"})"),
            R"("data":[1.5,"NaN","Infinity","-Infinity"]}]})");
  EXPECT_EQ(data(R"(,"parameters":{"nonfinite":"null"})"), "\"data\":[1.5,null,null,null]}]}");
  EXPECT_EQ(data(""), "\"data\":[1.5,null,null,null]}]}") << "the parameter is of one request";
  EXPECT_EQ(data(R"(,"parameters":{"nonfinite":"bare"})"),
            R"({"error":"parameter 'nonfinite' is \"text\" or \"null\", not 'bare'"})");
  EXPECT_EQ(data(R"(,"parameters":{"nonfinite":true})"),
            R"({"error":"parameter 'nonfinite' is \"text\" or \"null\", not ''"})");
}

// Catches: a lookup slot that is held while a long answer is encoded.
TEST_F(HttpServerTest, EncodesLongAnswersOnAThreadOfTheirOwn) {
  std::string packed_by;
  inference_.on_reserve = [&] {  // packing does that
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    packed_by = name.data();
  };
  const auto is_packed_elsewhere = [&](std::string request) {
    request.insert(request.find("Content-Length"), "Accept-Encoding: gzip\r\n");
    EXPECT_EQ(Ask(request).code, 200);
    return packed_by == "hps-http-encode";
  };
  inference_.dim = 4096;  // 16 KiB a row
  EXPECT_FALSE(is_packed_elsewhere(BinaryInfer(std::vector<int64_t>(4, 1))));
  EXPECT_TRUE(is_packed_elsewhere(BinaryInfer(std::vector<int64_t>(100, 1))));
  EXPECT_FALSE(is_packed_elsewhere(JsonInfer("[1]", "1")));
  std::string keys = "[1";
  for (int i = 1; i < 60; ++i) keys += ",1";
  EXPECT_TRUE(is_packed_elsewhere(JsonInfer(keys + "]", "60")));  // its text is long, not its rows
}

}  // namespace
}  // namespace hps::server
