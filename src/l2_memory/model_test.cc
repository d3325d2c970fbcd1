// The same random operations on a table and on a plain map: the table's answer must be the map's or
// a miss, whatever was evicted.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "l2_memory/memory_tier.h"
#include "testing/contracts/lossy_rows.h"
#include "testing/trials.h"

namespace hps {
namespace {

constexpr uint64_t kTable = 3;

class Model {
 public:
  Model(const MemoryTierOptions& options, size_t row_bytes, uint64_t bytes_max, uint64_t seed)
      : row_bytes_(row_bytes), random_(seed) {
    auto table = MakeMemoryTier(options)->OpenTable(ContractSpec(row_bytes), 1, bytes_max);
    EXPECT_TRUE(table.ok()) << table.status();
    table_ = *std::move(table);
  }

  void Run(size_t operations, size_t keys) {
    key_count_ = keys;
    while (operations_ < operations && !::testing::Test::HasFatalFailure()) Step();
    const LevelStatistics statistics = table_->Statistics();
    EXPECT_LE(statistics.bytes_used, statistics.bytes_max);
    EXPECT_LE(statistics.entries + statistics.absent_entries, truth_.size());
    EXPECT_GT(hits_, operations / 20);  // otherwise the run has tested nothing
  }

  uint64_t evictions() const { return table_->Statistics().evictions; }
  uint64_t misses_of_held() const { return lost_; }

 private:
  struct Truth {
    Version version = 0;
    bool absent = false;
  };

  std::vector<Key> RandomKeys() {
    std::vector<Key> keys(1 + random_() % 100);
    for (Key& key : keys) key = static_cast<Key>((random_() % key_count_) * 0x9e3779b97f4a7c15);
    return keys;
  }

  void Step() {
    const std::vector<Key> keys = RandomKeys();
    operations_ += keys.size();
    const uint64_t choice = random_() % 100;
    if (choice < 50) {
      Fetch(keys);
    } else if (choice < 80) {
      Insert(keys);
    } else if (choice < 92) {
      Update(keys);
    } else if (choice < 99) {
      ASSERT_TRUE(table_->Erase(keys).ok());
      for (const Key key : keys) truth_.erase(key);
    } else if (random_() % 20 == 0) {
      ASSERT_TRUE(table_->Clear().ok());
      truth_.clear();
    }
  }

  void Fetch(const std::vector<Key>& keys) {
    const ContractFetch fetch(*table_, keys, row_bytes_, random_() % 2 == 0);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto truth = truth_.find(keys[i]);
      if (fetch.outcome(i) == FetchOutcome::kMiss) {
        lost_ += truth != truth_.end();
        truth_.erase(keys[i]);
        continue;
      }
      ASSERT_TRUE(truth != truth_.end()) << "an answer for key " << keys[i] << ", never held";
      ++hits_;
      if (truth->second.absent) {
        ASSERT_EQ(fetch.outcome(i), FetchOutcome::kAbsent);
      } else if (row_bytes_ >= 16) {
        ASSERT_EQ(StampedRow::VersionOf(kTable, keys[i], fetch.row(i)), truth->second.version);
      } else {
        ASSERT_TRUE(StampedRow::Matches(kTable, keys[i], truth->second.version, fetch.row(i)));
      }
    }
  }

  // Each row of L3 is newer than the previous one, as the fence guarantees.
  void Insert(std::vector<Key> keys) {
    // Of a key's duplicates an earlier one is inserted if the last one is evicted within the batch.
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    ContractRows rows(kTable, keys, row_bytes_, 0);
    std::map<Key, Truth> batch;
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool absent = random_() % 8 == 0;
      rows.Stamp(i, kTable, ++version_);
      if (absent) rows.SetAbsent(i);
      batch[keys[i]] = {version_, absent};
    }
    // A key that was evicted unnoticed may be inserted now: find out which keys are held.
    Fetch(keys);
    const auto counts = table_->Insert(rows.batch(), 0);
    ASSERT_TRUE(counts.ok());
    ASSERT_EQ(counts->inserted + counts->held + counts->dropped, keys.size());
    // Insertions may evict rows of their own batch, so held keys keep their expected value.
    for (const auto& [key, truth] : batch) {
      if (!truth_.contains(key)) truth_[key] = truth;
    }
    Reconcile(keys, batch);
  }

  // A key that was held before the batch may have been evicted and inserted again within it.
  void Reconcile(const std::vector<Key>& keys, const std::map<Key, Truth>& batch) {
    const ContractFetch fetch(*table_, keys, row_bytes_);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (fetch.outcome(i) == FetchOutcome::kMiss) {
        truth_.erase(keys[i]);
      } else if (!Agrees(fetch, i, truth_[keys[i]])) {
        truth_[keys[i]] = batch.at(keys[i]);
      }
    }
  }
  bool Agrees(const ContractFetch& fetch, size_t i, const Truth& truth) const {
    if (truth.absent) return fetch.outcome(i) == FetchOutcome::kAbsent;
    return fetch.outcome(i) == FetchOutcome::kHit && fetch.version(i) == truth.version;
  }

  void Update(const std::vector<Key>& keys) {
    ContractRows rows(kTable, keys, row_bytes_, 0);
    std::map<Key, Version> batch;
    for (size_t i = 0; i < keys.size(); ++i) {
      // Half of the updates are too old.
      const Version version = random_() % 2 == 0 ? ++version_ : version_ / 2;
      rows.Stamp(i, kTable, version);
      batch[keys[i]] = std::max(batch[keys[i]], version);
    }
    Fetch(keys);
    ASSERT_TRUE(table_->Update(rows.batch()).ok());
    for (const auto& [key, version] : batch) {
      const auto truth = truth_.find(key);
      if (truth == truth_.end()) continue;
      if (truth->second.absent || truth->second.version < version) truth->second = {version, false};
    }
  }

  const size_t row_bytes_;
  std::mt19937_64 random_;
  std::unique_ptr<LossyTable> table_;
  std::map<Key, Truth> truth_;
  Version version_ = 1;
  size_t key_count_ = 1;
  size_t operations_ = 0;
  size_t hits_ = 0;
  size_t lost_ = 0;
};

TEST(MemoryTableModelTest, AnswersLikeAMapWhileThereIsRoom) {
  const uint64_t seed = TestSeed();
  for (const size_t row_bytes : {4, 64, 200}) {
    Model model({}, row_bytes, 8 << 20, seed + row_bytes);
    model.Run(Trials(400'000), 3000);
    EXPECT_EQ(model.evictions(), 0u);
    EXPECT_EQ(model.misses_of_held(), 0u);
  }
}

TEST(MemoryTableModelTest, AnswersLikeAMapOrMissesUnderEviction) {
  const uint64_t seed = TestSeed();
  for (const EvictionPolicy eviction :
       {EvictionPolicy::kOldest, EvictionPolicy::kLeastUsed, EvictionPolicy::kRandom}) {
    const MemoryTierOptions options{.eviction = eviction, .partitions = 3};
    Model model(options, 64, MemoryTierBytesFor(1000, 64, options), seed);
    model.Run(Trials(400'000), 4000);
    EXPECT_GT(model.evictions(), 1000u);
  }
}

}  // namespace
}  // namespace hps
