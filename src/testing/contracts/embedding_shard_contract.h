// The contract suite of EmbeddingShard: tests that every implementation runs.
//
//   INSTANTIATE_TEST_SUITE_P(Host, EmbeddingShardContract, ::testing::Values(
//       EmbeddingShardFactory{"host", HostShard::Create}), EmbeddingShardName);
//
// It includes embedding_shard_contract_precision.h, which tests rows whose elements have 16 bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "testing/contracts/embedding_shard_contract_fixture.h"
#include "testing/contracts/embedding_shard_contract_precision.h"
#include "testing/reference_optimizer.h"
#include "train/embedding_shard.h"

namespace hps {

TEST_P(EmbeddingShardContract, EvaluationAnswersZerosForAbsentKeysAndInsertsNothing) {
  const auto shard = Make(Options(3));
  EXPECT_EQ(Evaluate(*shard, OddKeys()), Floats(15, 0));
  EXPECT_EQ(shard->Statistics().rows, 0U);
}

TEST_P(EmbeddingShardContract, EveryKeyIsLegalAndGetsItsInitialRow) {
  const auto shard = Make(Options(3));
  const auto step = shard->NewStep();
  Floats expected;
  for (const Key key : OddKeys()) {
    const Floats row = Initial(*shard, key);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_EQ(Forward(*shard, {.keys = OddKeys()}, step.get()), expected);
  EXPECT_EQ(Evaluate(*shard, OddKeys()), expected);
  EXPECT_EQ(shard->Statistics().rows, OddKeys().size());
}

TEST_P(EmbeddingShardContract, PoolsRaggedBags) {
  for (const uint32_t dim : {1U, 7U, 8U, 9U, 16U, 31U, 32U, 33U}) {
    const auto shard = Make(Options(dim));
    const auto step = shard->NewStep();
    const Keys keys = {4, 5, 4, 6};
    const std::vector<int64_t> offsets = {0, 0, 3, 4, 4};
    const Floats weights = {0.5F, 2, -1, 3};
    const Floats four = Initial(*shard, 4);
    const Floats five = Initial(*shard, 5);
    const Floats six = Initial(*shard, 6);
    const Floats sum = Forward(*shard, {.keys = keys, .offsets = offsets}, step.get());
    const Floats mean =
        Forward(*shard, {.keys = keys, .offsets = offsets, .pooling = Pooling::kMean}, step.get());
    const Floats weighted =
        Forward(*shard, {.keys = keys, .offsets = offsets, .weights = weights}, step.get());
    const Floats none =
        Forward(*shard, {.keys = keys, .offsets = offsets, .pooling = Pooling::kNone}, step.get());
    for (size_t i = 0; i < dim; ++i) {
      EXPECT_EQ(sum[i], 0);
      EXPECT_EQ(sum[dim + i], four[i] + five[i] + four[i]);
      EXPECT_EQ(mean[dim + i], (four[i] + five[i] + four[i]) / 3);
      EXPECT_EQ(weighted[dim + i], four[i] * 0.5F + five[i] * 2 + four[i] * -1);
      EXPECT_EQ(sum[2 * dim + i], six[i]);
      EXPECT_EQ(weighted[2 * dim + i], six[i] * 3);
      EXPECT_EQ(sum[3 * dim + i], 0);
      EXPECT_EQ(none[2 * dim + i], four[i]);
    }
  }
}

TEST_P(EmbeddingShardContract, SumsTheGradientsOfDuplicates) {
  const auto shard = Make(Options(2));
  const Keys keys = {9, 8, 9, 9};
  const auto step = shard->NewStep();
  Forward(*shard, {.keys = keys}, step.get());
  const Floats gradients = {1, 2, 10, 20, 100, 200, 1000, 2000};
  ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 0.5F, .scale = 2}).ok());
  const Floats nine = Initial(*shard, 9);
  const Floats eight = Initial(*shard, 8);
  EXPECT_EQ(Evaluate(*shard, {9, 8}),
            (Floats{nine[0] - 1101, nine[1] - 2202, eight[0] - 10, eight[1] - 20}));
}

