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

#include "testing/contracts/embedding_shard_contract.h"
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

// Features of three tables. Those of the second table are not beside each other.
std::vector<SetFeature> Features(Pooling pooling) {
  return {{.name = "a", .id = 0, .table = 0, .pooling = pooling},
          {.name = "b", .id = 1, .table = 1, .pooling = pooling},
          {.name = "c", .id = 2, .table = 2, .pooling = pooling},
          {.name = "d", .id = 3, .table = 1, .pooling = pooling}};
}

// The same samples for each of some features.
struct Packed {
  Packed(const Samples& samples, size_t feature_count)
      : bag_counts(feature_count, static_cast<int64_t>(samples.offsets.size()) - 1) {
    for (size_t i = 0; i < feature_count; ++i) {
      for (size_t j = i == 0 ? 0 : 1; j < samples.offsets.size(); ++j)
        offsets.push_back(static_cast<int64_t>(keys.size()) + samples.offsets[j]);
      keys.insert(keys.end(), samples.keys.begin(), samples.keys.end());
    }
  }
  SetBatch batch() const { return {.keys = keys, .offsets = offsets, .bag_counts = bag_counts}; }

  std::vector<Key> keys;
  std::vector<int64_t> offsets;
  std::vector<int64_t> bag_counts;
};

// Every rank of a group, one after the other in one thread; messages are passed in memory.
class Ranks {
 public:
  explicit Ranks(uint32_t count) : messages_(count), rows_(count), gradients_(count) {
    for (uint32_t rank = 0; rank < count; ++rank) {
      for (size_t t = 0; t < 3; ++t) shards_.push_back(*HostShard::Create(Options()));
      auto* const shards = &shards_[size_t{3} * rank];
      tables_.push_back({.shard = shards[0].get(), .hot = {1, 2}});
      tables_.push_back({.shard = shards[1].get(), .holder = count - 1});
      tables_.push_back({.shard = shards[2].get(), .is_replicated = true});
    }
    for (const Pooling pooling : {Pooling::kSum, Pooling::kNone}) {
      for (uint32_t rank = 0; rank < count; ++rank)
        steps_.emplace_back(RankPlace{rank, count}, tables(rank), Features(pooling));
    }
  }

  uint32_t count() const { return static_cast<uint32_t>(messages_.size()); }
  RankStep& step(uint32_t rank, Pooling pooling = Pooling::kSum) {
    return steps_[rank + (pooling == Pooling::kNone ? count() : 0)];
  }
  EmbeddingShard& shard(uint32_t rank, size_t table) { return *shards_[size_t{3} * rank + table]; }
  std::vector<RankTable*> tables(uint32_t rank) {
    RankTable* const first = &tables_[size_t{3} * rank];
    return {first, &tables_[size_t{3} * rank + 1], &tables_[size_t{3} * rank + 2]};
  }

  // The outputs of each rank's features.
  using Outputs = std::vector<std::vector<Floats>>;
  Outputs LookUp(const std::vector<Samples>& samples, Pooling pooling) {
    Outputs outputs(count());
    for (uint32_t rank = 0; rank < count(); ++rank) {
      const Packed& packed = packed_.emplace_back(samples[rank], 4);
      RankStep& own = step(rank, pooling);
      EXPECT_TRUE(own.Begin(packed.batch(), true).ok());
      outputs[rank].assign(4, Floats(samples[rank].batch(pooling).output_rows() * kDim));
      messages_[rank].clear();
      for (uint32_t to = 0; to < count(); ++to) {
        messages_[rank].emplace_back(own.Sizes(to).message);
        own.WriteMessage(to, messages_[rank][to].data());
      }
    }
    for (uint32_t rank = 0; rank < count(); ++rank) Answer(rank, pooling, outputs[rank]);
    for (uint32_t rank = 0; rank < count(); ++rank) {
      EXPECT_TRUE(step(rank, pooling).Pool(From(rows_, rank), PlacesOf(outputs[rank])).ok());
    }
    return outputs;
  }

