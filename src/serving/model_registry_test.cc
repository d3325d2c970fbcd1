#include "serving/model_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "testing/fakes/manual_executor.h"
#include "testing/fakes/plain_tier.h"

namespace hps {
namespace {

using std::chrono::milliseconds;

class ModelRegistryTest : public testing::Test {
 protected:
  static Deadline In(milliseconds wait) { return DeadlineAfter(RealClock(), wait); }
  static Deadline Patient() { return In(std::chrono::seconds(30)); }

  std::shared_ptr<LiveTable> Load(const std::string& model, const std::string& table) {
    LiveTable::Parts parts;
    parts.l3 = std::make_unique<PlainDurableTable>(TableSpec{.name = table, .dim = 4});
    std::shared_ptr<LiveTable> live = std::make_shared<LiveTable>(std::move(parts));
    EXPECT_TRUE(registry_.FindOrAdd(model).Publish({live}, 7).ok());
    executor_.RunAll();
    return live;
  }

  EpochDomain domain_;
  ManualExecutor executor_;
  ModelRegistry registry_{domain_, executor_};
};

TEST_F(ModelRegistryTest, FindsModelsAndTables) {
  EXPECT_EQ(registry_.Find("m"), nullptr);
  EXPECT_EQ(registry_.FindTable("m/a"), nullptr);
  const std::shared_ptr<LiveTable> table = Load("m", "m/a");
  EXPECT_EQ(registry_.Find("m")->version(), 7);
  EXPECT_EQ(registry_.FindTable("m/a"), table);
  EXPECT_EQ(registry_.FindTable("m/b"), nullptr);
  EXPECT_EQ(registry_.models().size(), 1);
}

TEST_F(ModelRegistryTest, AWriterGetsTheLiveTableOrNull) {
  const std::shared_ptr<LiveTable> table = Load("m", "m/a");
  const auto loaded = registry_.AcquireWriter("m/a", Patient());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->live(), table);
  const auto unloaded = registry_.AcquireWriter("n/a", Patient());
  ASSERT_TRUE(unloaded.ok());
  EXPECT_EQ(unloaded->live(), nullptr);
}

TEST_F(ModelRegistryTest, ATableHasOneWriter) {
  auto first = registry_.AcquireWriter("m/a", Patient());
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(registry_.AcquireWriter("m/b", Patient()).ok()) << "another table";
  const auto second = registry_.AcquireWriter("m/a", In(milliseconds(1)));
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("table 'm/a'"), std::string::npos);
  std::thread waiting([&] { EXPECT_TRUE(registry_.AcquireWriter("m/a", Patient()).ok()); });
  { const WriteLease ended = *std::move(first); }
  waiting.join();
}

TEST_F(ModelRegistryTest, ASwitchWaitsForWritersAndNamesOneThatDoesNotEnd) {
  auto writer = registry_.AcquireWriter("m/a", Patient());
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(registry_.BlockWriters("n", In(milliseconds(1))).ok()) << "another model";
  const auto refused = registry_.BlockWriters("m", In(milliseconds(1)));
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("table 'm/a'"), std::string::npos);
  EXPECT_TRUE(registry_.AcquireWriter("m/b", Patient()).ok()) << "the switch has given up";
  std::thread switching([&] { EXPECT_TRUE(registry_.BlockWriters("m", Patient()).ok()); });
  { const WriteLease ended = *std::move(writer); }
  switching.join();
}

TEST_F(ModelRegistryTest, WritersWaitForASwitch) {
  auto switching = registry_.BlockWriters("m", Patient());
  ASSERT_TRUE(switching.ok());
  const auto refused = registry_.AcquireWriter("m/a", In(milliseconds(1)));
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("is being loaded"), std::string::npos);
  EXPECT_EQ(registry_.BlockWriters("m", In(milliseconds(1))).status().code(),
            absl::StatusCode::kUnavailable);
  std::shared_ptr<LiveTable> table;
  std::thread writing([&] {
    const auto writer = registry_.AcquireWriter("m/a", Patient());
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(writer->live(), table) << "it gets the table that the switch published";
  });
  table = Load("m", "m/a");
  { const SwitchLease ended = *std::move(switching); }
  writing.join();
}

// Would catch two writers, or a writer beside a switch, let in at the same time.
TEST_F(ModelRegistryTest, NothingRunsBesideASwitch) {
  std::atomic<int> writers = 0;
  std::atomic<bool> switching = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        if (i == 0) {
          const auto lease = registry_.BlockWriters("m", Patient());
          ASSERT_TRUE(lease.ok());
          switching = true;
          EXPECT_EQ(writers, 0);
          switching = false;
        } else {
          const auto lease = registry_.AcquireWriter("m/a", Patient());
          ASSERT_TRUE(lease.ok());
          EXPECT_EQ(++writers, 1);
          EXPECT_FALSE(switching);
          --writers;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hps
