// A level 1 and tables of level 2 whose rows its device reads by itself (tier/direct_rows.h).
//
// Include it in tests only. Rows are stamped with (table number, key, version).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "l2_memory/memory_tier.h"
#include "query/test_query_world.h"
#include "serving/l2_pinner.h"
#include "testing/await.h"
#include "testing/faults/fault_cache.h"
#include "tests/query/test_level1.h"

namespace hps {

inline std::vector<Key> KeysFrom(Key first, size_t count) {
  std::vector<Key> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

// Rows that a test of concurrent threads reads, at least: HPS_TEST_ROWS, or few.
inline uint64_t RowsToRead() {
  const char* const text = std::getenv("HPS_TEST_ROWS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : uint64_t{200'000};
}

class DirectWorldTest : public testing::Test {
 protected:
  static constexpr Duration kWaitMax = std::chrono::seconds(60);

  void SetUp() override {
    level1_ = MakeTestLevel1(uint64_t{256} << 20);
    if (!level1_.why_skipped.empty()) GTEST_SKIP() << level1_.why_skipped;
    memory_ = level1_.memory.get();
    cache_ = WithFaults(std::move(level1_.cache), &faults_);
    pin_executor_ = *WorkerPool::Create({.name = "pin"});
    pinner_ = std::make_unique<L2Pinner>(std::vector<DeviceCache*>{cache_.get()}, uint64_t{1} << 30,
                                         *pin_executor_);
    const MemoryTierOptions options{.huge_pages = false, .pinner = pinner_.get()};
    tier_ = MakeMemoryTier(options);
  }

  // A table with room for `row_count` rows, filled with keys from 0 on, which the device can read.
  std::unique_ptr<LossyTable> OpenLevel2(uint64_t number, size_t row_bytes, size_t row_count,
                                         size_t filled_count) {
    const TableSpec spec{.name = "m/t", .dim = static_cast<uint32_t>(row_bytes / sizeof(float))};
    auto table = *tier_->OpenTable(spec, 1, MemoryTierBytesFor(row_count, row_bytes, {}));
    StampedQuery rows(number, KeysFrom(0, filled_count), 1, row_bytes);
    EXPECT_TRUE(table->Insert(rows.batch(), 0).ok());
    auto* const direct = dynamic_cast<DirectReadable*>(table.get());
    EXPECT_TRUE(AwaitCondition([&] {
      const std::optional<size_t> reads = direct->BeginDirectReads();
      if (reads.has_value()) direct->EndDirectReads(*reads);
      return reads.has_value();
    })) << "not pinned";
    return table;
  }

  TestLevel1 level1_;
  TierFaults faults_;
  CacheMemory* memory_ = nullptr;
  std::unique_ptr<DeviceCache> cache_;
  std::unique_ptr<L2Pinner> pinner_;
  std::unique_ptr<Executor> pin_executor_;
  std::unique_ptr<LossyTier> tier_;
};

}  // namespace hps
