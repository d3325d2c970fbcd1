#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/test_gpu.h"
#include "testing/contracts/embedding_shard_contract.h"
#include "train/table_set.h"
#include "train_gpu/test_device_shard.h"

namespace hps {
namespace {

INSTANTIATE_TEST_SUITE_P(Device, EmbeddingShardContract,
                         ::testing::Values(EmbeddingShardFactory{"device", DeviceShard::Create,
                                                                 WhyNoGpu}),
                         EmbeddingShardName);

using DeviceTablesTest = GpuTest;
using Floats = std::vector<float>;
using Keys = std::vector<Key>;

ShardOptions Options(uint32_t dim, OptimizerKind kind = OptimizerKind::kSgd) {
  return {.name = "m/t",
          .dim = dim,
          .optimizer = {.kind = kind, .momentum = 0.9F, .beta = 0.5F},
          .initializer = {.low = -1, .high = 1, .seed = 5}};
}

std::unique_ptr<EmbeddingShard> Make(const ShardOptions& options) {
  return *DeviceShard::Create(options);
}

// Where sums are cut must not depend on the numbers of rows, which depend on the table's past.
TEST_F(DeviceTablesTest, EqualBatchesGiveEqualBitsWhateverTheTableHadBefore) {
  ShardRows results[2];
  for (int run = 0; run < 2; ++run) {
    const auto shard = Make(Options(12, OptimizerKind::kAdam));
    if (run == 1) {  // the rows get other numbers
      Keys others(50'000);
      for (size_t i = 0; i < others.size(); ++i) others[i] = static_cast<Key>(1'000'000 + i);
      const auto step = shard->NewStep();
      Floats out(others.size() * 12);
      ASSERT_TRUE(ForwardOne(*shard, {.keys = others}, step.get(), out).ok());
      ASSERT_TRUE(shard->EraseRows(others).ok());
    }
    std::mt19937_64 random(11);
    for (int s = 0; s < 5; ++s) {
      Keys keys(20'000);
      for (Key& key : keys) key = static_cast<Key>(random() % (random() % 2 == 0 ? 3 : 3000));
      Floats gradients(keys.size() * 12);
      for (float& gradient : gradients) gradient = 1.0F / static_cast<float>(random() % 1013 + 1);
      const auto step = shard->NewStep();
      Floats out(gradients.size());
      ASSERT_TRUE(ForwardOne(*shard, {.keys = keys}, step.get(), out).ok());
      ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 0.01F}).ok());
    }
    results[run] = *shard->ReadRows(true);
  }
  EXPECT_EQ(results[0].keys, results[1].keys);
  EXPECT_EQ(results[0].values, results[1].values);
}

TEST_F(DeviceTablesTest, GradientsThatAreNotFiniteChangeNoRow) {
  const auto shard = Make(Options(5, OptimizerKind::kSparseAdam));
  auto& device = static_cast<DeviceShard&>(*shard);
  Keys keys(100);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i % 50);
  const auto train = [&](size_t at, float value) {
    const auto step = shard->NewStep();
    Floats out(keys.size() * 5);
    ASSERT_TRUE(ForwardOne(*shard, {.keys = keys}, step.get(), out).ok());
    Floats gradients(out.size(), 0.25F);
    gradients[at] = value;
    ASSERT_TRUE(BackwardOne(*shard, *step, gradients, {.learning_rate = 0.1F}).ok());
  };
  train(0, 1);
  EXPECT_TRUE(device.is_updated());
  const ShardRows before = *shard->ReadRows(true);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1e30F}) {
    for (const size_t at : {0UL, 7UL, 499UL}) {
      train(at, bad);
      EXPECT_FALSE(device.is_updated());
    }
  }
  const ShardRows after = *shard->ReadRows(true);
  EXPECT_EQ(after.values, before.values);
  EXPECT_EQ(after.update_counts, before.update_counts);
  EXPECT_EQ(after.table_updates, before.table_updates);
  train(0, 1);
  EXPECT_TRUE(device.is_updated());
}

