#include "train_cpu/host_shard.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "testing/contracts/embedding_shard_contract.h"
#include "testing/trials.h"

namespace hps {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, EmbeddingShardContract,
                         ::testing::Values(EmbeddingShardFactory{"host", HostShard::Create}),
                         EmbeddingShardName);

// A table with SGD, age and erasure, in the plainest way.
class PlainTable {
 public:
  PlainTable(const ShardOptions& options) : options_(options) {}

  void Step(const std::vector<Key>& keys, const std::vector<float>& gradients) {
    ++step_;
    std::erase_if(rows_, [&](const auto& entry) {
      return step_ - entry.second.last_seen > options_.expire_after;
    });
    std::map<Key, std::vector<float>> sums;
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float>& sum = sums[keys[i]];
      sum.resize(options_.dim);
      for (size_t j = 0; j < options_.dim; ++j) sum[j] += gradients[i * options_.dim + j];
    }
    for (const auto& [key, sum] : sums) {
      if (!rows_.contains(key)) {
        if (++pending_[key] < options_.admit_after) continue;
        pending_.erase(key);
        rows_[key].values.resize(options_.dim);
        InitializeRow(options_.initializer, key, rows_[key].values);
      }
      rows_[key].last_seen = step_;
      for (size_t j = 0; j < options_.dim; ++j) rows_[key].values[j] -= sum[j];
    }
  }
  void Erase(Key key) { rows_.erase(key); }

  void ExpectEqual(EmbeddingShard& shard) const {
    const ShardRows rows = *shard.ReadRows(false);
    std::vector<Key> keys;
    std::vector<float> values;
    for (const auto& [key, row] : rows_) {
      if (step_ - row.last_seen > options_.expire_after) continue;
      keys.push_back(key);
      values.insert(values.end(), row.values.begin(), row.values.end());
    }
    ASSERT_EQ(rows.keys, keys);
    ASSERT_EQ(rows.values, values);
  }

 private:
  struct Row {
    std::vector<float> values;
    uint32_t last_seen = 0;
  };
  const ShardOptions options_;
  std::map<Key, Row> rows_;
  std::map<Key, uint32_t> pending_;
  uint32_t step_ = 0;
};

TEST(HostShard, BehavesAsAPlainMap) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const ShardOptions options{.name = "m/t",
                             .dim = 5,
                             .initializer = {.low = -1, .high = 1, .seed = seed},
                             .admit_after = 2,
                             .expire_after = 20};
  const auto shard = *HostShard::Create(options);
  PlainTable plain(options);
  const auto step = shard->NewStep();
  // What serving would hold: every delta applied.
  std::map<Key, float> published;
  for (int s = 0; s < 600; ++s) {
    std::vector<Key> keys(random() % 200);
    for (Key& key : keys) {
      const uint64_t bound = random() % 4 == 0 ? 5000 : 50;
      key = static_cast<Key>(random() % bound) - 10;
    }
    // Small integers: their sums are exact in any order.
    std::vector<float> gradients(keys.size() * 5);
    for (float& gradient : gradients) gradient = static_cast<float>(random() % 9) - 4;
    std::vector<float> out(gradients.size());
    ASSERT_TRUE(ForwardOne(*shard, {.keys = keys}, step.get(), out).ok());
    ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 1}).ok());
    plain.Step(keys, gradients);
    if (s % 10 == 0) {
      const auto key = static_cast<Key>(random() % 50) - 10;
      ASSERT_TRUE(shard->EraseRows(std::vector<Key>{key}).ok());
      plain.Erase(key);
    }
    if (s % 20 != 0) continue;
    plain.ExpectEqual(*shard);
    const ShardDelta delta = *shard->CollectDelta(DeltaReader::kPublication);
    for (const Key key : delta.erased) ASSERT_EQ(published.erase(key), 1U);
    for (size_t i = 0; i < delta.changed.keys.size(); ++i)
      published[delta.changed.keys[i]] = delta.changed.values[i * 5];
    shard->AcknowledgeDelta(DeltaReader::kPublication, delta.through);
    const ShardRows rows = *shard->ReadRows(false);
    ASSERT_EQ(rows.keys.size(), published.size());
    for (size_t i = 0; i < rows.keys.size(); ++i)
      ASSERT_EQ(published.at(rows.keys[i]), rows.values[i * 5]);
  }
}

TEST(HostShard, GrowsOverManyRows) {
  const auto shard =
      *HostShard::Create({.name = "m/t", .dim = 1, .initializer = {.low = 2, .high = 2}});
  const auto step = shard->NewStep();
  std::vector<Key> keys(100'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i * 0x9e3779b97f4a7c15);
  std::vector<float> out(keys.size());
  ASSERT_TRUE(ForwardOne(*shard, {.keys = keys}, step.get(), out).ok());
  EXPECT_EQ(out, std::vector<float>(keys.size(), 2));
  EXPECT_EQ(shard->Statistics().rows, keys.size());
  EXPECT_GE(shard->Statistics().bytes, keys.size() * 48);
}

}  // namespace
}  // namespace hps
