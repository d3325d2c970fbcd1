// The long histories of the device cache's contract suite: how many keys are kept, the quality of
// eviction, random operations compared with a plain map, and concurrent operations on stamped rows.
// Included by device_cache_contract.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "testing/contracts/device_cache_contract_fixture.h"

namespace hps {

TEST_P(DeviceCacheContractTest, KeepsNearlyAllKeysAtThreeQuarters) {
  constexpr size_t kRows = 200'000;
  const StampedTable table = OpenTable(4, kRows);
  std::mt19937_64 random(1);
  std::vector<Key> keys(kRows);
  for (Key& key : keys) key = static_cast<Key>(random());
  for (size_t i = 0; i < kRows; i += 10'000) {
    InsertIfAbsent(table,
                   {keys.begin() + static_cast<std::ptrdiff_t>(i),
                    keys.begin() + static_cast<std::ptrdiff_t>(i + 10'000)},
                   1);
  }
  EXPECT_GE(table.table->Statistics().entries, kRows - kRows / 10'000);
}

// Draws keys 1..n with probability proportional to key^-alpha.
class PowerLaw {
 public:
  PowerLaw(uint64_t seed, double alpha, double n) : random_(seed), power_(1 - alpha), n_(n) {}
  Key Draw() {
    const double uniform = std::uniform_real_distribution<double>(0, 1)(random_);
    return static_cast<Key>(std::pow(uniform * (std::pow(n_, power_) - 1) + 1, 1 / power_));
  }

 private:
  std::mt19937_64 random_;
  const double power_;
  const double n_;
};

// The best hit rate of LRU, batch by batch as the cache is used.
class ExactLru {
 public:
  explicit ExactLru(size_t capacity) : capacity_(capacity) {}
  bool Touch(Key key) {
    const auto found = place_of_.find(key);
    if (found == place_of_.end()) return false;
    order_.splice(order_.begin(), order_, found->second);
    return true;
  }
  void Insert(Key key) {
    if (Touch(key)) return;
    order_.push_front(key);
    place_of_[key] = order_.begin();
    if (order_.size() <= capacity_) return;
    place_of_.erase(order_.back());
    order_.pop_back();
  }

 private:
  const size_t capacity_;
  std::list<Key> order_;
  std::unordered_map<Key, std::list<Key>::iterator> place_of_;
};

TEST_P(DeviceCacheContractTest, HitRateIsThatOfExactLru) {
  for (double alpha : {0.8, 1.1}) {
    const StampedTable table = OpenTable(4, 6000);
    InsertIfAbsent(table, Sequence(1'000'000, 50'000), 1);
    const size_t capacity = table.table->Statistics().entries;  // full by now, or nearly
    ASSERT_EQ(table.table->Clear(), absl::OkStatus());
    Flush(table);

    ExactLru exact(capacity);
    PowerLaw keys_of(7, alpha, 100'000);
    uint64_t positions = 0, exact_hits = 0, hits = 0;
    for (int batch = 0; batch < 400; ++batch) {
      std::vector<Key> keys(1024);
      for (Key& key : keys) key = keys_of.Draw();
      const ContractQuery query = Lookup(table, keys);
      InsertIfAbsent(table, query.misses, 1);
      const auto exact_hit = static_cast<uint64_t>(
          std::count_if(keys.begin(), keys.end(), [&](Key key) { return exact.Touch(key); }));
      for (Key key : keys) exact.Insert(key);
      if (batch < 200) continue;  // while it fills
      positions += keys.size();
      exact_hits += exact_hit;
      hits += query.counts[KeyStatus::kHitL1];
    }
    const double rate = static_cast<double>(hits) / static_cast<double>(positions);
    const double exact_rate = static_cast<double>(exact_hits) / static_cast<double>(positions);
    RecordProperty("hit_rate", std::to_string(rate));
    RecordProperty("exact_lru_hit_rate", std::to_string(exact_rate));
    EXPECT_GE(rate, exact_rate - 0.005) << "alpha " << alpha << ", exact " << exact_rate;
  }
}

// Seven keys fit into any slabset, so nothing is evicted and the cache behaves as a plain map.
TEST_P(DeviceCacheContractTest, SevenKeysBehaveLikeAMap) {
  const StampedTable table = OpenSmallestTable(16);
  std::map<Key, Version> map;
  std::mt19937_64 random(3);
  for (Version version = 1; version <= 3000; ++version) {
    std::vector<Key> keys;
    for (Key key : {Key{0}, Key{-1}, Key{1}, Key{99}, Key{INT64_MIN}, Key{INT64_MAX}, Key{7}}) {
      if (random() % 3 == 0) keys.push_back(key);
    }
    switch (random() % 4) {
      case 0:
        InsertIfAbsent(table, keys, version);
        for (Key key : keys) map.emplace(key, version);
        break;
      case 1:
        Update(table, keys, version);
        for (Key key : keys) {
          if (map.count(key) != 0) map[key] = version;
        }
        break;
      case 2:
        Erase(table, keys);
        for (Key key : keys) map.erase(key);
        break;
      default:
        const ContractQuery query = Lookup(table, keys);
        for (size_t i = 0; i < keys.size(); ++i) {
          const auto found = map.find(keys[i]);
          ASSERT_EQ(query.statuses[i] == KeyStatus::kHitL1, found != map.end()) << keys[i];
          ASSERT_TRUE(found == map.end() || query.Holds(i, found->second));
        }
    }
    ASSERT_EQ(table.table->Statistics().entries, map.size());
  }
  EXPECT_EQ(table.table->Statistics().evictions, 0u);
}

// One table under random operations, compared with a plain map of its source: every answer of the
// table must be the source's current row.
class RandomHistory {
 public:
  struct Promotion {  // fetched, not yet inserted
    std::vector<Key> keys;
    std::vector<Version> versions;
    ApplyEpoch epoch = 0;
  };

  RandomHistory(uint64_t seed, StampedTable table) : table_(std::move(table)), random_(seed) {}

  const StampedTable& table() const { return table_; }
  size_t operations() const { return operations_; }
  uint64_t late_keys_refused() const { return late_keys_refused_; }
  std::optional<Version> Expected(Key key) const {
    const auto found = source_.find(key);
    return found == source_.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<Key> DrawKeys(size_t count) {
    std::vector<Key> keys(count);
    for (Key& key : keys) {
      // A few hot keys meet all operations often; the other keys fill the capacity.
      const uint64_t range = random_() % 4 == 0 ? 50 : 3000;
      key = static_cast<Key>(random_() % range) - 20;
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    operations_ += keys.size();
    return keys;
  }
  uint64_t Draw(uint64_t count) { return random_() % count; }

  void Fetch() {
    Promotion promotion{.epoch = epochs_.published()};
    for (Key key : DrawKeys(1 + Draw(200))) {
      if (!Expected(key).has_value()) continue;
      promotion.keys.push_back(key);
      promotion.versions.push_back(*Expected(key));
    }
    fetched_.push_back(std::move(promotion));
  }

  // Inserts one of the fetched batches, the newest or any older one.
  void Promote() {
    if (fetched_.empty()) return;
    const size_t index = Draw(2) == 0 ? fetched_.size() - 1 : Draw(fetched_.size());
    const Promotion promotion = std::move(fetched_[index]);
    fetched_.erase(fetched_.begin() + static_cast<std::ptrdiff_t>(index));
    StampedBatch batch(table_, promotion.keys, promotion.versions);
    const auto refused = table_.table->InsertIfAbsent(batch.batch(), promotion.epoch);
    ASSERT_TRUE(refused.ok()) << refused.status();
    uint64_t changed_since = 0;
    for (size_t i = 0; i < promotion.keys.size(); ++i)
      changed_since += Expected(promotion.keys[i]) != promotion.versions[i] ? 1 : 0;
    EXPECT_GE(*refused, changed_since);
    EXPECT_TRUE(promotion.epoch < epochs_.published() || *refused == 0);
    late_keys_refused_ += *refused;
  }

  void Change() {
    const std::vector<Key> keys = DrawKeys(1 + Draw(40));
    const bool erases = Draw(4) == 0;
    const ApplyEpoch epoch = epochs_.Begin();
    ASSERT_EQ(table_.table->RaiseWatermarks(keys, epoch, kNoDeadline), absl::OkStatus());
    ++version_;
    for (Key key : keys) {
      if (erases) {
        source_.erase(key);
      } else {
        source_[key] = version_;
      }
    }
    epochs_.Publish(epoch);
    if (erases) {
      ASSERT_EQ(table_.table->Erase(keys, kNoDeadline), absl::OkStatus());
    } else {
      StampedBatch batch(table_, keys, version_);
      ASSERT_EQ(table_.table->Update(batch.batch(), kNoDeadline), absl::OkStatus());
    }
  }

  void Clear() { ASSERT_EQ(table_.table->Clear(), absl::OkStatus()); }

 private:
  const StampedTable table_;
  std::mt19937_64 random_;
  ApplyEpochs epochs_;
  std::map<Key, Version> source_;
  std::vector<Promotion> fetched_;
  Version version_ = 0;
  size_t operations_ = 0;
  uint64_t late_keys_refused_ = 0;
};

TEST_P(DeviceCacheContractTest, RandomOperationsAgreeWithAMap) {
  constexpr uint64_t kSeed = 20'261'120;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::vector<std::unique_ptr<RandomHistory>> histories;
  histories.push_back(std::make_unique<RandomHistory>(kSeed, OpenTable(16, 1500, 1)));
  histories.push_back(std::make_unique<RandomHistory>(kSeed + 1, OpenTable(100, 500, 2)));
  histories.push_back(std::make_unique<RandomHistory>(kSeed + 2, OpenSmallestTable(33, 3)));
  size_t operations = 0;
  uint64_t hits = 0;
  for (uint64_t step = 0; operations < 1'000'000 && !HasFailure(); ++step) {
    for (const auto& history : histories) {
      const uint64_t choice = history->Draw(1000);
      if (choice < 400) history->Fetch();
      if (choice >= 200 && choice < 600) history->Promote();
      if (choice >= 600 && choice < 800) history->Change();
      if (choice == 999) history->Clear();
    }
    std::vector<ContractQuery> queries;
    for (const auto& history : histories)
      queries.push_back({.table = &history->table(), .keys = history->DrawKeys(100)});
    for (const auto& history : histories) Flush(history->table());
    Lookup(queries, {});
    for (size_t q = 0; q < queries.size(); ++q) {
      const ContractQuery& query = queries[q];
      for (size_t i = 0; i < query.keys.size(); ++i) {
        if (query.statuses[i] != KeyStatus::kHitL1) continue;
        const std::optional<Version> expected = histories[q]->Expected(query.keys[i]);
        ASSERT_TRUE(expected.has_value()) << "erased key " << query.keys[i];
        ASSERT_TRUE(query.Holds(i, *expected)) << "key " << query.keys[i];
        ++hits;
      }
    }
    if (step % 500 != 0) continue;
    for (const auto& history : histories) {
      const std::vector<Key> all = Sequence(-20, 3000);
      const std::vector<Key> held =
          Held(history->table(), all, [&](Key key) { return history->Expected(key).value_or(0); });
      std::vector<Key> dumped = DumpAll(history->table());
      std::sort(dumped.begin(), dumped.end());
      ASSERT_EQ(dumped, held);
      ASSERT_EQ(history->table().table->Statistics().entries, held.size());
    }
    operations = 0;
    for (const auto& history : histories) operations += history->operations();
  }
  EXPECT_GE(hits, operations / 10);  // the history did exercise hits,
  for (const auto& history : histories) {
    EXPECT_GT(history->table().table->Statistics().evictions, 0u);  // evictions
    EXPECT_GT(history->late_keys_refused(), 100u);                  // and the fence
  }
}

// A small node: a source of rows, its applier, promoters and readers, each in its own thread.
class ConcurrentHistory {
 public:
  static constexpr size_t kKeys = 300;

  explicit ConcurrentHistory(const StampedTable& table) : table_(table) {
    for (auto& version : source_) version.store(1, std::memory_order_relaxed);
  }

  ApplyEpochs& epochs() { return epochs_; }
  bool stopped() const { return stopped_.load(); }
  void Stop() { stopped_.store(true); }
  // Even versions are deletions.
  Version Current(Key key) const { return source_[static_cast<size_t>(key)].load(); }

  // The applier: changes the source between the fence and the publication, and refreshes the table
  // later.
  void Apply() {
    std::mt19937_64 random(11);
    while (!stopped()) {
      std::vector<Key> keys;
      for (Key key = static_cast<Key>(random() % 20); key < Key{kKeys};
           key += 1 + static_cast<Key>(random() % 60)) {
        keys.push_back(key);
      }
      const ApplyEpoch epoch = epochs_.Begin();
      EXPECT_TRUE(table_.table->RaiseWatermarks(keys, epoch, kNoDeadline).ok());
      std::vector<Version> versions;
      for (Key key : keys) {
        versions.push_back(Current(key) % 2 == 1 && random() % 8 == 0 ? Current(key) + 1
                                                                      : (Current(key) | 1) + 2);
        source_[static_cast<size_t>(key)].store(versions.back());
      }
      epochs_.Publish(epoch);
      Refresh(keys, versions);
      std::this_thread::yield();
    }
  }

  void Promote(uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!stopped()) {
      const ApplyEpoch epoch = epochs_.published();
      std::vector<Key> keys;
      std::vector<Version> versions;
      for (int i = 0; i < 30; ++i) {
        const Key key = static_cast<Key>(random() % kKeys);
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
        const Version version = Current(key);
        if (version % 2 == 0) continue;
        keys.push_back(key);
        versions.push_back(version);
      }
      StampedBatch batch(table_, keys, versions);
      // A device that can't keep up drops promotions.
      const absl::Status replaced = table_.table->InsertIfAbsent(batch.batch(), epoch).status();
      EXPECT_TRUE(replaced.ok() || absl::IsResourceExhausted(replaced)) << replaced;
    }
  }

 private:
  void Refresh(const std::vector<Key>& keys, const std::vector<Version>& versions) {
    std::vector<Key> deleted, held;
    std::vector<Version> held_versions;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (versions[i] % 2 == 0) {
        deleted.push_back(keys[i]);
      } else {
        held.push_back(keys[i]);
        held_versions.push_back(versions[i]);
      }
    }
    StampedBatch batch(table_, held, held_versions);
    EXPECT_TRUE(table_.table->Update(batch.batch(), kNoDeadline).ok());
    EXPECT_TRUE(table_.table->Erase(deleted, kNoDeadline).ok());
  }

  const StampedTable& table_;
  ApplyEpochs epochs_;
  std::array<std::atomic<Version>, kKeys> source_;
  std::atomic<bool> stopped_{false};
};

// Catches torn and foreign rows, and rows that become older: through a promotion that the fence
// should have refused, or a miss that should have been probed again.
TEST_P(DeviceCacheContractTest, ConcurrentReadersSeeWholeRowsThatNeverGoBack) {
  const StampedTable table = OpenTable(200, ConcurrentHistory::kKeys / 2);  // all is in motion
  ConcurrentHistory history(table);
  std::atomic<uint64_t> hits = 0, below = 0;
  const auto read = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Version> seen(ConcurrentHistory::kKeys, 0);
    // However late the writers get their first turns.
    const Deadline patience = DeadlineAfter(RealClock(), std::chrono::minutes(1));
    const auto is_done = [&](int lookups) {
      return lookups >= 1000 && (hits > 0 || RealClock().Now() >= patience);
    };
    for (int lookup = 0; !is_done(lookup) && !HasFatalFailure(); ++lookup) {
      ContractQuery query{.table = &table};
      for (int i = 0; i < 33; ++i)
        query.keys.push_back(static_cast<Key>(random() % ConcurrentHistory::kKeys));
      std::map<Key, Version> fetched;
      const ApplyEpoch epoch = history.epochs().published();
      Lookup({&query, 1}, {.source =
                               [&](size_t, Key key) {
                                 const Version version = fetched[key] = history.Current(key);
                                 return version % 2 == 0 ? BelowAnswer{KeyStatus::kAbsent, 0}
                                                         : BelowAnswer{KeyStatus::kHitL3, version};
                               },
                           .before_finish = [] { std::this_thread::yield(); },
                           .reprobe = [&] { return history.epochs().begun() != epoch; }});
      std::vector<Version> now = seen;
      for (size_t i = 0; i < query.keys.size(); ++i) {
        const Key key = query.keys[i];
        Version version = fetched[key];
        if (query.statuses[i] != KeyStatus::kAbsent) {
          const auto found = StampedRow::VersionOf(table.number, key, query.row(i));
          ASSERT_TRUE(found.has_value()) << "torn or foreign row of key " << key;
          version = *found;
        }
        ASSERT_GE(version, seen[static_cast<size_t>(key)]) << "key " << key << " went back";
        now[static_cast<size_t>(key)] = std::max(now[static_cast<size_t>(key)], version);
      }
      seen = now;
      hits += query.counts[KeyStatus::kHitL1];
      below += query.counts[KeyStatus::kHitL3];
    }
  };
  std::thread writers[] = {std::thread([&] { history.Apply(); }),
                           std::thread([&] { history.Promote(3); }),
                           std::thread([&] { history.Promote(4); })};
  std::thread other_reader(read, 1);
  read(2);
  other_reader.join();
  history.Stop();
  for (std::thread& writer : writers) writer.join();
  EXPECT_GT(hits, 0u);
  EXPECT_GT(below, 0u);
}

// A nearly full table with keys that are never erased, and other keys that are inserted and erased
// meanwhile, so that residents are moved to their other slabs all the time.
class DumpUnderChange {
 public:
  static constexpr size_t kStaying = 2000;

  explicit DumpUnderChange(const StampedTable& table) : table_(table) {}

  void Churn() {
    std::vector<Key> keys(100);
    for (Key& key : keys) key = static_cast<Key>(kStaying + random_() % 100'000);
    StampedBatch batch(table_, keys, 1);
    const absl::Status replaced = table_.table->InsertIfAbsent(batch.batch(), 0).status();
    EXPECT_TRUE(replaced.ok() || absl::IsResourceExhausted(replaced)) << replaced;
    EXPECT_TRUE(table_.table->Erase(keys, kNoDeadline).ok());
  }

  void Dump(size_t buffer_keys, const std::function<void()>& between) {
    std::vector<Key> buffer(buffer_keys);
    uint64_t cursor = 0;
    for (dumps_.emplace_back();; between()) {
      const auto count = table_.table->Dump(&cursor, buffer, kNoDeadline);
      ASSERT_TRUE(count.ok()) << count.status();
      if (*count == 0) return;
      std::copy_n(buffer.begin(), *count, std::back_inserter(dumps_.back()));
    }
  }

  // `stayed`, ascending: the permanent keys that were not evicted; they were held throughout.
  void Check(const std::vector<Key>& stayed) {
    EXPECT_GE(stayed.size(), kStaying / 2);
    for (std::vector<Key>& dump : dumps_) {
      std::erase_if(dump, [](Key key) { return key >= Key{kStaying}; });
      std::sort(dump.begin(), dump.end());
      ASSERT_TRUE(std::adjacent_find(dump.begin(), dump.end()) == dump.end()) << "a key twice";
      ASSERT_TRUE(std::includes(dump.begin(), dump.end(), stayed.begin(), stayed.end()))
          << "a key that stayed is missing";
    }
  }

 private:
  const StampedTable& table_;
  std::mt19937_64 random_{5};
  std::vector<std::vector<Key>> dumps_;
};

// Catches a dump that loses or repeats a key which an insertion moves to its other slab.
TEST_P(DeviceCacheContractTest, ADumpInStepsMeetsEveryKeyThatStaysOnce) {
  const StampedTable table = OpenTable(16, 2100);
  InsertIfAbsent(table, Sequence(0, DumpUnderChange::kStaying), 1);
  DumpUnderChange history(table);
  for (size_t i = 0; i < 10; ++i) history.Dump(64 + 10 * i, [&] { history.Churn(); });
  history.Check(Held(table, Sequence(0, DumpUnderChange::kStaying), [](Key) { return 1; }));
}

TEST_P(DeviceCacheContractTest, ADumpBesideAWriterMeetsEveryKeyThatStaysOnce) {
  const StampedTable table = OpenTable(16, 2100);
  InsertIfAbsent(table, Sequence(0, DumpUnderChange::kStaying), 1);
  DumpUnderChange history(table);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 0; i < 500 && !stop; ++i) history.Churn();
  });
  for (size_t i = 0; i < 50; ++i) history.Dump(64 + i, [] {});
  stop = true;
  writer.join();
  history.Check(Held(table, Sequence(0, DumpUnderChange::kStaying), [](Key) { return 1; }));
}

}  // namespace hps