// Tables of several widths and optimizers, features in any order, one table without gradients.
TEST_F(DeviceTablesTest, TablesOfOneCallAreTrainedTogether) {
  std::vector<ShardOptions> options = {Options(8), Options(4, OptimizerKind::kAdam), Options(8),
                                       Options(6, OptimizerKind::kAdagrad)};
  for (size_t t = 0; t < options.size(); ++t) options[t].name = "m/t" + std::to_string(t);
  const auto set = *MakeDeviceTableSet(0, options);
  const std::vector<size_t> tables = {3, 0, 1, 2};  // in the order of the call
  const std::vector<SetFeature> features = {{.name = "a", .table = 2},
                                            {.name = "b", .table = 0},
                                            {.name = "c", .table = 1},
                                            {.name = "d", .table = 3},
                                            {.name = "e", .table = 1}};
  const auto step = set->NewStep(tables, features);
  const size_t batch_size = 3;
  const Keys keys = {1, 2, 1, /*b*/ 1, 1, 1, /*c*/ 5, 6, 7, /*d*/ 5, 6, 7, /*e*/ 7, 5, 8};
  const DeviceBuffer device_keys = ToDevice(std::span<const Key>(keys));
  const std::vector<int64_t> bags(5, batch_size);
  const SetBatch batch{.keys = {device_keys.at<const Key>(0), keys.size()}, .bag_counts = bags};
  const DeviceBuffer memory = NewBuffer(*step->PrepareBytes(batch, StepMode::kTrain));
  ASSERT_TRUE(step->Prepare(batch, StepMode::kTrain, {memory.data(), memory.bytes()}, {}).ok());
  std::vector<size_t> dims;
  std::vector<DeviceBuffer> outputs;
  std::vector<DeviceOutput> places;
  std::vector<DeviceGradient> gradients;
  for (const SetFeature& feature : features) {
    dims.push_back(options[tables[feature.table]].dim);
    outputs.push_back(NewBuffer(batch_size * dims.back() * sizeof(float)));
    places.push_back({outputs.back().data(), dims.back() * sizeof(float)});
  }
  ASSERT_TRUE(step->Gather(places, Dtype::kFloat32, {}).ok());
  for (size_t f = 0; f < features.size(); ++f) {
    const Floats rows = ToHost(outputs[f]);
    Floats expected(rows.size());
    for (size_t i = 0; i < batch_size; ++i) {
      InitializeRow(options[0].initializer, keys[f * batch_size + i],
                    std::span(expected).subspan(i * dims[f], dims[f]));
    }
    EXPECT_EQ(rows, expected) << f;
  }
  // All ones; table 2 of the set ("d") has none.
  const Floats ones(batch_size * 8, 1);
  const DeviceBuffer device_ones = ToDevice(std::span<const float>(ones));
  for (size_t f = 0; f < features.size(); ++f)
    gradients.push_back({f == 3 ? nullptr : device_ones.data(), dims[f] * sizeof(float)});
  const DeviceBuffer sums = NewBuffer(step->ReduceBytes());
  ASSERT_TRUE(step->Reduce({gradients}, 1, {sums.data(), sums.bytes()}, {}).ok());
  const std::vector<UpdateFactors> factors(4, {.learning_rate = 0.5F});
  const DeviceBuffer verdict = NewVerdict();
  ASSERT_TRUE(step->Apply(factors, verdict.at<float>(0), {}).ok());
  EXPECT_EQ(ToHost(verdict)[0], 0);
  EXPECT_EQ(*set->SkippedUpdates(), 0U);
  // Table 0 has "c" and "e": keys 5 and 7 twice.
  const ShardRows rows = *set->rows(0).ReadRows(true);
  EXPECT_EQ(rows.keys, (Keys{5, 6, 7, 8}));
  EXPECT_EQ(rows.update_counts, (std::vector<uint32_t>{1, 1, 1, 1}));
  for (size_t i = 0; i < 4; ++i) {
    Floats row(8);
    InitializeRow(options[0].initializer, rows.keys[i], row);
    EXPECT_EQ(rows.values[i * 8], row[0] - (i == 0 || i == 2 ? 1.0F : 0.5F));
  }
  EXPECT_EQ(set->rows(2).ReadRows(true)->update_counts, (std::vector<uint32_t>{0, 0, 0}));
  EXPECT_EQ(set->rows(2).ReadRows(true)->table_updates, 0U);
  EXPECT_EQ(set->rows(1).ReadRows(true)->keys, (Keys{1, 2}));
  EXPECT_EQ(set->rows(3).ReadRows(true)->update_counts, (std::vector<uint32_t>{1}));
}