TEST_P(EmbeddingShardContract, GradientsOfPooledOutputsReachTheirKeys) {
  const auto shard = Make(Options(1));
  const Keys keys = {1, 2, 1, 3};
  const std::vector<int64_t> offsets = {0, 2, 4};
  const Floats gradients = {4, 8};
  const auto step = shard->NewStep();
  const auto change = [&](const BagBatch& batch) {
    const Floats before = Evaluate(*shard, {1, 2, 3});
    Forward(*shard, batch, step.get());
    EXPECT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 1}).ok());
    Floats after = Evaluate(*shard, {1, 2, 3});
    for (size_t i = 0; i < 3; ++i) after[i] = before[i] - after[i];
    return after;
  };
  Train(*shard, {1, 2, 3}, 0);
  ASSERT_TRUE(shard->WriteRows({.keys = {1, 2, 3}, .values = {0, 0, 0}}).ok());
  EXPECT_EQ(change({.keys = keys, .offsets = offsets}), (Floats{12, 4, 8}));
  EXPECT_EQ(change({.keys = keys, .offsets = offsets, .pooling = Pooling::kMean}),
            (Floats{6, 2, 4}));
  const Floats weights = {0, 0.5F, 2, -1};
  EXPECT_EQ(change({.keys = keys, .offsets = offsets, .weights = weights}), (Floats{16, 2, -8}));
}

// Features of one table: pooled apart, in memory with gaps, and each row updated once.
TEST_P(EmbeddingShardContract, FeaturesShareRowsAndMakeOneUpdate) {
  for (const uint32_t dim : {1U, 8U, 33U}) {
    ShardOptions options = Options(dim, OptimizerKind::kAdagrad);
    const auto shard = Make(options);
    const auto alone = Make(options);
    const auto step = shard->NewStep();
    const Keys item = {7, 8};
    const Keys history = {9, 7, 7, 8};
    const std::vector<int64_t> offsets = {5, 8, 9};  // part of a longer array
    const std::vector<BagBatch> features = {
        {.keys = item},
        {.keys = history, .offsets = offsets, .pooling = Pooling::kMean},
        {.keys = item, .pooling = Pooling::kNone}};
    const size_t stride = 2 * size_t{dim} + 3;
    Floats out(2 * stride, -77);
    Floats none(2 * dim);
    const std::vector<OutputPiece> pieces = {{2, out.data(), stride},
                                             {1, out.data() + dim, stride},
                                             {1, out.data() + dim + stride, stride},
                                             {2, none.data(), dim}};
    ASSERT_TRUE(shard->Forward(features, step.get(), pieces).ok());
    const Floats seven = Initial(*shard, 7);
    const Floats eight = Initial(*shard, 8);
    const Floats nine = Initial(*shard, 9);
    for (size_t i = 0; i < dim; ++i) {
      EXPECT_EQ(out[i], seven[i]);
      EXPECT_EQ(out[dim + i], (nine[i] + seven[i] + seven[i]) / 3);
      EXPECT_EQ(out[stride + dim + i], eight[i]);
      EXPECT_EQ(none[dim + i], eight[i]);
    }
    EXPECT_EQ(out[2 * size_t{dim}], -77);
    // The third feature has no gradient. Powers of two: sums are exact.
    const Floats gradients(2 * stride, 3);
    const std::vector<GradientPiece> given = {
        {2, gradients.data(), stride}, {2, gradients.data() + dim, stride}, {2, nullptr, 0}};
    ASSERT_TRUE(shard->Backward(*step, given, {.learning_rate = 0.5F}).ok());
    const auto one = alone->NewStep();
    const Keys keys = {7, 8, 9};
    Forward(*alone, {.keys = keys}, one.get());
    Floats sums;
    for (const float sum : {3 + 2 * (3 * (1.0F / 3)), 6.0F, 3 * (1.0F / 3)})
      sums.insert(sums.end(), dim, sum);
    ASSERT_TRUE(BackwardOne(*alone, *one, sums, {.learning_rate = 0.5F}).ok());
    EXPECT_EQ(shard->ReadRows(true)->values, alone->ReadRows(true)->values);
    EXPECT_EQ(shard->ReadRows(true)->update_counts, (std::vector<uint32_t>{1, 1, 1}));
  }
}

