#include "l3_rocksdb/files/store_env.h"

#include <gtest/gtest.h>
#include <rocksdb/system_clock.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "l3_rocksdb/test_disk.h"
#include "l3_rocksdb/test_store.h"

namespace {

// Offset of the wall clock.
std::atomic<int64_t> set_forward_s = 0;

}  // namespace

// Overrides the C library's function, which RocksDB calls for the time of day.
extern "C" __attribute__((visibility("default"))) int gettimeofday(timeval* to, void*) noexcept {
  timespec now{};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  to->tv_sec = now.tv_sec + set_forward_s;
  to->tv_usec = now.tv_nsec / 1000;
  return 0;
}

namespace hps {
namespace {

constexpr uint64_t kStamp = 5;
constexpr int64_t kHourS = 3600;
constexpr size_t kRows = 1000;

class StoreEnvTest : public testing::Test {
 protected:
  ~StoreEnvTest() override { set_forward_s = 0; }

  // Creates a store whose rows are changes, in table files of some dozen blocks.
  void MakeStore() {
    {
      const auto store = OpenRocksStore(TestOptions(path()));
      ASSERT_TRUE(store.ok()) << store.status();
      const TableSpec spec = {.name = "m/t", .dim = 64};
      const auto import = (*store)->BeginImport({&spec, 1});
      ASSERT_TRUE(import.ok()) << import.status();
      ASSERT_TRUE((*import)->Commit().ok());
      StampedRows rows(kStamp, spec.row_bytes(), Keys());
      ASSERT_TRUE((*(*store)->OpenTable("m/t"))->Write({.upserts = rows.batch()}).ok());
    }
    ASSERT_TRUE(OpenRocksStore(TestOptions(path())).ok());  // which writes the log to table files
  }
  std::unique_ptr<DurableStore> Open(OpenMode mode) {
    RocksStoreOptions options = TestOptions(path());
    options.mode = mode;
    options.env = env_.get();
    auto store = OpenRocksStore(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // Calls `read` with the table of a reader and with the table of the store's owner.
  void ForEachMode(const std::function<void(DurableTable& table)>& read) {
    for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite}) {
      const auto store = Open(mode);
      ASSERT_NE(store, nullptr);
      const auto table = store->OpenTable("m/t");
      ASSERT_TRUE(table.ok()) << table.status();
      read(**table);
    }
  }
  static std::vector<Key> Keys() {
    std::vector<Key> keys;
    for (size_t i = 0; i < kRows; ++i) keys.push_back(static_cast<Key>(i));
    return keys;
  }
  std::string path() const { return directory_.path() + "/store"; }

  const TestDirectory directory_;
  const std::shared_ptr<TestDisk> disk_ = std::make_shared<TestDisk>();
  const std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
};

TEST_F(StoreEnvTest, BeginsAtTheTimeOfDayAndIgnoresClockChanges) {
  const std::unique_ptr<rocksdb::Env> env = NewStoreEnv(disk_);
  EXPECT_EQ(env->GetFileSystem(), disk_);
  const uint64_t before = env->NowMicros();
  set_forward_s = kHourS;
  const uint64_t machine = rocksdb::Env::Default()->NowMicros();
  EXPECT_GT(machine, before + uint64_t{kHourS} * 999'000);  // the test's clock is used
  set_forward_s = -kHourS;
  const uint64_t after = env->GetSystemClock()->NowMicros();
  EXPECT_GE(after, before);
  EXPECT_LT(after, before + uint64_t{kHourS} * 1'000'000);
  set_forward_s = 0;
}

// Catches: RocksDB's deadlines compared with the wall clock.
TEST_F(StoreEnvTest, AClockChangeEndsNoRunningRead) {
  MakeStore();
  ForEachMode([&](DurableTable& table) {
    size_t reads = 0;
    disk_->on_read = [&reads] { set_forward_s = ++reads % 2 == 0 ? -kHourS : kHourS; };
    const FetchedRows fetched(table, Keys(), DeadlineAfter(RealClock(), std::chrono::minutes(30)));
    disk_->on_read = {};
    EXPECT_GT(reads, 2u);
    ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    EXPECT_EQ(fetched.counts->hits, kRows);
  });
}

// A read ends within one piece of a lookup after its deadline.
TEST_F(StoreEnvTest, AReadEndsWhenItsDeadlineHasPassed) {
  MakeStore();
  ForEachMode([&](DurableTable& table) {
    const Deadline deadline = DeadlineAfter(RealClock(), std::chrono::milliseconds(100));
    disk_->on_read = [deadline] {
      while (RealClock().Now() <= deadline) {
      }
    };
    disk_->reads_left = 100;
    const FetchedRows fetched(table, Keys(), deadline);
    disk_->on_read = {};
    EXPECT_EQ(fetched.counts.status().code(), absl::StatusCode::kDeadlineExceeded);
    // The rows of a piece lie in three blocks at most, which are read by one call.
    EXPECT_GE(disk_->reads_left, 100u - 3) << "it went on reading";
    disk_->reads_left = UINT64_MAX;
  });
}

}  // namespace
}  // namespace hps
