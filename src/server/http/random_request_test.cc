// Random v2 calls, right and wrong, over real connections: each gets the code that its kind asks
// for, right ones their rows, and no answer is a 500.
#include <gtest/gtest.h>

#include <random>

#include "server/http/http_server.h"
#include "server/http/test_http_world.h"
#include "testing/trials.h"

namespace hps::server {
namespace {

const uint64_t kCalls = Trials(50'000);

struct RandomCall {
  std::string bytes;
  int code = 0;               // 0: any but 500
  std::vector<int64_t> keys;  // whose rows are expected, as binary
};

class RandomRequestTest : public HttpWorld {
 protected:
  RandomCall Next(std::mt19937_64& random) {
    std::vector<int64_t> keys(1 + random() % 40);
    for (int64_t& key : keys) key = static_cast<int64_t>(random());
    switch (random() % 12) {
      case 0:
      case 1:
        return {.bytes = BinaryInfer(keys), .code = 200, .keys = keys};
      case 2:
        return {.bytes = JsonInfer(absl::StrCat("[", keys[0], "]"), "1"), .code = 200, .keys = {}};
      case 3:
        return {.bytes = JsonInfer("[1,2]", std::to_string(random() % 50 + 3)),
                .code = 400,
                .keys = {}};
      case 4:
        return {.bytes = JsonInfer("[1]", std::to_string(-1 - static_cast<int64_t>(random() % 9))),
                .code = 400,
                .keys = {}};
      case 5:
        return {
            .bytes = Get(random() % 2 == 0 ? "/v2" : "/v2/models/emb"), .code = 200, .keys = {}};
      case 6:
        return {
            .bytes = Get(absl::StrCat("/v2/models/m", random() % 100)), .code = 404, .keys = {}};
      case 7:
        return {.bytes = Post("/v2/models/emb", "{}"), .code = 405, .keys = {}};
      case 8:
        return {.bytes = Post(kInferPath, std::string(random() % 100, static_cast<char>(random()))),
                .code = 400,
                .keys = {}};
      case 9:
        return {.bytes = JsonInfer("[1]", "1", R"(,"parameters":{"binary_data_output":1})"),
                .code = 400,
                .keys = {}};
      default: {
        // One byte of the body flipped: the framing holds, the content may not.
        std::string request = BinaryInfer(keys);
        const size_t body = request.find("\r\n\r\n") + 4;
        request[body + random() % (request.size() - body)] ^= static_cast<char>(1 << random() % 8);
        return {.bytes = request, .code = 0, .keys = {}};
      }
    }
  }

  void Check(const RandomCall& call, const HttpReply& reply) {
    ASSERT_NE(reply.code, 0) << call.bytes;
    ASSERT_NE(reply.code, 500) << call.bytes;
    if (call.code != 0) {
      ASSERT_EQ(reply.code, call.code) << call.bytes << "\n" << reply.body;
    }
    if (reply.code >= 400) {
      ASSERT_TRUE(reply.body.starts_with("{\"error\":\"")) << reply.body;
    }
    if (call.keys.empty()) return;
    const std::string rows = reply.body.substr(reply.body.size() - call.keys.size() * 16);
    for (size_t i = 0; i < call.keys.size() * 4; ++i) {
      ASSERT_EQ(RowElement(rows, i), FakeElement(call.keys[i / 4], i % 4));
    }
  }
};

TEST_F(RandomRequestTest, GetTheirCodes) {
  std::mt19937_64 random(TestSeed());
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(Connect());
  for (uint64_t done = 0; done < kCalls;) {
    // Some at a time on one connection: they are answered in order.
    HttpClient& client = *clients[random() % clients.size()];
    std::vector<RandomCall> calls(1 + random() % 20);
    std::string bytes;
    for (RandomCall& call : calls) {
      call = Next(random);
      bytes += call.bytes;
    }
    ASSERT_TRUE(client.Send(bytes));
    for (const RandomCall& call : calls) {
      Check(call, client.Read());
      if (HasFatalFailure()) return;
    }
    done += static_cast<int>(calls.size());
  }
}

}  // namespace
}  // namespace hps::server