// A call with bags of three keys. `is_reported`: Prepare refused it for an earlier call's offsets.
// `is_updated`: its update changed rows.
struct OffsetCall {
  OffsetCall(TableStep& step, const std::vector<int64_t>& offsets, StepMode mode) {
    const Keys keys = {1, 2, 3};
    const DeviceBuffer device_keys = ToDevice(std::span<const Key>(keys));
    const DeviceBuffer device_offsets = ToDevice(std::span<const int64_t>(offsets));
    const std::vector<int64_t> bags = {3};
    const SetBatch batch{.keys = {device_keys.at<const Key>(0), 3},
                         .offsets = {device_offsets.at<const int64_t>(0), 4},
                         .bag_counts = bags};
    const DeviceBuffer memory = NewBuffer(*step.PrepareBytes(batch, mode));
    const absl::Status status = step.Prepare(batch, mode, {memory.data(), memory.bytes()}, {});
    is_reported = status.code() == absl::StatusCode::kInvalidArgument;
    if (!status.ok()) return;
    const DeviceBuffer out = NewBuffer(3 * 4 * sizeof(float));
    const DeviceOutput output{out.data(), 4 * sizeof(float)};
    EXPECT_TRUE(step.Gather({&output, 1}, Dtype::kFloat32, {}).ok());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (mode == StepMode::kEvaluate) return;
    const Floats ones(12, 1);
    const DeviceBuffer gradients = ToDevice(std::span<const float>(ones));
    const DeviceGradient gradient{gradients.data(), 4 * sizeof(float)};
    const DeviceBuffer sums = NewBuffer(step.ReduceBytes());
    const UpdateFactors factors{.learning_rate = 1};
    const DeviceBuffer verdict = NewVerdict();
    EXPECT_TRUE(step.Reduce({{&gradient, 1}}, 1, {sums.data(), sums.bytes()}, {}).ok());
    EXPECT_TRUE(step.Apply({&factors, 1}, verdict.at<float>(0), {}).ok());
    is_updated = ToHost(verdict)[0] == 0;
  }

  bool is_reported = false;
  bool is_updated = false;
};

TEST_F(DeviceTablesTest, WrongOffsetsAreReportedByTheNextCallAndChangeNoRow) {
  const std::vector<int64_t> good = {0, 1, 2, 3};
  for (const Pooling pooling : {Pooling::kSum, Pooling::kMean, Pooling::kNone}) {
    const auto set = *MakeDeviceTableSet(0, {Options(4)});
    const auto step = set->NewStep({0}, {{.name = "f", .pooling = pooling}});
    for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{0, 2, 1, 3},
                                                {0, 1, 2, 4},
                                                {1, 1, 2, 3},
                                                {0, -5, 9, 3},
                                                {0, 1, 2, std::numeric_limits<int64_t>::max()},
                                                {std::numeric_limits<int64_t>::min(), 0, 1, 3}}) {
      for (const StepMode mode : {StepMode::kTrain, StepMode::kEvaluate}) {
        EXPECT_TRUE(OffsetCall(*step, good, StepMode::kTrain).is_updated);
        const ShardRows before = *set->rows(0).ReadRows(true);
        const OffsetCall wrong(*step, offsets, mode);
        EXPECT_FALSE(wrong.is_updated);
        EXPECT_FALSE(wrong.is_reported);
        EXPECT_TRUE(OffsetCall(*step, good, StepMode::kTrain).is_reported);
        const ShardRows after = *set->rows(0).ReadRows(true);
        EXPECT_EQ(after.keys, before.keys);
        EXPECT_EQ(after.values, before.values);
      }
    }
    EXPECT_EQ(*set->SkippedUpdates(), 6U);
  }
}