  // Sums the gradients of the look-up before, and calls `use` with each rank and its received sums;
  // false: a rank has refused them.
  template <typename Use>
  bool Sum(const std::vector<Samples>& samples, Pooling pooling, const Use& use) {
    for (uint32_t rank = 0; rank < count(); ++rank) {
      const FeatureGradient gradient{samples[rank].gradients.data(), kDim};
      const std::vector<float*> to =
          Room(gradients_[rank], step(rank, pooling), &PieceSizes::gradients_to);
      EXPECT_TRUE(step(rank, pooling).SumGradients(std::vector(4, gradient), 1, to).ok());
    }
    bool is_taken = true;
    for (uint32_t rank = 0; rank < count(); ++rank) {
      const absl::StatusOr<bool> taken = use(rank, From(gradients_, rank));
      EXPECT_TRUE(taken.ok());
      is_taken = is_taken && *taken;
    }
    return is_taken;
  }
  bool Update(const std::vector<Samples>& samples, Pooling pooling) {
    return Sum(samples, pooling, [&](uint32_t rank, const auto& from) {
      return step(rank, pooling).Update(from, std::vector<UpdateFactors>(3, {1, 1}));
    });
  }
  bool AddToSums(const std::vector<Samples>& samples, Pooling pooling) {
    return Sum(samples, pooling, [&](uint32_t rank, const auto& from) {
      return step(rank, pooling).AddToSums(from);
    });
  }

 private:
  void Answer(uint32_t rank, Pooling pooling, std::vector<Floats>& outputs) {
    std::vector<std::span<const int64_t>> received;
    for (uint32_t from = 0; from < count(); ++from) received.emplace_back(messages_[from][rank]);
    RankStep& own = step(rank, pooling);
    ASSERT_TRUE(own.ReadMessages(received).ok());
    const std::vector<float*> to = Room(rows_[rank], own, &PieceSizes::rows_to);
    ASSERT_TRUE(own.LookUp(to, PlacesOf(outputs)).ok());
  }
  std::vector<float*> Room(std::vector<Floats>& pieces, const RankStep& step,
                           size_t PieceSizes::*size) const {
    pieces.clear();
    for (uint32_t to = 0; to < count(); ++to) pieces.emplace_back(step.Sizes(to).*size);
    std::vector<float*> pointers;
    for (Floats& piece : pieces) pointers.push_back(piece.data());
    return pointers;
  }
  static std::vector<FeatureOutput> PlacesOf(std::vector<Floats>& outputs) {
    std::vector<FeatureOutput> places;
    for (Floats& output : outputs) places.push_back({output.data(), kDim});
    return places;
  }
  static std::vector<std::span<const float>> From(const std::vector<std::vector<Floats>>& pieces,
                                                  uint32_t rank) {
    std::vector<std::span<const float>> from;
    for (const auto& sent : pieces) from.emplace_back(sent[rank]);
    return from;
  }

  std::vector<std::unique_ptr<EmbeddingShard>> shards_;
  std::deque<RankTable> tables_;
  std::deque<RankStep> steps_;
  std::deque<Packed> packed_;                                // steps borrow them
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

// Three tables in one process; the second has two features.
class OneProcess {
 public:
  OneProcess() {
    for (size_t t = 0; t < 3; ++t) shards_.push_back(*HostShard::Create(Options()));
  }

  // One step, with the samples of each step given for each of the table's features. Returns the
  // output of the first step's first feature.
  Floats Step(size_t table, const std::vector<Samples>& steps, Pooling pooling) {
    EmbeddingShard& shard = *shards_[table];
    std::vector<BagBatch> features;
    std::vector<GradientPiece> gradients;
    std::vector<Floats> outputs;
    for (const Samples& samples : steps) {
      for (size_t i = 0; i < (table == 1 ? 2U : 1U); ++i) {
        features.push_back(samples.batch(pooling));
        outputs.emplace_back(features.back().output_rows() * kDim);
        gradients.push_back({features.back().output_rows(), samples.gradients.data(), kDim});
      }
    }
    std::vector<OutputPiece> pieces;
    for (Floats& output : outputs) pieces.push_back({output.size() / kDim, output.data(), kDim});
    const auto step = shard.NewStep();
    EXPECT_TRUE(shard.Forward(features, step.get(), pieces).ok());
    EXPECT_TRUE(shard.Backward(*step, gradients, {.learning_rate = 1}).ok());
    return outputs[0];
  }

  Floats rows(size_t table) { return shards_[table]->ReadRows(false)->values; }

