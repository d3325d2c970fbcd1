// What the requests and answers of connections take of the server's memory.
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "server/http/test_http_world.h"
#include "server/net/compression.h"
#include "server/net/connection_server.h"
#include "testing/await.h"

namespace hps::server {
namespace {

class MemoryTest : public HttpWorld {};

// Catches: a client that does not read its answer, and so holds the memory of its request.
TEST_F(MemoryTest, AnAnswerThatIsNotReadHoldsNothingOfItsRequest) {
  constexpr size_t kUnreadBytes = size_t{16} << 20;  // more than two sockets hold
  config_.write_timeout = std::chrono::minutes(2);
  Start();
  const auto await_lent = [this](uint64_t bytes) {
    const BufferPool& pool = dynamic_cast<ConnectionServer&>(*server_).pool();
    return AwaitCondition([&] { return pool.lent_bytes() == bytes; });
  };
  const std::vector<int64_t> keys(100'000, 7);
  Latch prepared(1);
  inference_.on_prepare = [&](InferenceCall&) {
    prepared.CountDown();
    return absl::InvalidArgumentError(std::string(kUnreadBytes, 'x'));
  };
  auto refused = Connect();
  refused->Send(BinaryInfer(keys));
  ASSERT_TRUE(AwaitLatch(prepared));
  ASSERT_TRUE(await_lent(0));
  EXPECT_EQ(refused->Read().code, 400);

  Latch answered(1);
  inference_.on_prepare = nullptr;
  inference_.dim = kUnreadBytes / sizeof(float);
  inference_.on_run = [&](InferenceCall& call) {
    answered.CountDown();
    inference_.Finish(call);
  };
  auto served = Connect();
  served->Send(BinaryInfer({7}));
  ASSERT_TRUE(AwaitLatch(answered));
  ASSERT_TRUE(await_lent(BufferPool::LentFor(kUnreadBytes)));
  EXPECT_EQ(served->Read().code, 200);
}

TEST_F(MemoryTest, AWorldWithoutMemorySheds) {
  config_.bytes_in_flight_max = 64 << 10;  // the pool lends twice that
  inference_.dim = 4096;
  const HttpReply reply = Ask(BinaryInfer(std::vector<int64_t>(100, 1)));
  EXPECT_EQ(reply.code, 429);
  EXPECT_EQ(reply.fields.at("retry-after"), "1");
  inference_.dim = 4;
  EXPECT_EQ(Ask(BinaryInfer({1})).code, 200);
}

// Catches: what can never be taken, counted as what the server had no room for.
TEST_F(MemoryTest, WhatCanNeverBeTakenIsOverALimitAndNotOverCapacity) {
  config_.bytes_in_flight_max = 64 << 10;
  const std::string large(100'000, ' ');
  EXPECT_EQ(Ask(Post(kInferPath, large)).code, 413);
  EXPECT_EQ(BadRequests("limit"), 1u);
  BufferPool pool({.lent_bytes_max = 1 << 20});
  const std::array<std::span<const std::byte>, 1> piece = {AsBytes(std::string_view(large))};
  const CodedBytes packed = *Deflate(Coding::kGzip, piece, SIZE_MAX, pool);
  const std::string bomb = Post(kInferPath, AsText(packed.memory.bytes().first(packed.size)),
                                "Content-Encoding: gzip\r\n");
  EXPECT_EQ(Refused("capacity"), 0u);
  EXPECT_EQ(Ask(bomb).code, 429) << "what it unpacks to has no room beside it";
  EXPECT_EQ(Refused("capacity"), 1u);
  EXPECT_EQ(BadRequests("limit") + BadRequests("content"), 1u);
}

// Or else requests would take memory that nobody has counted.
TEST_F(MemoryTest, SaysWhatARequestAndItsAnswerTake) {
  const auto client = Connect();
  ASSERT_EQ(client->Ask(BinaryInfer({1})).code, 200);
  EXPECT_EQ(inference_.body_bytes, 32u << 10) << "the buffer that it was read into";
  EXPECT_GE(inference_.answer_bytes, 4096u) << "the least buffer";
  EXPECT_LT(inference_.answer_bytes, 8192u);
  ASSERT_EQ(client->Ask(BinaryInfer(std::vector<int64_t>(33'000, 1))).code, 200);
  EXPECT_EQ(inference_.body_bytes, (32u << 10) + (512u << 10)) << "264,000 bytes and the JSON";
  EXPECT_GE(inference_.answer_bytes, uint64_t{1} << 20) << "33,000 rows of 16 bytes";
  EXPECT_LT(inference_.answer_bytes, (uint64_t{1} << 20) + 4096);
  std::string list = "[1";
  for (int i = 1; i < 1000; ++i) list += ",1";
  const HttpReply json = client->Ask(JsonInfer(list + "]", "1000"));
  ASSERT_EQ(json.code, 200);
  EXPECT_EQ(inference_.body_bytes, (32u << 10) + (8u << 10)) << "1,000 keys as bytes";
  EXPECT_GE(inference_.answer_bytes, (16u << 10) + json.body.size());
}

}  // namespace
}  // namespace hps::server