// Each optimizer against its formula in float64, with gradients that change, and with a row that
// only every third step has.
TEST_P(EmbeddingShardContract, OptimizersFollowTheirFormulas) {
  constexpr uint32_t kDim = 19;
  constexpr float kRate = 0.1F;
  for (const SparseOptimizer& optimizer : EveryOptimizer()) {
    ShardOptions options = Options(kDim);
    options.optimizer = optimizer;
    const auto shard = Make(options);
    ReferenceRow expected(optimizer, Initial(*shard, 3));
    for (int s = 0; s < 200; ++s) {
      const Keys keys = s % 3 == 0 ? Keys{3, 100 + s} : Keys{100 + s};
      Floats gradients(keys.size() * kDim);
      for (size_t i = 0; i < gradients.size(); ++i)
        gradients[i] =
            static_cast<float>(std::sin(static_cast<double>(s) + static_cast<double>(i)));
      const auto step = shard->NewStep();
      Forward(*shard, {.keys = keys}, step.get());
      ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = kRate}).ok());
      if (s % 3 == 0) expected.Update(std::span(gradients).first(kDim), kRate, s + 1);
    }
    const Floats row = Evaluate(*shard, {3});
    for (size_t i = 0; i < kDim; ++i)
      EXPECT_NEAR(row[i], expected.values()[i], 1e-5) << static_cast<int>(optimizer.kind);
  }
}

// A row that the last checkpoint does not have leaves nothing behind when it is erased.
TEST_P(EmbeddingShardContract, ErasedRowsThatNoReaderHasHadTakeNoMemory) {
  ShardOptions options = Options(1);
  options.rows_max = 64;
  const auto shard = Make(options);
  Train(*shard, {-1, -2}, 0);
  const ShardDelta saved = *shard->CollectDelta(DeltaReader::kCheckpoint);
  shard->AcknowledgeDelta(DeltaReader::kCheckpoint, saved.through);
  const auto train_new_keys = [&](Key begin, Key end) {
    for (Key key = begin; key < end; key += 8) {
      Keys keys;
      for (Key i = 0; i < 8; ++i) keys.push_back(key + i);
      Train(*shard, keys, 0);
    }
  };
  train_new_keys(0, 1024);
  const uint64_t bytes = shard->Statistics().bytes;
  train_new_keys(1024, 1 << 15);
  EXPECT_EQ(shard->Statistics().bytes, bytes);
  EXPECT_EQ(shard->CollectDelta(DeltaReader::kCheckpoint)->erased, (Keys{-2, -1}));
}

// Reading erases expired rows at once, and a step without it some at a time. The bound must not
// depend on that.
TEST_P(EmbeddingShardContract, ReadingDoesNotChangeWhatABoundedTableDrops) {
  ShardOptions options = Options(1);
  options.expire_after = 10;
  options.rows_max = 160;
  const auto shard = Make(options);
  const auto read = Make(options);
  for (uint64_t s = 0; s < 300; ++s) {
    Keys keys;
    for (uint64_t i = 0; i < 30; ++i) {
      const uint64_t place = (s * 30 + i) * 0x9e3779b97f4a7c15 >> 54;  // of 1024
      keys.push_back(static_cast<Key>(place * place / 1024));
    }
    Train(*shard, keys, 0.5F);
    Train(*read, keys, 0.5F);
    ASSERT_TRUE(read->ReadRows(false).ok());
  }
  EXPECT_EQ(shard->ReadRows(true)->keys, read->ReadRows(true)->keys);
  EXPECT_EQ(shard->ReadRows(true)->values, read->ReadRows(true)->values);
}

TEST_P(EmbeddingShardContract, AdmitsAKeyAfterThatManySteps) {
  ShardOptions options = Options(2);
  options.admit_after = 3;
  const auto shard = Make(options);
  Train(*shard, {7, 7, 7, 7}, 1);  // one step counts once
  Train(*shard, {7}, 1);
  EXPECT_EQ(shard->Statistics().rows, 0U);
  EXPECT_EQ(Evaluate(*shard, {7}), Floats(2, 0));
  Train(*shard, {7, 7}, 1);
  EXPECT_EQ(shard->Statistics().rows, 1U);
  EXPECT_EQ(shard->Statistics().pending, 0U);
  EXPECT_EQ(Evaluate(*shard, {7}), Plus(Initial(*shard, 7), -2));
}

TEST_P(EmbeddingShardContract, RowsExpireByAgeAndStartAnew) {
  ShardOptions options = Options(2);
  options.expire_after = 5;
  const auto shard = Make(options);
  Train(*shard, {1, 2}, 1);
  for (int i = 0; i < 5; ++i) Train(*shard, {2}, 1);
  EXPECT_EQ(Evaluate(*shard, {1}), Plus(Initial(*shard, 1), -1));
  Train(*shard, {2, 1, 1}, 0);  // the sixth step without it: key 1 has expired
  EXPECT_EQ(Evaluate(*shard, {1}), Initial(*shard, 1));
  for (int i = 0; i < 6; ++i) Train(*shard, {2}, 0);
  EXPECT_EQ(Evaluate(*shard, {1}), Floats(2, 0));
  EXPECT_EQ(shard->ReadRows(false)->keys, Keys{2});
}