 private:
  std::vector<std::unique_ptr<EmbeddingShard>> shards_;
};

// The rows of every holder are those of one process.
void ExpectRows(Ranks& ranks, OneProcess& one) {
  EXPECT_EQ(ranks.shard(ranks.count() - 1, 1).ReadRows(false)->values, one.rows(1));
  std::map<Key, Floats> owned;
  for (uint32_t rank = 0; rank < ranks.count(); ++rank) {
    EXPECT_EQ(ranks.shard(rank, 2).ReadRows(false)->values, one.rows(2));
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
  EXPECT_EQ(all, one.rows(0));
}

std::vector<Samples> SamplesOfRanks(std::mt19937_64& random, uint32_t count, Pooling pooling) {
  const bool is_empty = random() % 7 == 3;
  std::vector<Samples> samples;
  for (uint32_t rank = 0; rank < count; ++rank)
    samples.push_back(RandomSamples(random, is_empty ? 0 : random() % 20, pooling));
  return samples;
}

// Random steps: every rank's output is that of one process, and so are the rows of every holder.
TEST(RankStep, RanksDoWhatOneProcessDoes) {
  std::mt19937_64 random(TestSeed());
  for (const uint32_t count : {1U, 2U, 3U}) {
    Ranks ranks(count);
    OneProcess one;
    for (int s = 0; s < 60; ++s) {
      const Pooling pooling = s % 2 == 0 ? Pooling::kSum : Pooling::kNone;
      const std::vector<Samples> samples = SamplesOfRanks(random, count, pooling);
      const Ranks::Outputs outputs = ranks.LookUp(samples, pooling);
      ASSERT_TRUE(ranks.Update(samples, pooling));
      for (size_t feature = 0; feature < 4; ++feature) {
        Floats found;
        for (const auto& output : outputs)
          found.insert(found.end(), output[feature].begin(), output[feature].end());
        if (feature == 3) {
          ASSERT_EQ(outputs[0][3], outputs[0][1]);
          continue;
        }
        ASSERT_EQ(found, one.Step(feature, {Joined(samples)}, pooling)) << "table " << feature;
      }
    }
    ExpectRows(ranks, one);
  }
}

// Two look-ups, and one update with the sums of both.
TEST(RankStep, SumsOfTwoStepsMakeOneUpdate) {
  std::mt19937_64 random(TestSeed());
  for (const uint32_t count : {1U, 3U}) {
    Ranks ranks(count);
    OneProcess one;
    for (int s = 0; s < 20; ++s) {
      std::vector<Samples> steps;
      for (int i = 0; i < 2; ++i) {
        const std::vector<Samples> samples = SamplesOfRanks(random, count, Pooling::kSum);
        ranks.LookUp(samples, Pooling::kSum);
        ASSERT_TRUE(ranks.AddToSums(samples, Pooling::kSum));
        steps.push_back(Joined(samples));
      }
      for (uint32_t rank = 0; rank < count; ++rank) {
        ASSERT_TRUE(SumsAllow(ranks.tables(rank), 1));
        ASSERT_TRUE(
            ApplySums(ranks.tables(rank), std::vector<UpdateFactors>(3, {.learning_rate = 1}))
                .ok());
        for (RankTable* const table : ranks.tables(rank)) table->sums.Clear();
      }
      for (size_t table = 0; table < 3; ++table) one.Step(table, steps, Pooling::kSum);
    }
    ExpectRows(ranks, one);
  }
}

// The norm of all ranks' sums is that of one process: a hot row counts once.
TEST(RankStep, NormsOfRanksAddUp) {
  std::mt19937_64 random(TestSeed());
  std::vector<Samples> samples = SamplesOfRanks(random, 3, Pooling::kSum);
  samples[1] = {.keys = {1, 7}, .offsets = {0, 2}, .gradients = Floats(kDim, 1)};
  Ranks ranks(3);
  Ranks one(1);
  ranks.LookUp(samples, Pooling::kSum);
  one.LookUp({Joined(samples)}, Pooling::kSum);
  ASSERT_TRUE(ranks.AddToSums(samples, Pooling::kSum));
  ASSERT_TRUE(one.AddToSums({Joined(samples)}, Pooling::kSum));
  double total = 0;
  for (uint32_t rank = 0; rank < 3; ++rank)
    total += SquaredNorm(ranks.tables(rank), {.rank = rank, .rank_count = 3});
  EXPECT_EQ(total, SquaredNorm(one.tables(0), {}));
  EXPECT_GT(total, 0);
}

// Gradients that are allowed in each step, and whose sum is not.
TEST(RankStep, SumsThatOverflowAreNotAllowed) {
  Ranks ranks(1);
  Samples samples{.keys = {7}, .offsets = {0, 1}, .gradients = Floats(kDim, 0x1p46F)};
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(SumsAllow(ranks.tables(0), 1));
    ranks.LookUp({samples}, Pooling::kSum);
    ASSERT_TRUE(ranks.AddToSums({samples}, Pooling::kSum));
  }
  EXPECT_FALSE(SumsAllow(ranks.tables(0), 1));
  EXPECT_TRUE(SumsAllow(ranks.tables(0), 0.25F));
  samples.gradients[1] = std::numeric_limits<float>::quiet_NaN();
  ranks.LookUp({samples}, Pooling::kSum);
  EXPECT_FALSE(ranks.AddToSums({samples}, Pooling::kSum));
}

// 2e38 is finite, but the sum of two of them is not; the square of 1e25 is not, either.
TEST(RankStep, ANanOrAnOverflowOfOneRankChangesNoRowOfAnyRank) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), 2e38F, 1e25F}) {
    Ranks ranks(2);
    std::vector<Samples> samples(2, {.keys = {1, 7, 7}, .offsets = {0, 2, 3}});
    samples[0].gradients = Floats(6, 1);
    samples[1].gradients = Floats(6, 1);
    samples[1].gradients[5] = bad;
    ranks.LookUp(samples, Pooling::kSum);
    EXPECT_FALSE(ranks.Update(samples, Pooling::kSum));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (size_t table = 0; table < 3; ++table) {
        const ShardRows rows = *ranks.shard(rank, table).ReadRows(false);
        EXPECT_EQ(rows.values, Floats(rows.values.size(), 2));
      }
    }
  }
}