// Each step has new keys, and old rows are erased: the index is rebuilt without growing.
TEST_F(DeviceTablesTest, ABoundedTableTakesBoundedMemory) {
  ShardOptions options = Options(4);
  options.rows_max = 50'000;
  const auto shard = Make(options);
  uint64_t bytes = 0;
  Keys keys(20'000);
  for (Key s = 0; s < 200; ++s) {
    for (size_t i = 0; i < keys.size(); ++i)
      keys[i] = s * static_cast<Key>(keys.size()) + static_cast<Key>(i);
    const auto step = shard->NewStep();
    Floats out(keys.size() * 4);
    ASSERT_TRUE(ForwardOne(*shard, {.keys = keys}, step.get(), out).ok());
    if (s == 20) bytes = shard->Statistics().bytes;
  }
  EXPECT_LE(shard->Statistics().bytes, bytes + bytes / 8);
  EXPECT_LE(shard->Statistics().rows, 70'000U);
}

TEST_F(DeviceTablesTest, AStepWithoutNewKeysDoesNotWait) {
  const auto set = *MakeDeviceTableSet(0, {Options(4)});
  const auto step = set->NewStep({0}, {{.name = "f"}});
  Keys keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  const DeviceBuffer device_keys = ToDevice(std::span<const Key>(keys));
  const std::vector<int64_t> bags = {1000};
  const SetBatch batch{.keys = {device_keys.at<const Key>(0), 1000}, .bag_counts = bags};
  const DeviceBuffer memory = NewBuffer(*step->PrepareBytes(batch, StepMode::kTrain));
  const std::span<std::byte> bytes(memory.data(), memory.bytes());
  ASSERT_TRUE(step->Prepare(batch, StepMode::kTrain, bytes, {}).ok());
  const CudaStream stream = *MakeStream(StreamPriority::kLow);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    // The device does nothing until the hold ends, which a call that waits would not live to see.
    const StreamHold hold(stream.get());
    ASSERT_TRUE(step->Prepare(batch, StepMode::kTrain, bytes, {stream.get()}).ok());
    ASSERT_TRUE(step->Prepare(batch, StepMode::kTrain, bytes, {stream.get()}).ok());
  }
  EXPECT_EQ(set->rows(0).Statistics().step, 9U);
}

TEST_F(DeviceTablesTest, RefusesWhatCantBe) {
  ShardOptions options = Options(4);
  options.admit_after = 0;
  EXPECT_EQ(MakeDeviceTableSet(0, {options}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeDeviceTableSet(1000, {Options(4)}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MakeDeviceTableSet(0, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

// More rows than the device has memory for: an error that names the table, and everything as it
// was.
TEST_F(DeviceTablesTest, WithoutMemoryNoRowChanges) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  const uint32_t dim = 4096;
  ShardOptions options = Options(dim);
  options.expire_after = 2;
  const auto set = *MakeDeviceTableSet(0, {options});
  const auto train = [&](Key first, size_t count) {
    Keys keys(count);
    for (size_t i = 0; i < count; ++i) keys[i] = first + static_cast<Key>(i);
    const DeviceBuffer device_keys = ToDevice(std::span<const Key>(keys));
    const auto bags = static_cast<int64_t>(count);
    const SetBatch batch{.keys = {device_keys.at<const Key>(0), count}, .bag_counts = {&bags, 1}};
    const auto step = set->NewStep({0}, {{.name = "f"}});
    const DeviceBuffer memory = NewBuffer(*step->PrepareBytes(batch, StepMode::kTrain));
    return step->Prepare(batch, StepMode::kTrain, {memory.data(), memory.bytes()}, {});
  };
  ASSERT_TRUE(train(0, 10).ok());
  const absl::Status status = train(5, total_bytes / (dim * sizeof(float)) + 1000);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("m/t"), std::string::npos) << status;
  EXPECT_EQ(set->rows(0).ReadRows(false)->keys.size(), 10U);
  EXPECT_EQ(set->rows(0).Statistics().step, 1U);
  EXPECT_TRUE(train(5, 10).ok());
  EXPECT_EQ(set->rows(0).Statistics().rows, 15U);
}

}  // namespace
}  // namespace hps
