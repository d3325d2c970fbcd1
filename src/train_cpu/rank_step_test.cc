#include "train_cpu/rank_step.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "testing/trials.h"
#include "train_cpu/host_shard.h"

namespace hps {
namespace {

using Floats = std::vector<float>;

constexpr uint32_t kDim = 3;

// Integers, whose sums are exact in any order.
ShardOptions Options() {
  return {.name = "m/t", .dim = kDim, .initializer = {.low = 2, .high = 2}};
}

struct Samples {
  std::vector<Key> keys;
  std::vector<int64_t> offsets;
  Floats gradients;

  BagBatch batch(Pooling pooling) const {
    return {.keys = keys, .offsets = offsets, .pooling = pooling};
  }
};

// Every rank of a group, one after the other in one thread; messages are passed in memory.
class Ranks {
 public:
  explicit Ranks(uint32_t count) : messages_(count), rows_(count), gradients_(count) {
    tables_.reserve(size_t{3} * count);
    for (uint32_t rank = 0; rank < count; ++rank) {
      for (size_t t = 0; t < 3; ++t) shards_.push_back(*HostShard::Create(Options()));
      auto* const shards = &shards_[size_t{3} * rank];
      tables_.push_back({.shard = shards[0].get()});
      tables_.back().hot = {1, 2};
      tables_.push_back({.shard = shards[1].get(), .holder = count - 1});
      tables_.push_back({.shard = shards[2].get(), .is_replicated = true});
    }
    for (uint32_t rank = 0; rank < count; ++rank) {
      const RankTable* const tables = &tables_[size_t{3} * rank];
      steps_.emplace_back(RankPlace{rank, count}, std::vector{tables, tables + 1, tables + 2},
                          std::vector<int64_t>{0, 1, 2});
    }
  }

  uint32_t count() const { return static_cast<uint32_t>(steps_.size()); }
  RankStep& step(uint32_t rank) { return steps_[rank]; }
  EmbeddingShard& shard(uint32_t rank, size_t table) { return *shards_[size_t{3} * rank + table]; }

  // The outputs of each rank's tables; false: a rank has not updated its rows.
  std::pair<std::vector<std::vector<Floats>>, bool> Step(const std::vector<Samples>& samples,
                                                         Pooling pooling) {
    std::vector<std::vector<Floats>> outputs(count());
    for (uint32_t rank = 0; rank < count(); ++rank) {
      const BagBatch batch = samples[rank].batch(pooling);
      EXPECT_TRUE(steps_[rank].Begin(std::vector<BagBatch>(3, batch), true).ok());
      outputs[rank].assign(3, Floats(batch.output_rows() * kDim));
      messages_[rank].clear();
      for (uint32_t to = 0; to < count(); ++to) {
        messages_[rank].emplace_back(steps_[rank].Sizes(to).message);
        steps_[rank].WriteMessage(to, messages_[rank][to].data());
      }
    }
    for (uint32_t rank = 0; rank < count(); ++rank) LookUp(rank, outputs[rank]);
    for (uint32_t rank = 0; rank < count(); ++rank) {
      EXPECT_TRUE(steps_[rank].Pool(From(rows_, rank), Pointers(outputs[rank])).ok());
      const Floats& gradients = samples[rank].gradients;
      std::vector<float*> to = Room(gradients_[rank], rank, &PieceSizes::gradients_to);
      EXPECT_TRUE(steps_[rank]
                      .SumGradients(std::vector<const float*>(3, gradients.data()),
                                    std::vector<size_t>(3, gradients.size()), 1, to)
                      .ok());
    }
    bool is_updated = true;
    for (uint32_t rank = 0; rank < count(); ++rank) {
      const auto updated =
          steps_[rank].Update(From(gradients_, rank), std::vector<UpdateFactors>(3, {1, 1}));
      EXPECT_TRUE(updated.ok());
      is_updated = is_updated && *updated;
    }
    return {outputs, is_updated};
  }

