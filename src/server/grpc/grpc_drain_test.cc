// A gRPC server ends while calls run.

#include <thread>

#include "base/executor.h"
#include "server/grpc/test_grpc_world.h"
#include "testing/await.h"

namespace hps::server {
namespace {

class GrpcDrainTest : public GrpcWorld {
 protected:
  void SetUp() override {
    const absl::Status started = Start();
    ASSERT_TRUE(started.ok()) << started;
  }
};

// Catches: a server or a queue that is destroyed before the lookup of a call ends.
TEST_F(GrpcDrainTest, EndsOnlyWhenTheLookupsOfItsCallsHaveEnded) {
  gate_->Close();
  std::thread waiting([&] {
    inference::ModelInferResponse response;
    EXPECT_FALSE(Infer(Request({7}), &response).ok());
  });
  EXPECT_TRUE(gate_->AwaitWaiting(1));
  EXPECT_EQ(server_->Drain(DeadlineAfter(RealClock(), std::chrono::milliseconds(1))).code(),
            absl::StatusCode::kDeadlineExceeded);
  waiting.join();
  Latch gone(1);
  std::thread ending([&] {
    server_.reset();
    gone.CountDown();
  });
  EXPECT_FALSE(gone.WaitUntil(DeadlineAfter(RealClock(), std::chrono::milliseconds(200))));
  gate_->Open();
  EXPECT_TRUE(AwaitLatch(gone));
  ending.join();
  EXPECT_EQ(world_.core().Snapshot().keys_in_flight, 0U);
}

}  // namespace
}  // namespace hps::server