// A rank that is alone and holds its table, without exchanges.
class Alone : public ::testing::Test {
 protected:
  // Whether a step of the batch, with the same value as every gradient, has updated the rows.
  bool IsUpdated(const SetBatch& batch, float gradient) {
    Floats out(batch.keys.size() * kDim);
    const FeatureOutput output{out.data(), kDim};
    EXPECT_TRUE(step_.Begin(batch, true).ok());
    EXPECT_TRUE(step_.LookUp({}, {&output, 1}).ok());
    const Floats gradients(batch.keys.size() * kDim, gradient);
    const FeatureGradient given{gradients.data(), kDim};
    Floats flags(step_.Sizes(0).gradients_to);
    float* const to = flags.data();
    EXPECT_TRUE(step_.SumGradients({&given, 1}, 1, {&to, 1}).ok());
    const std::span<const float> from(flags);
    return *step_.Update({&from, 1}, {{{.learning_rate = 1}}});
  }

  std::unique_ptr<EmbeddingShard> shard_ = *HostShard::Create(Options());
  RankTable table_{.shard = shard_.get(), .holder = 0};
  RankTable* const tables_[1] = {&table_};
  RankStep step_{RankPlace{0, 1}, tables_, {{.name = "a"}}};
};

// A weight makes a gradient too large.
TEST_F(Alone, AWeightThatOverflowsChangesNoRow) {
  const std::vector<Key> keys = {1, 1, 1, 1};
  const std::vector<int64_t> offsets = {0, 2, 4};
  const std::vector<int64_t> bag_counts = {2};
  Floats weights = {1, 1, 1, 1};
  const SetBatch batch{
      .keys = keys, .offsets = offsets, .weights = weights, .bag_counts = bag_counts};
  EXPECT_TRUE(IsUpdated(batch, 1));
  const Floats before = shard_->ReadRows(false)->values;
  weights[0] = 1e30F;
  EXPECT_FALSE(IsUpdated(batch, 1));
  EXPECT_EQ(shard_->ReadRows(false)->values, before);
}

TEST(RankStep, ValuesOfAnotherStepAreRefused) {
  Ranks ranks(1);
  RankStep& step = ranks.step(0);
  const Samples samples{.keys = {1, 7}, .offsets = {0, 1, 2}};
  ranks.LookUp({samples}, Pooling::kSum);
  const Floats values(step.Sizes(0).gradients_from + 1);
  const std::span<const float> too_many(values);
  EXPECT_EQ(step.Pool({&too_many, 1}, std::vector<FeatureOutput>(4)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(step.Update({&too_many, 1}, std::vector<UpdateFactors>(3)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(RankStep, MessagesOfAnotherStepAreRefused) {
  Ranks ranks(2);
  const Packed packed({.keys = {1, 7}, .offsets = {0, 1, 2}}, 4);
  const auto read = [&](const std::vector<int64_t>& message) {
    EXPECT_TRUE(ranks.step(0).Begin(packed.batch(), false).ok());
    const std::vector<std::span<const int64_t>> messages(2, message);
    return ranks.step(0).ReadMessages(messages).code();
  };
  EXPECT_EQ(read({4, 0, 1, 2, 5}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(read({3, 0, 1, 2}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(read({}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(read({4, 0, 1, 2, 3, 0, 5, 1}), absl::StatusCode::kInternal);
  EXPECT_EQ(read({4, 0, 1, 2, 3, -1, 5, 1}), absl::StatusCode::kInternal);
  SetBatch bad = packed.batch();
  bad.keys = bad.keys.first(7);
  EXPECT_EQ(ranks.step(0).Begin(bad, false).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps
