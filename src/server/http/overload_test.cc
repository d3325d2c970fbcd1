// Which request is read next when there is more to do than can be done, and that refused ones are
// answered as HTTP asks for. No case depends on time.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http/test_http_world.h"
#include "server/net/test_overload_calls.h"

namespace hps::server {
namespace {

class OverloadTest : public HttpWorld {
 protected:
  OverloadTest() {
    config_.threads = 1;
    inference_.on_prepare = [this](InferenceCall& call) { return calls_.OnPrepare(call); };
    inference_.on_run = [this](InferenceCall& call) {
      calls_.OnRun(call);
      inference_.Finish(call);
    };
  }
  ~OverloadTest() override {
    clients_.clear();
    server_.reset();
  }

  // Keeps the server's only thread busy, and leaves requests 1 to `count` in their sockets.
  void SendWhileBusy(int64_t count) {
    for (int64_t i = 0; i <= count; ++i) {
      clients_.push_back(Connect());
      EXPECT_EQ(clients_.back()->Ask(Get("/v2/health/live")).code, 200);
    }
    calls_.Hold([this] { clients_[0]->Send(BinaryInfer({0})); });
    for (int64_t i = 1; i <= count; ++i) clients_[static_cast<size_t>(i)]->Send(BinaryInfer({i}));
  }

  std::vector<std::unique_ptr<HttpClient>> clients_;
  OverloadCalls calls_;
};

TEST_F(OverloadTest, InTheOrderInWhichTheyCameWhileAllAreInTime) {
  SendWhileBusy(5);
  calls_.Release();
  for (size_t i = 0; i <= 5; ++i) EXPECT_EQ(clients_[i]->Read().code, 200);
  EXPECT_EQ(calls_.prepared(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(OverloadTest, ARequestHasWaitedSinceItsSocketWasReady) {
  SendWhileBusy(2);
  calls_.Release();
  for (size_t i = 0; i <= 2; ++i) EXPECT_EQ(clients_[i]->Read().code, 200);
  calls_.ExpectWaits(2);
}

TEST_F(OverloadTest, TheNewestFirstWhereTheOldestAreTooLate) {
  calls_.ExpectNewestFirst([this](int64_t all) { SendWhileBusy(all); },
                           [this](int64_t number) {
                             const HttpReply reply = clients_[static_cast<size_t>(number)]->Read();
                             const bool is_refused = reply.fields.contains("retry-after");
                             EXPECT_EQ(reply.code, is_refused ? 429 : 200);
                             return is_refused;
                           });
}

TEST_F(OverloadTest, WhatIsBehindARefusedRequestIsAnswered) {
  calls_.refused = {2, 4};
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

// It was accepted: it is not thrown away.
TEST_F(OverloadTest, DrainAnswersWhatWaitsUnread) {
  SendWhileBusy(20);
  std::thread drain(
      [this] { EXPECT_TRUE(server_->Drain(RealClock().Now() + std::chrono::minutes(1)).ok()); });
  calls_.Release();
  for (const auto& client : clients_) EXPECT_EQ(client->Read().code, 200);
  drain.join();
}

TEST_F(OverloadTest, DrainEndsWhatWaitsForRoom) {
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