 private:
  void LookUp(uint32_t rank, std::vector<Floats>& outputs) {
    std::vector<std::span<const int64_t>> received;
    for (uint32_t from = 0; from < count(); ++from) received.emplace_back(messages_[from][rank]);
    ASSERT_TRUE(steps_[rank].ReadMessages(received).ok());
    std::vector<float*> to = Room(rows_[rank], rank, &PieceSizes::rows_to);
    ASSERT_TRUE(steps_[rank].LookUp(to, Pointers(outputs)).ok());
  }
  std::vector<float*> Room(std::vector<Floats>& pieces, uint32_t rank, size_t PieceSizes::*size) {
    pieces.clear();
    for (uint32_t to = 0; to < count(); ++to) pieces.emplace_back(steps_[rank].Sizes(to).*size);
    return Pointers(pieces);
  }
  static std::vector<float*> Pointers(std::vector<Floats>& arrays) {
    std::vector<float*> pointers;
    for (Floats& array : arrays) pointers.push_back(array.data());
    return pointers;
  }
  static std::vector<std::span<const float>> From(const std::vector<std::vector<Floats>>& pieces,
                                                  uint32_t rank) {
    std::vector<std::span<const float>> from;
    for (const auto& sent : pieces) from.emplace_back(sent[rank]);
    return from;
  }

  std::vector<std::unique_ptr<EmbeddingShard>> shards_;
  std::vector<RankTable> tables_;
  std::deque<RankStep> steps_;
  std::vector<std::vector<std::vector<int64_t>>> messages_;  // by sender and receiver
  std::vector<std::vector<Floats>> rows_;
  std::vector<std::vector<Floats>> gradients_;
};

Samples RandomSamples(std::mt19937_64& random, size_t bag_count, Pooling pooling) {
  Samples samples{.offsets = {0}};
  for (size_t bag = 0; bag < bag_count; ++bag) {
    for (size_t i = random() % 4; i > 0; --i)
      samples.keys.push_back(random() % 3 == 0 ? static_cast<Key>(random() % 1000) - 500
                                               : static_cast<Key>(random() % 5));
    samples.offsets.push_back(static_cast<int64_t>(samples.keys.size()));
  }
  const size_t rows = pooling == Pooling::kNone ? samples.keys.size() : bag_count;
  for (size_t i = 0; i < rows * kDim; ++i)
    samples.gradients.push_back(static_cast<float>(random() % 9) - 4);
  return samples;
}

// The batches of all ranks, as one process has them.
Samples Joined(const std::vector<Samples>& parts) {
  Samples joined{.offsets = {0}};
  for (const Samples& part : parts) {
    const auto first = static_cast<int64_t>(joined.keys.size());
    joined.keys.insert(joined.keys.end(), part.keys.begin(), part.keys.end());
    for (size_t i = 1; i < part.offsets.size(); ++i)
      joined.offsets.push_back(first + part.offsets[i]);
    joined.gradients.insert(joined.gradients.end(), part.gradients.begin(), part.gradients.end());
  }
  return joined;
}

// Random steps: every rank's output is that of one process, and so are the rows of every holder.
TEST(RankStep, RanksDoWhatOneProcessDoes) {
  std::mt19937_64 random(TestSeed());
  for (const uint32_t count : {1U, 2U, 3U}) {
    Ranks ranks(count);
    const auto one = *HostShard::Create(Options());
    const auto step = one->NewStep();
    for (int s = 0; s < 60; ++s) {
      const Pooling pooling = s % 2 == 0 ? Pooling::kSum : Pooling::kNone;
      std::vector<Samples> samples;
      for (uint32_t rank = 0; rank < count; ++rank)
        samples.push_back(RandomSamples(random, s % 7 == 3 ? 0 : random() % 20, pooling));
      const auto [outputs, is_updated] = ranks.Step(samples, pooling);
      ASSERT_TRUE(is_updated);
      const Samples joined = Joined(samples);
      const BagBatch batch = joined.batch(pooling);
      Floats expected(batch.output_rows() * kDim);
      ASSERT_TRUE(one->Forward(batch, step.get(), expected).ok());
      ASSERT_TRUE(one->Backward(*step, {.gradients = joined.gradients, .learning_rate = 1}).ok());
      for (size_t table = 0; table < 3; ++table) {
        Floats found;
        for (const auto& output : outputs)
          found.insert(found.end(), output[table].begin(), output[table].end());
        ASSERT_EQ(found, expected) << "table " << table;
      }
    }
    const ShardRows rows = *one->ReadRows(false);
    EXPECT_EQ(ranks.shard(count - 1, 1).ReadRows(false)->values, rows.values);
    std::map<Key, Floats> owned;
    for (uint32_t rank = 0; rank < count; ++rank) {
      EXPECT_EQ(ranks.shard(rank, 2).ReadRows(false)->values, rows.values);
      const ShardRows part = *ranks.shard(rank, 0).ReadRows(false);
      for (size_t i = 0; i < part.keys.size(); ++i) {
        const Floats row(part.values.begin() + static_cast<ptrdiff_t>(i * kDim),
                         part.values.begin() + static_cast<ptrdiff_t>((i + 1) * kDim));
        // A hot row is on every rank, and the same there.
        if (const auto [at, is_new] = owned.emplace(part.keys[i], row); !is_new) {
          EXPECT_TRUE(part.keys[i] == 1 || part.keys[i] == 2);
          EXPECT_EQ(at->second, row);
        }
      }
    }
    Floats all;
    for (const auto& [key, row] : owned) all.insert(all.end(), row.begin(), row.end());
    EXPECT_EQ(all, rows.values);
  }
}

// 2e38 is finite, but the sum of two of them is not.
TEST(RankStep, ANanOrAnOverflowOfOneRankChangesNoRowOfAnyRank) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 2e38F}) {
    Ranks ranks(2);
    std::vector<Samples> samples(2, {.keys = {1, 7, 7}, .offsets = {0, 2, 3}});
    samples[0].gradients = Floats(6, 1);
    samples[1].gradients = Floats(6, bad);
    EXPECT_FALSE(ranks.Step(samples, Pooling::kSum).second);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (size_t table = 0; table < 3; ++table) {
        const ShardRows rows = *ranks.shard(rank, table).ReadRows(false);
        EXPECT_EQ(rows.values, Floats(rows.values.size(), 2));
      }
    }
  }
}

