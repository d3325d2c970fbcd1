// Models come, go and change under calls: no call of another model fails, no answer mixes two
// versions, and each answer is of the version that it says it is of.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "server/core/test_server_world.h"
#include "testing/await.h"

namespace hps::server {
namespace {

constexpr size_t kRows = 200;
constexpr size_t kDim = 8;

struct Watched {
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> answered = 0;
  std::atomic<uint64_t> unavailable = 0;
  std::atomic<uint64_t> newest_version = 0;
};

// Asks two tables of `model` again and again until it is to stop.
void Ask(ServerWorld& world, const std::string& model, bool may_be_away, Watched& watched) {
  std::vector<Key> keys;
  for (size_t i = 0; i < kRows; ++i) keys.push_back(static_cast<Key>(i));
  TestCall call;
  uint64_t last_version = 0;
  while (!watched.stop) {
    call.ResetAll();
    call.request.model = model;
    call.AddKeys("s", keys);
    call.AddKeys("t", keys);
    const absl::Status status = call.Answer(world.inference());
    if (may_be_away && status.code() == absl::StatusCode::kUnavailable) {
      ++watched.unavailable;
      std::this_thread::yield();
      continue;
    }
    ASSERT_TRUE(status.ok()) << model << ": " << status;
    const uint64_t version = std::stoull(std::string(call.model_version));
    ASSERT_GE(version, last_version);
    last_version = version;
    for (size_t output = 0; output < 2; ++output) {
      const std::string table = model + (output == 0 ? "/s" : "/t");
      for (size_t i = 0; i < kRows; ++i) {
        ASSERT_TRUE(ServerWorld::IsRow(
            table, keys[i], version,
            call.bytes(output).subspan(i * kDim * sizeof(float), kDim * sizeof(float))))
            << table << " version " << version << " key " << keys[i];
      }
    }
    ++watched.answered;
    uint64_t newest = watched.newest_version;
    while (newest < version && !watched.newest_version.compare_exchange_weak(newest, version)) {
    }
  }
}

class ServerLifeCycleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.config().server.lookups = 2;
    // Each model at once, so that it begins with version 1.
    world_.ImportModel("stays", {"s", "t"}, kRows, kDim, 1);
    world_.ImportModel("goes", {"s", "t"}, kRows, kDim, 1);
    world_.Start();
  }
  void Begin(const std::string& model, bool may_be_away, Watched& watched) {
    for (int i = 0; i < 2; ++i)
      threads_.emplace_back([&, model, may_be_away] { Ask(world_, model, may_be_away, watched); });
  }
  void End(Watched& watched) {
    watched.stop = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Waits until at least `count` more calls were answered, so that each step meets some.
  static void AwaitCalls(const Watched& watched, uint64_t count) {
    const uint64_t until = watched.answered + count;
    EXPECT_TRUE(AwaitCondition([&] { return watched.answered >= until; }));
  }
  LevelStatistics L2Of(const std::string& model) {
    LevelStatistics sum;
    for (const TableStatistics& table : world_.store().Statistics().tables) {
      if (!table.name.starts_with(model + "/")) continue;
      sum.bytes_max += table.l2.bytes_max;
      sum.entries += table.l2.entries;
    }
    return sum;
  }

  ServerWorld world_;
  std::vector<std::thread> threads_;
};

TEST_F(ServerLifeCycleTest, LoadAndUnloadFailNobodyElse) {
  Watched stays;
  Watched goes;
  Begin("stays", false, stays);
  Begin("goes", true, goes);
  for (int i = 0; i < 10; ++i) {
    AwaitCalls(goes, 3);
    ASSERT_TRUE(world_.core().repository().Unload("goes").ok());
    EXPECT_EQ(L2Of("goes").bytes_max, 0u) << "its memory is back when Unload returns";
    AwaitCalls(stays, 3);
    const uint64_t refused = goes.unavailable;
    EXPECT_TRUE(AwaitCondition([&] { return goes.unavailable > refused; }));
    ASSERT_TRUE(world_.core().repository().Load("goes").ok());
    EXPECT_GT(L2Of("goes").bytes_max, 0u);
  }
  AwaitCalls(goes, 3);
  goes.stop = true;
  End(stays);
  EXPECT_EQ(goes.newest_version, 1u) << "the same rows are the same version";
  EXPECT_TRUE(world_.core().repository().ServerReady());
}

TEST_F(ServerLifeCycleTest, ANewVersionFailsNobody) {
  Watched goes;
  Watched stays;
  Begin("goes", false, goes);
  Begin("stays", false, stays);
  for (Version version = 2; version <= 6; ++version) {
    AwaitCalls(goes, 3);
    world_.ImportModel("goes", {"s", "t"}, kRows, kDim, version);
    ASSERT_TRUE(world_.core().repository().Load("goes").ok());
    AwaitCalls(goes, 3);
  }
  goes.stop = true;
  End(stays);
  EXPECT_EQ(goes.newest_version, 6u);
  EXPECT_EQ(stays.newest_version, 1u);
}

TEST_F(ServerLifeCycleTest, ErrorsOfTheRepository) {
  StoreRepository& repository = world_.core().repository();
  EXPECT_EQ(repository.Load("gos").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(repository.Unload("gos").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(repository.Unload("goes").ok());
  EXPECT_EQ(repository.Metadata("goes", "").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(repository.Unload("goes").ok()) << "twice is no error";
  const auto metadata = repository.Metadata("stays", "1");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_EQ(metadata->inputs.size(), 4u) << "two tables, KEYS and NUMKEYS";
  EXPECT_EQ(metadata->outputs.size(), 5u) << "two tables, their statuses and OUTPUT0";
  EXPECT_EQ(metadata->outputs.at(3).name, "t.status");
  EXPECT_EQ(repository.Metadata("stays", "2").status().code(), absl::StatusCode::kNotFound);
  const auto index = repository.Index();
  ASSERT_EQ(index.size(), 2u);
  EXPECT_EQ(index[0].name, "goes");
  EXPECT_EQ(index[0].state, ModelState::kUnavailable);
  EXPECT_EQ(index[0].reason, "it was unloaded");
  EXPECT_EQ(index[0].version, "1");
  EXPECT_EQ(index[1].state, ModelState::kReady);
}

}  // namespace
}  // namespace hps::server
