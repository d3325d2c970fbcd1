// Readers run concurrently with an updater, inserters, evictions and erasures, on stamped rows: no
// row may be torn, another key's, or older than one that the same reader has seen.
//
// HPS_L2_STRESS_SECONDS=120 runs the release's length (a thousand million rows) instead of CI's.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "l2_memory/memory_tier.h"
#include "testing/await.h"
#include "testing/contracts/lossy_rows.h"
#include "testing/trials.h"

namespace hps {
namespace {

constexpr uint64_t kTable = 5;
constexpr size_t kRowBytes = 64;

// All trials take four seconds.
double StressSeconds() { return static_cast<double>(Trials(4000)) / 1000; }

// The state of L3: the newest version of every key.
class Store {
 public:
  explicit Store(size_t keys) : versions_(keys) {}
  size_t size() const { return versions_.size(); }
  static Key KeyOf(size_t i) { return static_cast<Key>(i * 0x9e3779b97f4a7c15); }
  std::atomic<Version>& version(size_t i) { return versions_[i]; }

 private:
  std::vector<std::atomic<Version>> versions_;
};

struct Shared {
  Shared(size_t keys, std::unique_ptr<LossyTable> opened) : store(keys), table(std::move(opened)) {}

  Store store;
  std::unique_ptr<LossyTable> table;
  ApplyEpochs epochs;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> rows_read{0};
  std::atomic<uint64_t> torn_or_foreign{0};
  std::atomic<uint64_t> older{0};
  std::atomic<uint64_t> over_budget{0};
};

// Half of the keys are drawn from a few hot ones.
size_t Draw(std::mt19937_64& random, size_t keys) {
  return random() % 2 == 0 ? random() % keys : random() % (keys / 50 + 1);
}

void Read(Shared& shared, uint64_t seed) {
  constexpr size_t kBatch = 512;
  std::mt19937_64 random(seed);
  std::vector<Version> seen(shared.store.size(), 0);
  std::vector<size_t> numbers(kBatch);
  std::vector<Key> keys(kBatch);
  std::vector<std::byte> rows(kBatch * kRowBytes);
  std::vector<FetchOutcome> outcomes(kBatch);
  while (!shared.stop) {
    for (size_t i = 0; i < kBatch; ++i) {
      numbers[i] = Draw(random, shared.store.size());
      keys[i] = Store::KeyOf(numbers[i]);
    }
    const auto counts = shared.table->Fetch(
        {.keys = keys, .rows = {rows.data(), kBatch, kRowBytes, kRowBytes}, .outcomes = outcomes},
        kNoDeadline);
    if (!counts.ok()) continue;
    shared.rows_read += counts->hits;
    for (size_t i = 0; i < kBatch; ++i) {
      if (outcomes[i] != FetchOutcome::kHit) continue;
      const auto version =
          StampedRow::VersionOf(kTable, keys[i], {rows.data() + i * kRowBytes, kRowBytes});
      if (!version) {
        ++shared.torn_or_foreign;
        continue;
      }
      if (*version < seen[numbers[i]]) ++shared.older;
      seen[numbers[i]] = std::max(seen[numbers[i]], *version);
    }
  }
}

// The applier: raises the watermarks, writes the store, writes level 2, publishes. Some changes
// erase keys, which return with a higher version.
void Apply(Shared& shared, uint64_t seed) {
  constexpr size_t kBatch = 64;
  std::mt19937_64 random(seed);
  Version version = 0;
  while (!shared.stop) {
    std::vector<size_t> numbers(kBatch);
    std::vector<Key> keys(kBatch);
    for (size_t i = 0; i < kBatch; ++i) {
      numbers[i] = Draw(random, shared.store.size());
      keys[i] = Store::KeyOf(numbers[i]);
    }
    ContractRows rows(kTable, keys, kRowBytes, ++version);
    const ApplyEpoch epoch = shared.epochs.Begin();
    EXPECT_TRUE(shared.table->RaiseWatermarks(keys, epoch, kNoDeadline).ok());
    for (const size_t number : numbers) shared.store.version(number).store(version);
    if (random() % 8 == 0) {
      EXPECT_TRUE(shared.table->Erase(keys).ok());
    } else {
      EXPECT_TRUE(shared.table->Update(rows.batch()).ok());
    }
    shared.epochs.Publish(epoch);
  }
}

// Promotions: the epoch, then the fetch from the store, then, later, the insertion.
void Promote(Shared& shared, uint64_t seed) {
  constexpr size_t kBatch = 64;
  std::mt19937_64 random(seed);
  while (!shared.stop) {
    std::vector<Key> keys(kBatch);
    const ApplyEpoch epoch = shared.epochs.published();
    std::vector<Version> versions(kBatch);
    for (size_t i = 0; i < kBatch; ++i) {
      const size_t number = Draw(random, shared.store.size());
      keys[i] = Store::KeyOf(number);
      versions[i] = shared.store.version(number).load();
    }
    ContractRows rows(kTable, keys, kRowBytes, 0);
    for (size_t i = 0; i < kBatch; ++i) rows.Stamp(i, kTable, versions[i]);
    EXPECT_TRUE(shared.table->Insert(rows.batch(), epoch).ok());
    const LevelStatistics statistics = shared.table->Statistics();
    shared.over_budget += statistics.bytes_used > statistics.bytes_max;
  }
}

// `room`: the share of the keys that the table holds.
void Stress(EvictionPolicy eviction, double room, double seconds) {
  constexpr size_t kKeys = 20'000;
  const MemoryTierOptions options{.eviction = eviction};
  const uint64_t bytes_max =
      MemoryTierBytesFor(static_cast<uint64_t>(room * kKeys), kRowBytes, options);
  auto table = MakeMemoryTier(options)->OpenTable(ContractSpec(kRowBytes), 1, bytes_max);
  ASSERT_TRUE(table.ok()) << table.status();
  Shared shared(kKeys, *std::move(table));
  const uint64_t seed = TestSeed();
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 2; ++i) threads.emplace_back(Read, std::ref(shared), seed + i);
  for (uint64_t i = 0; i < 2; ++i) threads.emplace_back(Promote, std::ref(shared), seed + 10 + i);
  threads.emplace_back(Apply, std::ref(shared), seed + 20);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  // On a busy machine, until every thread has made progress.
  const auto has_met_all = [&] {
    const LevelStatistics now = shared.table->Statistics();
    return shared.rows_read > 0 && now.updates > 0 && (room >= 1 || now.evictions > 0);
  };
  EXPECT_TRUE(AwaitCondition(has_met_all));
  shared.stop = true;
  for (std::thread& thread : threads) thread.join();
  const LevelStatistics statistics = shared.table->Statistics();
  std::printf("%llu rows read, %llu insertions, %llu updates, %llu evictions\n",
              static_cast<unsigned long long>(shared.rows_read.load()),
              static_cast<unsigned long long>(statistics.insertions),
              static_cast<unsigned long long>(statistics.updates),
              static_cast<unsigned long long>(statistics.evictions));
  EXPECT_EQ(shared.torn_or_foreign, 0u);
  EXPECT_EQ(shared.older, 0u);
  EXPECT_EQ(shared.over_budget, 0u);
}

TEST(MemoryTableConcurrencyTest, NoTornForeignOrOlderRowsWhileRowsAreEvicted) {
  Stress(EvictionPolicy::kOldest, 0.3, StressSeconds());
}

TEST(MemoryTableConcurrencyTest, NoTornForeignOrOlderRowsWithCountedUses) {
  Stress(EvictionPolicy::kLeastUsed, 0.3, StressSeconds() / 4);
}

TEST(MemoryTableConcurrencyTest, NoTornForeignOrOlderRowsWhileAllFit) {
  Stress(EvictionPolicy::kOldest, 1.1, StressSeconds());
}

}  // namespace
}  // namespace hps
