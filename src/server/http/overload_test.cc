// Which request is read next when there is more to do than can be done, and that refused ones are
// answered as HTTP asks for. No case depends on time.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "server/http/test_http_world.h"

namespace hps::server {
namespace {

// The key of a request is its number.
int64_t NumberOf(const InferenceCall& call) {
  return LoadLittleEndian<int64_t>(call.request.inputs[0].bytes.data());
}

class OverloadTest : public HttpWorld {
 protected:
  OverloadTest() {
    config_.threads = 1;
    inference_.on_prepare = [this](InferenceCall& call) {
      MutexLock lock(mutex_);
      prepared_.push_back(NumberOf(call));
      waits_.push_back(call.request.unread_wait);
      if (refused_.contains(prepared_.back())) return absl::ResourceExhaustedError("full");
      return absl::OkStatus();
    };
    inference_.on_run = [this](InferenceCall& call) {
      if (NumberOf(call) == 0) {
        begun_.CountDown();
        EXPECT_TRUE(Await(gate_));
      }
      inference_.Finish(call);
    };
    begun_.Reset(1);
    gate_.Reset(1);
  }
  ~OverloadTest() override {
    clients_.clear();
    server_.reset();
  }

  static bool Await(Latch& latch) {
    return latch.WaitUntil(DeadlineAfter(RealClock(), std::chrono::minutes(1)));
  }

  // Keeps the server's only thread busy, and leaves requests 1 to `count` in their sockets.
  void SendWhileBusy(int64_t count) {
    for (int64_t i = 0; i <= count; ++i) {
      clients_.push_back(Connect());
      EXPECT_EQ(clients_.back()->Ask(Get("/v2/health/live")).code, 200);
    }
    const TimePoint sent = RealClock().Now();
    clients_[0]->Send(BinaryInfer({0}));
    EXPECT_TRUE(Await(begun_));
    first_took_ = RealClock().Now() - sent;
    for (int64_t i = 1; i <= count; ++i) clients_[static_cast<size_t>(i)]->Send(BinaryInfer({i}));
  }

  std::vector<int64_t> prepared() {
    MutexLock lock(mutex_);
    return prepared_;
  }

  std::vector<std::unique_ptr<HttpClient>> clients_;
  std::set<int64_t> refused_;
  Duration first_took_{};  // from when request 0 was sent to when it was looked up
  Latch begun_;
  Latch gate_;
  Mutex mutex_;
  std::vector<int64_t> prepared_ HPS_GUARDED_BY(mutex_);
  std::vector<Duration> waits_ HPS_GUARDED_BY(mutex_);
};

TEST_F(OverloadTest, InTheOrderInWhichTheyCameWhileAllAreInTime) {
  SendWhileBusy(5);
  gate_.CountDown();
  for (size_t i = 0; i <= 5; ++i) EXPECT_EQ(clients_[i]->Read().code, 200);
  EXPECT_EQ(prepared(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(OverloadTest, ARequestHasWaitedSinceItsSocketWasReady) {
  SendWhileBusy(2);
  gate_.CountDown();
  for (size_t i = 0; i <= 2; ++i) EXPECT_EQ(clients_[i]->Read().code, 200);
  MutexLock lock(mutex_);
  EXPECT_LT(waits_[0], first_took_);  // zero, but where the server's tick came with it
  EXPECT_GT(waits_[1], Duration::zero());
  EXPECT_GT(waits_[2], Duration::zero());
}

TEST_F(OverloadTest, TheNewestFirstWhereTheOldestAreTooLate) {
  constexpr int64_t kOld = 200;
  constexpr int64_t kAll = 210;
  for (int64_t i = 1; i <= kOld; ++i) refused_.insert(i);
  SendWhileBusy(kAll);
  gate_.CountDown();
  for (int64_t i = 0; i <= kAll; ++i) {
    const HttpReply reply = clients_[static_cast<size_t>(i)]->Read();
    const bool refused = refused_.contains(i);
    EXPECT_EQ(reply.code, refused ? 429 : 200);
    EXPECT_EQ(reply.fields.contains("retry-after"), refused);
  }
  // However the turns of the oldest lie between them.
  std::vector<int64_t> accepted;
  for (const int64_t number : prepared()) {
    if (number > kOld) accepted.push_back(number);
  }
  ASSERT_EQ(accepted.size(), static_cast<size_t>(kAll - kOld));
  EXPECT_EQ(accepted.front(), kAll);
  EXPECT_TRUE(std::is_sorted(accepted.rbegin(), accepted.rend()));
  EXPECT_NE(prepared().back(), kOld + 1);  // some of the old ones came after them
}

TEST_F(OverloadTest, WhatIsBehindARefusedRequestIsAnswered) {
  refused_ = {2, 4};
  const auto client = Connect();
  client->Send(BinaryInfer({1}) + BinaryInfer({2}) + BinaryInfer({3}) + BinaryInfer({4}) +
               Get("/v2/health/live"));
  for (const int code : {200, 429, 200, 429, 200}) {
    const HttpReply reply = client->Read();
    EXPECT_EQ(reply.code, code);
    EXPECT_FALSE(reply.fields.contains("connection"));
  }
  EXPECT_EQ(client->Ask(BinaryInfer({5})).code, 200);
}

TEST_F(OverloadTest, AnswersProbesWhileThereIsNoRoom) {
  std::vector<std::unique_ptr<HttpClient>> waiting;
  for (int i = 0; i < 50; ++i) waiting.push_back(Connect());
  inference_.has_room = false;
  for (const auto& client : waiting) client->Send(BinaryInfer({7}));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Ask(Get("/v2/health/ready")).code, 200);
  inference_.has_room = true;
  for (const auto& client : waiting) EXPECT_EQ(client->Read().code, 200);
}

TEST_F(OverloadTest, ClientsThatGoWhileTheyWaitAreForgotten) {
  config_.threads = 3;
  inference_.has_room = false;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 10; ++i) {
      clients.push_back(Connect());
      clients.back()->Send(BinaryInfer({7}));
      if (i % 3 == 0) clients.back()->EndSending();
      if (i % 3 == 1) clients.back()->Close();
    }
    for (size_t i = 0; i < clients.size(); ++i) {
      if (i % 3 == 1) continue;
      EXPECT_EQ(clients[i]->Read().code, 200);
    }
  }
}

TEST_F(OverloadTest, DrainEndsWhatWaitsUnread) {
  inference_.has_room = false;
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(Connect());
    clients.back()->Send(BinaryInfer({7}));
  }
  EXPECT_TRUE(server_->Drain(RealClock().Now() + std::chrono::minutes(1)).ok());
}

}  // namespace
}  // namespace hps::server