// An expired row's slot may go to another key of the batch that finds the row expired.
TEST_P(EmbeddingShardContract, AnExpiredKeyIsNotTakenForTheKeyThatGotItsPlace) {
  ShardOptions options = Options(2);
  options.expire_after = 1000;
  options.admit_after = 2;
  const auto shard = Make(options);
  Train(*shard, {1}, 1);
  Train(*shard, {1}, 1);
  Train(*shard, {5}, 1);
  ShardRows rows = *shard->ReadRows(true);
  ASSERT_EQ(rows.keys, Keys{1});
  rows.step = 5000;
  ASSERT_TRUE(shard->WriteRows(rows).ok());
  const auto step = shard->NewStep();
  const Floats out = Forward(*shard, {.keys = Keys{1, 5, 1}}, step.get());
  const Floats five = Initial(*shard, 5);
  EXPECT_EQ(out, (Floats{0, 0, five[0], five[1], 0, 0}));
}

TEST_P(EmbeddingShardContract, ABoundedTableDropsTheLeastRecentlySeenRows) {
  ShardOptions options = Options(1);
  options.rows_max = 32;
  const auto shard = Make(options);
  for (Key key = 0; key < 33; ++key) Train(*shard, {key, 0}, 0);
  Train(*shard, {0}, 0);
  const ShardRows rows = *shard->ReadRows(false);
  Keys expected = {0};
  for (Key key = 4; key < 33; ++key) expected.push_back(key);
  EXPECT_EQ(rows.keys, expected);  // down to the bound less a sixteenth of it
}

TEST_P(EmbeddingShardContract, ARowErasedWithinAStepIsNotUpdated) {
  const auto shard = Make(Options(2));
  const auto step = shard->NewStep();
  const Keys keys = {1, 2};
  Forward(*shard, {.keys = keys}, step.get());
  ASSERT_TRUE(shard->EraseRows(Keys{1}).ok());
  Train(*shard, {3}, 0);  // may take the place of row 1
  const Floats gradients(4, 1);
  ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 1}).ok());
  EXPECT_EQ(Evaluate(*shard, {3}), Initial(*shard, 3));
  EXPECT_EQ(Evaluate(*shard, {2}), Plus(Initial(*shard, 2), -1));
  EXPECT_EQ(Evaluate(*shard, {1}), Floats(2, 0));
}

TEST_P(EmbeddingShardContract, RowsWithStateContinueElsewhereBitForBit) {
  for (const SparseOptimizer& optimizer : EveryOptimizer()) {
    ShardOptions options = Options(5);
    options.optimizer = optimizer;
    options.admit_after = 2;
    options.expire_after = 4;
    const auto shard = Make(options);
    for (int i = 0; i < 3; ++i) Train(*shard, {-5, 3, 77}, 0.5F);
    Train(*shard, {3, 8}, 0.25F);
    const ShardRows rows = *shard->ReadRows(true);
    EXPECT_EQ(rows.keys, (Keys{-5, 3, 77}));
    EXPECT_EQ(rows.pending_keys, Keys{8});
    const auto other = Make(options);
    ASSERT_TRUE(other->WriteRows(rows).ok());
    for (const auto& each : {shard.get(), other.get()}) {
      for (int i = 0; i < 4; ++i) Train(*each, {3, 8}, 0.125F);
    }
    const ShardRows expected = *shard->ReadRows(true);
    const ShardRows actual = *other->ReadRows(true);
    EXPECT_EQ(actual.keys, (Keys{3, 8}));
    EXPECT_EQ(actual.keys, expected.keys);
    EXPECT_EQ(actual.values, expected.values);
    EXPECT_EQ(actual.last_seen, expected.last_seen);
    EXPECT_EQ(actual.update_counts, expected.update_counts);
    EXPECT_EQ(actual.step, expected.step);
    EXPECT_EQ(actual.table_updates, expected.table_updates);
  }
}

