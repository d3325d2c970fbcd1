#include "server/grpc/grpc_call.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/core/test_server_world.h"
#include "server/grpc/grpc_call_queue.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/test_gated_inference.h"
#include "server/grpc_codec/test_infer_messages.h"

namespace hps::server {
namespace {

using std::chrono::seconds;
using Execution = GrpcCall::Execution;

constexpr TimePoint kArrival{std::chrono::hours(1)};

// Calls of a server that no client asks.
class GrpcCallTest : public testing::Test {
 protected:
  GrpcCallTest() {
    world_.ImportAll({{.name = "m/t", .row_count = 100, .dim = 8}});
    world_.Start();
    gate_ = std::make_unique<GatedInference>(world_.inference());
    auto server = GrpcServer::Start(world_.Parts(gate_.get()), "127.0.0.1:0");
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  GrpcCall& NewCall() { return server_->TakeStream(0)->call(); }
  static absl::Status Start(GrpcCall& call, std::string_view message, ResponseWriter* response,
                            TimePoint deadline = kNoDeadline) {
    return call.StartInfer({.message = AsBytes(message),
                            .held_bytes = message.size(),
                            .deadline = deadline,
                            .in_stream = false},
                           response);
  }

  const std::string request_ =
      Field(1, "m") + Field(3, "id-1") + Input("t", "INT64", {3}) + Field(7, Keys(3));
  ServerWorld world_;
  std::unique_ptr<GatedInference> gate_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(GrpcCallTest, PreparesAnInferenceAndItsAnswer) {
  GrpcCall& call = NewCall();
  const TimePoint now = RealClock().Now();
  call.SetArrival(now, seconds(1));
  call.BeginWait(now);
  call.EndWait(now + seconds(2));
  ResponseWriter response;
  ASSERT_TRUE(Start(call, request_, &response, now + seconds(9)).ok());
  EXPECT_EQ(call.request.model, "m");
  EXPECT_EQ(call.request.id, "id-1");
  EXPECT_EQ(call.request.arrival, now);
  EXPECT_EQ(call.request.socket_wait, seconds(3));
  EXPECT_EQ(call.request.timeout, seconds(9));
  ASSERT_EQ(call.outputs.size(), 1U);
  EXPECT_EQ(call.outputs[0].byte_count, 3 * 8 * sizeof(float));
  EXPECT_GE(response.rows().size(), call.outputs[0].byte_count);
  EXPECT_GE(call.AnswerBytes(), call.outputs[0].byte_count);
  EXPECT_FALSE(call.pieces().empty());
  call.Reset();
}

TEST_F(GrpcCallTest, CountsARequestThatCannotBeRead) {
  ResponseWriter response;
  GrpcCall& call = NewCall();
  EXPECT_EQ(Start(call, "\xff\xff", &response).code(), absl::StatusCode::kInvalidArgument);
  ServerStatistics statistics;
  world_.core().counters().Fill(&statistics);
  const std::pair<std::string, uint64_t> expected("syntax", 1);
  EXPECT_NE(std::find(statistics.bad_requests.begin(), statistics.bad_requests.end(), expected),
            statistics.bad_requests.end());
  EXPECT_TRUE(response.rows().empty());
}

TEST_F(GrpcCallTest, TheEarlierDeadlineHolds) {
  GrpcCall& call = NewCall();
  call.SetArrival(kArrival, Duration::zero());
  const std::string head = Field(1, "m") + Field(4, Parameter("timeout", Number(2, 5'000'000)));
  call.ReadHead(AsBytes(std::string_view(head)));
  EXPECT_EQ(call.request.model, "m");
  for (const TimePoint deadline : {kNoDeadline, kArrival + seconds(6)}) {
    call.LimitTimeout(deadline);
    EXPECT_EQ(call.request.timeout, seconds(5));
  }
  call.LimitTimeout(kArrival + seconds(4));
  EXPECT_EQ(call.request.timeout, seconds(4));
}

TEST_F(GrpcCallTest, AListKeepsTheOrder) {
  GrpcCall& first = NewCall();
  GrpcCall& second = NewCall();
  GrpcCall& third = NewCall();
  GrpcCallList list;
  EXPECT_EQ(list.PopFront(), nullptr);
  list.PushFront(second);
  list.PushBack(third);
  list.PushFront(first);
  for (GrpcCall* const call : {&first, &second, &third}) EXPECT_EQ(list.PopFront(), call);
  EXPECT_TRUE(list.empty());
}

TEST_F(GrpcCallTest, OneRequestOfATurnMayBegin) {
  GrpcCallQueue queue(*server_);
  EXPECT_FALSE(queue.MayBegin());
  queue.BeginEvents(/*may_start=*/true);
  EXPECT_TRUE(queue.MayBegin());
  EXPECT_FALSE(queue.MayBegin());
  // Without room, only with a turn.
  gate_->has_room = false;
  queue.BeginEvents(/*may_start=*/true);
  EXPECT_FALSE(queue.MayBegin());
  queue.GiveTurn();
  EXPECT_TRUE(queue.MayBegin());
  queue.GiveTurn();
  queue.BeginEvents(/*may_start=*/false);
  EXPECT_FALSE(queue.MayBegin());
  queue.DropTurn();
  queue.BeginEvents(/*may_start=*/true);
  EXPECT_FALSE(queue.MayBegin());
}

TEST_F(GrpcCallTest, RunnableCallsAreTakenInOrderAndBeforeAnyRequestBegins) {
  GrpcCallQueue queue(*server_);
  GrpcCall& first = NewCall();
  GrpcCall& second = NewCall();
  EXPECT_FALSE(queue.ForgetTurn(first));  // it is not queued
  queue.AddRunnable(first);
  queue.AddRunnable(second);
  queue.BeginEvents(/*may_start=*/true);
  EXPECT_FALSE(queue.MayBegin());
  EXPECT_EQ(queue.TakeRunnable(), &first);
  EXPECT_EQ(first.execution, Execution::kRunning);
  queue.PutBack(first);
  EXPECT_EQ(first.execution, Execution::kRunnable);
  EXPECT_TRUE(first.holds_turn);
  EXPECT_EQ(queue.TakeRunnable(), &first);
  EXPECT_FALSE(first.holds_turn);
  EXPECT_EQ(queue.TakeRunnable(), &second);
  EXPECT_FALSE(queue.has_runnable());
  EXPECT_EQ(queue.TakeRunnable(), nullptr);
  EXPECT_TRUE(queue.MayBegin());
}

TEST_F(GrpcCallTest, EndedCallsAreHandedBackOldestFirst) {
  GrpcCallQueue queue(*server_);
  std::vector<GrpcCall*> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(&NewCall());
    EXPECT_EQ(queue.AddEnded(*calls.back(), [i] { return i == 0; }), i == 0);
  }
  GrpcCallList ended = queue.TakeEnded();
  for (GrpcCall* const call : calls) EXPECT_EQ(ended.PopFront(), call);
  EXPECT_TRUE(ended.empty());
  EXPECT_TRUE(queue.TakeEnded().empty());
}

}  // namespace
}  // namespace hps::server