TEST(RankStep, ValuesOfAnotherStepAreRefused) {
  Ranks ranks(1);
  RankStep& step = ranks.step(0);
  const std::vector<Key> keys = {1, 7};
  ASSERT_TRUE(step.Begin(std::vector<BagBatch>(3, {.keys = keys}), true).ok());
  std::vector<int64_t> message(step.Sizes(0).message);
  step.WriteMessage(0, message.data());
  const std::span<const int64_t> received(message);
  ASSERT_TRUE(step.ReadMessages({&received, 1}).ok());
  std::vector<Floats> outputs(3, Floats(6));
  std::vector<float*> at = {outputs[0].data(), outputs[1].data(), outputs[2].data()};
  const Floats values(step.Sizes(0).gradients_from + 1);
  const std::span<const float> too_many(values);
  EXPECT_EQ(step.Pool({&too_many, 1}, at).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(step.Update({&too_many, 1}, std::vector<UpdateFactors>(3)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(RankStep, MessagesOfAnotherStepAreRefused) {
  Ranks ranks(2);
  const std::vector<Key> keys = {1, 7};
  const std::vector<BagBatch> batches(3, {.keys = keys});
  const auto read = [&](const std::vector<int64_t>& message) {
    EXPECT_TRUE(ranks.step(0).Begin(batches, false).ok());
    const std::vector<std::span<const int64_t>> messages(2, message);
    return ranks.step(0).ReadMessages(messages).code();
  };
  EXPECT_EQ(read({3, 0, 1, 5}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(read({2, 0, 1}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(read({}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(read({3, 0, 1, 2, 0, 5, 1}), absl::StatusCode::kInternal);
  EXPECT_EQ(read({3, 0, 1, 2, -1, 5, 1}), absl::StatusCode::kInternal);
  const std::vector<int64_t> late = {1, 2};
  const std::vector<BagBatch> bad(3, {.keys = keys, .offsets = late});
  EXPECT_EQ(ranks.step(0).Begin(bad, false).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps
