// Far more calls than the server may hold: each ends exactly once, in a way that is allowed, the
// counts add up, and all capacity comes back.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/core/test_server_world.h"
#include "testing/await.h"

namespace hps::server {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 60;
constexpr int kKeys = 256;
constexpr int kKeysInFlight = 2048;  // of 96 calls, 8
constexpr int kCallsAtOnce = 12;     // of one thread: the others don't wait for the first

// Calls that hold all of the server's capacity while each thread offers its first round: those are
// refused however the threads' turns fall.
class AllTaken {
 public:
  explicit AllTaken(ServerWorld& world) {
    for (int i = 0; i < kKeysInFlight / kKeys; ++i) {
      TestCall& call = *calls_.emplace_back(std::make_unique<TestCall>());
      call.request.model = "m";
      call.AddKeys("t", keys_);
      EXPECT_TRUE(call.Prepare(world.inference()).ok());
    }
  }
  void GiveBack() {
    EXPECT_TRUE(AwaitLatch(first_rounds_));
    calls_.clear();
    given_back_.CountDown();
  }
  void EndFirstRound() {
    first_rounds_.CountDown();
    EXPECT_TRUE(AwaitLatch(given_back_));
  }

 private:
  const std::vector<Key> keys_ = std::vector<Key>(kKeys);
  std::vector<std::unique_ptr<TestCall>> calls_;
  Latch first_rounds_{kThreads};
  Latch given_back_{1};
};

struct Counts {
  std::atomic<uint64_t> offered = 0;
  std::atomic<uint64_t> refused = 0;
  std::atomic<uint64_t> answered = 0;
  std::atomic<uint64_t> late = 0;
  std::atomic<uint64_t> wrong = 0;
};

void Offer(ServerWorld& world, uint64_t seed, AllTaken& all_taken, Counts& counts) {
  std::mt19937_64 random(seed);
  std::vector<Key> keys(kKeys);
  for (Key& key : keys) key = static_cast<Key>(random() % 4000);
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < kCallsAtOnce; ++i) calls.push_back(std::make_unique<TestCall>());
  for (int round = 0; round < kRounds; ++round) {
    std::vector<TestCall*> running;
    for (const auto& call : calls) {
      call->request.model = random() % 4 == 0 ? "n" : "m";
      call->request.timeout = random() % 3 == 0 ? std::chrono::milliseconds(1) : Duration();
      call->AddKeys("t", keys);
      ++counts.offered;
      const absl::Status started = call->Start(world.inference());
      if (started.ok()) {
        running.push_back(call.get());
      } else if (started.code() == absl::StatusCode::kResourceExhausted) {
        ++counts.refused;
      } else {
        ++counts.wrong;
      }
    }
    for (TestCall* call : running) {
      ASSERT_TRUE(call->Await());
      if (call->done_count() != 1) ++counts.wrong;
      if (call->status().ok()) {
        ++counts.answered;
      } else if (call->status().code() == absl::StatusCode::kDeadlineExceeded) {
        ++counts.late;
      } else {
        ++counts.wrong;
      }
    }
    for (const auto& call : calls) call->ResetAll();
    if (round == 0) all_taken.EndFirstRound();
  }
}

TEST(OverloadTest, EveryCallEndsOnceAndAllCapacityComesBack) {
  ServerWorld world;
  world.config().server.keys_in_flight_max = kKeysInFlight;
  world.config().server.batch_keys_max = 1024;
  world.ImportAll({{"m/t", 4000, 16}, {"n/t", 4000, 16}});
  world.Start();
  AllTaken all_taken(world);
  Counts counts;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { Offer(world, i + 1, all_taken, counts); });
  all_taken.GiveBack();
  for (std::thread& thread : threads) thread.join();
  if (HasFatalFailure()) return;

  EXPECT_EQ(counts.wrong, 0u);
  EXPECT_EQ(counts.offered, uint64_t{kThreads} * kRounds * kCallsAtOnce);
  EXPECT_EQ(counts.offered, counts.refused + counts.answered + counts.late);
  EXPECT_GE(counts.refused, uint64_t{kThreads} * kCallsAtOnce);
  EXPECT_GT(counts.answered, 0u);
  const ServerStatistics statistics = world.core().Snapshot();
  EXPECT_EQ(statistics.keys_in_flight, 0u);
  EXPECT_EQ(statistics.bytes_in_flight, 0u);
  uint64_t answered = 0;
  uint64_t failed = 0;
  uint64_t calls_of_batches = 0;
  for (const ModelServerStatistics& model : statistics.models) {
    answered += model.requests;
    failed += model.requests_failed;
    EXPECT_EQ(model.queue_depth, 0u);
    EXPECT_EQ(model.stages[static_cast<size_t>(Stage::kTotal)].count, model.requests);
    for (const auto& [calls, count] : model.batch_sizes) calls_of_batches += calls * count;
  }
  EXPECT_EQ(answered, counts.answered);
  EXPECT_EQ(failed, counts.late);
  EXPECT_LE(calls_of_batches, counts.answered);  // classes are named by their least size
  uint64_t refused = 0;
  for (const auto& [reason, count] : statistics.refused) refused += count;
  EXPECT_EQ(refused, counts.refused);
}

}  // namespace
}  // namespace hps::server