// Rows of other ranks, which come one rank after the other.
TEST_P(EmbeddingShardContract, TheNumberOfUpdatesIsTheLargestThatWasWritten) {
  const auto shard = Make(Options(1, OptimizerKind::kSparseAdam));
  for (int i = 0; i < 3; ++i) Train(*shard, {1}, 1);
  const auto step = shard->NewStep();
  Forward(*shard, {.keys = Keys{1}}, step.get());  // without gradients
  ShardRows rows = *shard->ReadRows(true);
  EXPECT_EQ(rows.step, 4U);
  EXPECT_EQ(rows.table_updates, 3U);
  for (const uint32_t written : {2U, 9U, 1U}) {
    rows.table_updates = written;
    ASSERT_TRUE(shard->WriteRows(rows).ok());
    EXPECT_EQ(shard->ReadRows(true)->table_updates, written == 2 ? 3U : 9U);
  }
  EXPECT_EQ(shard->CollectDelta(DeltaReader::kCheckpoint)->changed.table_updates, 9U);
}

TEST_P(EmbeddingShardContract, DeltasHaveWhatChangedUntilAcknowledged) {
  const auto shard = Make(Options(2));
  Train(*shard, {1, 2, 3}, 1);
  const ShardDelta first = *shard->CollectDelta(DeltaReader::kPublication);
  EXPECT_EQ(first.changed.keys, (Keys{1, 2, 3}));
  EXPECT_EQ(first.changed.values, Evaluate(*shard, {1, 2, 3}));
  EXPECT_EQ(shard->CollectDelta(DeltaReader::kPublication)->changed.keys,
            (Keys{1, 2, 3}));  // not acknowledged
  shard->AcknowledgeDelta(DeltaReader::kPublication, first.through);
  EXPECT_TRUE(shard->CollectDelta(DeltaReader::kPublication)->changed.keys.empty());

  Train(*shard, {2, 4}, 1);
  ASSERT_TRUE(shard->EraseRows(Keys{1, 3, 4, 50}).ok());
  Train(*shard, {3}, 1);
  const ShardDelta second = *shard->CollectDelta(DeltaReader::kPublication);
  EXPECT_EQ(second.changed.keys, (Keys{2, 3}));
  EXPECT_EQ(second.erased, Keys{1});  // 3 is back, 4 and 50 were never in a delta
  shard->AcknowledgeDelta(DeltaReader::kPublication, second.through);
  const ShardDelta third = *shard->CollectDelta(DeltaReader::kPublication);
  EXPECT_TRUE(third.changed.keys.empty());
  EXPECT_TRUE(third.erased.empty());
}

// A shard that gets every delta of a checkpoint is the other one, history included.
TEST_P(EmbeddingShardContract, DeltasOfACheckpointLeadToTheSameShard) {
  ShardOptions options = Options(2, OptimizerKind::kAdagrad);
  options.admit_after = 2;
  options.expire_after = 30;
  const auto shard = Make(options);
  const auto other = Make(options);
  const auto step = shard->NewStep();
  for (Key s = 0; s < 40; ++s) {
    Train(*shard, {s % 7, s % 11 + 100, s / 3}, 0.5F);
    if (s == 20) {
      ASSERT_TRUE(shard->EraseRows(Keys{1, 103}).ok());
    }
    // A step without a backward call: its rows have been seen all the same.
    Forward(*shard, {.keys = Keys{5, 105}}, step.get());
    if (s % 4 != 3) continue;
    ShardDelta delta = *shard->CollectDelta(DeltaReader::kCheckpoint);
    EXPECT_EQ(delta.changed.pending_keys, shard->ReadRows(true)->pending_keys);
    delta.changed.pending_keys.clear();  // a checkpoint's last list counts
    delta.changed.pending_counts.clear();
    if (s > 20) {
      EXPECT_LT(delta.changed.keys.size(), shard->Statistics().rows);
    }
    ASSERT_TRUE(other->EraseRows(delta.erased).ok());
    ASSERT_TRUE(other->WriteRows(delta.changed).ok());
    if (s % 8 == 3) shard->AcknowledgeDelta(DeltaReader::kCheckpoint, delta.through);
    const ShardRows expected = *shard->ReadRows(true);
    const ShardRows actual = *other->ReadRows(true);
    EXPECT_EQ(actual.keys, expected.keys) << s;
    EXPECT_EQ(actual.values, expected.values) << s;
    EXPECT_EQ(actual.last_seen, expected.last_seen) << s;
    EXPECT_EQ(actual.update_counts, expected.update_counts) << s;
    EXPECT_EQ(actual.step, expected.step) << s;
    EXPECT_EQ(actual.table_updates, expected.table_updates) << s;
  }
  shard->AcknowledgeDelta(DeltaReader::kCheckpoint, {});
  EXPECT_EQ(shard->CollectDelta(DeltaReader::kCheckpoint)->changed.keys,
            shard->ReadRows(true)->keys);
}

