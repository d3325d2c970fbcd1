// A table of level 2 on Redis, of which a test knows what it must answer.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/macros.h"
#include "testing/await.h"
#include "testing/contracts/lossy_rows.h"
#include "tier/redis_tier.h"

namespace hps {

inline constexpr uint64_t kTable = 7;
inline constexpr size_t kRowBytes = 64;
inline constexpr size_t kKeys = 2000;

inline std::vector<Key> Keys(size_t count = kKeys) {
  std::vector<Key> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = static_cast<Key>(i);
  return keys;
}

// A table, and the newest version that was written of all its keys.
class Watched {
 public:
  explicit Watched(const RedisConfig& config) {
    auto made = MakeRedisTier(config);
    HPS_CHECK(made.ok());
    statistics_ = made->statistics;
    tier_ = std::move(made->tier);
    Open(1);
  }
  // Another table of the same level.
  explicit Watched(const Watched& beside) : statistics_(beside.statistics_), tier_(beside.tier_) {
    Open(2);
  }

  RemoteLevelStatistics statistics() const { return statistics_(); }

  // As a promotion does: the newest rows, where none are held.
  uint64_t Insert() {
    ContractRows rows(kTable, Keys(), kRowBytes, version_);
    const auto counts = table_->Insert(rows.batch(), epoch_);
    EXPECT_TRUE(counts.ok());
    return counts.ok() ? counts->inserted : 0;
  }
  // As a change does. Whatever it returns, no older row may be answered.
  uint64_t Update() {
    EXPECT_TRUE(table_->RaiseWatermarks(Keys(), ++epoch_, kNoDeadline).ok());
    ContractRows rows(kTable, Keys(), kRowBytes, ++version_);
    const auto replaced = table_->Update(rows.batch());
    EXPECT_TRUE(replaced.ok());
    return replaced.value_or(0);
  }
  // A change of a key that is not among the watched ones.
  void UpdateAnotherKey() {
    const std::vector<Key> keys = {static_cast<Key>(kKeys)};
    EXPECT_TRUE(table_->RaiseWatermarks(keys, ++epoch_, kNoDeadline).ok());
    ContractRows rows(kTable, keys, kRowBytes, version_ + 1);
    EXPECT_TRUE(table_->Update(rows.batch()).ok());
  }
  // The number of hits. Every one is of the newest version.
  size_t Fetch() {
    const ContractFetch fetch(*table_, Keys(), kRowBytes);
    EXPECT_TRUE(fetch.status().ok());
    size_t hits = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      if (fetch.outcome(i) == FetchOutcome::kMiss) continue;
      ++hits;
      EXPECT_TRUE(fetch.IsRowOf(i, kTable, version_)) << "key " << i << " of version " << version_;
    }
    return hits;
  }
  // Inserts until all keys are held again.
  ::testing::AssertionResult Recovers() {
    return AwaitCondition([&] {
      Insert();
      return Fetch() == kKeys;
    });
  }

 private:
  void Open(Incarnation incarnation) {
    auto opened = tier_->OpenTable(ContractSpec(kRowBytes), incarnation, 0);
    HPS_CHECK(opened.ok());
    table_ = *std::move(opened);
  }

  std::function<RemoteLevelStatistics()> statistics_;
  std::shared_ptr<LossyTier> tier_;
  std::unique_ptr<LossyTable> table_;
  ApplyEpoch epoch_ = 0;
  Version version_ = 1;
};

// With a time-out that a test can wait for.
inline RedisConfig Quick(RedisConfig config) {
  config.timeout = std::chrono::milliseconds(300);
  return config;
}

}  // namespace hps