TEST_P(EmbeddingShardContract, EqualStepsGiveEqualBits) {
  ShardRows results[2];
  for (ShardRows& result : results) {
    const auto shard = Make(Options(31, OptimizerKind::kAdam));
    const auto step = shard->NewStep();
    for (int s = 0; s < 20; ++s) {
      Keys keys(500);
      for (size_t i = 0; i < keys.size(); ++i)
        keys[i] = static_cast<Key>((i * i + static_cast<size_t>(s)) % 37);
      Floats gradients(keys.size() * 31);
      for (size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = 1.0F / static_cast<float>(i % 1013 + 1);
      Forward(*shard, {.keys = keys}, step.get());
      ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 0.01F}).ok());
    }
    result = *shard->ReadRows(true);
  }
  EXPECT_EQ(results[0].values, results[1].values);
}

TEST_P(EmbeddingShardContract, EmptyBatchesAndBagsAreLegal) {
  const auto shard = Make(Options(4));
  const auto step = shard->NewStep();
  EXPECT_TRUE(Forward(*shard, {}, step.get()).empty());
  EXPECT_TRUE(BackwardOne(*shard, *step, {}, {}).ok());
  const std::vector<int64_t> offsets = {0, 0, 0};
  EXPECT_EQ(Forward(*shard, {.offsets = offsets, .pooling = Pooling::kMean}, step.get()),
            Floats(8, 0));
  const Floats gradients(8, 1);
  EXPECT_TRUE(BackwardOne(*shard, *step, gradients, {}).ok());
}

TEST_P(EmbeddingShardContract, RefusesSizesThatDoNotFit) {
  const auto shard = Make(Options(4));
  const auto step = shard->NewStep();
  const Keys keys = {1, 2};
  const auto refuses = [&](const BagBatch& batch, size_t out_size) {
    Floats out(out_size);
    return ForwardOne(*shard, batch, step.get(), out).code() == absl::StatusCode::kInvalidArgument;
  };
  const Floats weights = {1, 2};
  const std::vector<int64_t> descending = {0, 2, 1, 2};
  const std::vector<int64_t> late = {1, 2};
  const std::vector<int64_t> short_of_keys = {0, 1};
  EXPECT_TRUE(refuses({.keys = keys}, 7));
  EXPECT_TRUE(refuses({.keys = keys, .weights = std::span(weights).first(1)}, 8));
  EXPECT_TRUE(refuses({.keys = keys, .weights = weights, .pooling = Pooling::kMean}, 8));
  EXPECT_TRUE(refuses({.keys = keys, .offsets = descending}, 12));
  EXPECT_TRUE(refuses({.keys = keys, .offsets = late}, 4));
  EXPECT_TRUE(refuses({.keys = keys, .offsets = short_of_keys}, 4));
  EXPECT_TRUE(refuses({.keys = keys, .offsets = short_of_keys, .pooling = Pooling::kNone}, 8));
  EXPECT_EQ(BackwardOne(*shard, *step, {}, {}).code(), absl::StatusCode::kInvalidArgument);
  Forward(*shard, {.keys = keys}, step.get());
  EXPECT_EQ(BackwardOne(*shard, *step, weights, {}).code(), absl::StatusCode::kInvalidArgument);
  const BagBatch two{.keys = keys};
  const OutputPiece room{3, nullptr, 4};
  EXPECT_EQ(shard->Forward({&two, 1}, step.get(), {&room, 1}).code(),
            absl::StatusCode::kInvalidArgument);
  // Room for as many rows as both features have, but not for those of each.
  EXPECT_EQ(shard->Forward({{two, two}}, step.get(), {{{3}, {1}}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BackwardOne(*shard, *step, std::span(weights).first(1), {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(shard->WriteRows({.keys = keys, .values = {1, 2, 3}}).ok());
  EXPECT_FALSE(GetParam().make({}).ok());
}

}  // namespace hps
