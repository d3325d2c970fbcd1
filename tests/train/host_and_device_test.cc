// A table on a device is the same table on the host: random steps, with growth, admission, expiry,
// bounds, erasure, and rows that go from one to the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/test_gpu.h"
#include "testing/contracts/embedding_shard_contract.h"
#include "testing/trials.h"
#include "train_cpu/host_shard.h"
#include "train_gpu/test_device_shard.h"

namespace hps {
namespace {

using HostAndDevice = GpuTest;
using Floats = std::vector<float>;
using Keys = std::vector<Key>;

ShardOptions Options(uint32_t dim, OptimizerKind kind, Dtype dtype = Dtype::kFloat32) {
  return {.name = "m/t",
          .dim = dim,
          .dtype = dtype,
          .optimizer = {.kind = kind, .momentum = 0.9F, .beta = 0.5F},
          .initializer = {.low = -1, .high = 1, .seed = 5}};
}

// Output and gradients of one feature on both, with small integers as gradients: their sums are
// exact in any order.
struct Pair {
  explicit Pair(const ShardOptions& options)
      : host(*HostShard::Create(options)), device(*DeviceShard::Create(options)) {
    if (options.dtype == Dtype::kFloat32) return;
    // The same bits, unless the squares of a row are added in another order: then a value may be
    // rounded the other way now and then.
    const double distance = options.dtype == Dtype::kBfloat16 ? 0x1p-7 : 0x1p-10;
    tolerance = options.optimizer.kind == OptimizerKind::kRowwiseAdagrad ? 4 * distance : 0;
    differ_part = 50;
  }

  void Step(const BagBatch& batch, std::mt19937_64& random) {
    const size_t dim = host->options().dim;
    Floats outputs[2];
    Floats gradients(batch.output_rows() * dim);
    for (float& gradient : gradients) gradient = static_cast<float>(random() % 9) - 4;
    int at = 0;
    for (EmbeddingShard* const shard : {host.get(), device.get()}) {
      const auto step = shard->NewStep();
      Floats& out = outputs[at++];
      out.resize(gradients.size());
      ASSERT_TRUE(ForwardOne(*shard, batch, step.get(), out).ok());
      ASSERT_TRUE(
          BackwardOne(*shard, *step, gradients, {.learning_rate = 0.125F, .scale = 0.5F}).ok());
    }
    ExpectNear(outputs[0], outputs[1]);
  }

  void ExpectNear(const Floats& expected, const Floats& actual) const {
    ASSERT_EQ(expected.size(), actual.size());
    size_t differ = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(expected[i], actual[i], tolerance * std::max(1.0F, std::fabs(expected[i]))) << i;
      differ += expected[i] != actual[i] ? 1 : 0;
    }
    if (differ_part != 0) {
      ASSERT_LE(differ, expected.size() / differ_part + 2);
    }
  }

  void ExpectEqual() {
    const ShardRows expected = *host->ReadRows(true);
    const ShardRows actual = *device->ReadRows(true);
    ASSERT_EQ(actual.keys, expected.keys);
    ASSERT_EQ(actual.last_seen, expected.last_seen);
    ASSERT_EQ(actual.update_counts, expected.update_counts);
    ASSERT_EQ(actual.pending_keys, expected.pending_keys);
    ASSERT_EQ(actual.pending_counts, expected.pending_counts);
    ASSERT_EQ(actual.step, expected.step);
    ASSERT_EQ(actual.table_updates, expected.table_updates);
    ExpectNear(expected.values, actual.values);
  }

  std::unique_ptr<EmbeddingShard> host, device;
  double tolerance = 1e-6;
  size_t differ_part = 0;  // one of so many values may differ at all; 0: all
};

// Batches of every size about those of warps and chunks, with keys of every kind, growth,
// admission, erasure, and rows that go from one table to the other.
void RandomSteps(Dtype dtype) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  for (const uint32_t dim : {1U, 3U, 4U, 16U, 40U, 128U, 129U, 516U}) {
    for (const OptimizerKind kind :
         {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
          OptimizerKind::kAdam, OptimizerKind::kMomentum, OptimizerKind::kNesterov,
          OptimizerKind::kSparseAdam, OptimizerKind::kFtrl}) {
      ShardOptions options = Options(dim, kind, dtype);
      options.admit_after = 1 + random() % 2;
      options.expire_after = random() % 2 == 0 ? 0 : 3;
      options.rows_max = random() % 2 == 0 ? 0 : 700;
      options.optimizer.weight_decay = kind == OptimizerKind::kFtrl ? 0 : 0.01F;
      Pair pair(options);
      for (const size_t size : {0UL, 1UL, 31UL, 32UL, 33UL, 64UL, 1000UL, 4096UL, 5000UL}) {
        Keys keys(size);
        const uint64_t bound = random() % 3 == 0 ? 3 : size * 2 + 1;
        for (Key& key : keys) key = static_cast<Key>(random() % bound) - 3;
        if (size > 2) keys[2] = std::numeric_limits<Key>::min();
        std::vector<int64_t> offsets = {0};
        while (offsets.back() < static_cast<int64_t>(size)) {
          offsets.push_back(std::min(offsets.back() + static_cast<int64_t>(random() % 5),
                                     static_cast<int64_t>(size)));
        }
        BagBatch batch{.keys = keys};
        Floats weights(size, 0.5F);
        if (random() % 3 != 0) batch.offsets = offsets;
        if (random() % 3 == 0)
          batch.pooling = Pooling::kNone;
        else if (random() % 3 == 0)
          batch.weights = weights;
        ASSERT_NO_FATAL_FAILURE(pair.Step(batch, random))
            << dim << " " << static_cast<int>(kind) << " " << size << " seed " << seed;
        ASSERT_NO_FATAL_FAILURE(pair.ExpectEqual())
            << dim << " " << static_cast<int>(kind) << " " << size << " seed " << seed;
        if (size == 33) {
          ASSERT_TRUE(pair.host->EraseRows(std::span(keys).first(5)).ok());
          ASSERT_TRUE(pair.device->EraseRows(std::span(keys).first(5)).ok());
        }
      }
      // Each goes on with the other's rows.
      const ShardRows of_host = *pair.host->ReadRows(true);
      const ShardRows of_device = *pair.device->ReadRows(true);
      Pair next(options);
      ASSERT_TRUE(next.host->WriteRows(of_device).ok());
      ASSERT_TRUE(next.device->WriteRows(of_host).ok());
      ASSERT_NO_FATAL_FAILURE(next.ExpectEqual());
      const Keys keys = {1, 2, 3, -1, -2, 2};
      ASSERT_NO_FATAL_FAILURE(next.Step({.keys = keys}, random));
      ASSERT_NO_FATAL_FAILURE(next.ExpectEqual());
    }
  }
}

TEST_F(HostAndDevice, RandomStepsAreThoseOfTheHost) { RandomSteps(Dtype::kFloat32); }
TEST_F(HostAndDevice, RandomStepsOfBfloat16AreThoseOfTheHost) { RandomSteps(Dtype::kBfloat16); }
TEST_F(HostAndDevice, RandomStepsOfFloat16AreThoseOfTheHost) { RandomSteps(Dtype::kFloat16); }

// Tables of several widths in one step: groups begin within chunks, and have runs over none, few
// and many of them.
TEST_F(HostAndDevice, GroupsOfOneStepAreThoseOfTheHost) {
  const std::vector<uint32_t> dims = {8, 3, 128, 8};
  std::vector<ShardOptions> options;
  std::vector<std::unique_ptr<EmbeddingShard>> hosts;
  std::vector<SetFeature> features;
  for (size_t t = 0; t < dims.size(); ++t) {
    options.push_back(Options(dims[t], OptimizerKind::kSgd));
    options.back().name = "m/t" + std::to_string(t);
    hosts.push_back(*HostShard::Create(options.back()));
    features.push_back({.name = options.back().name, .table = t});
  }
  const auto set = *MakeDeviceTableSet(0, options);
  std::mt19937_64 random(TestSeed());
  for (const size_t size : {3UL, 45UL, 700UL, 20'001UL}) {
    const auto step = set->NewStep({0, 1, 2, 3}, features);
    Keys keys;
    std::vector<Floats> gradients;
    const std::vector<int64_t> bags(dims.size(), static_cast<int64_t>(size));
    for (const uint32_t dim : dims) {
      for (size_t i = 0; i < size; ++i)
        keys.push_back(random() % 2 == 0 ? 7 : static_cast<Key>(random() % size));
      gradients.emplace_back(size * dim);
      for (float& gradient : gradients.back()) gradient = static_cast<float>(random() % 9) - 4;
    }
    const DeviceBuffer device_keys = ToDevice(std::span<const Key>(keys));
    const SetBatch batch{.keys = {device_keys.at<const Key>(0), keys.size()}, .bag_counts = bags};
    const DeviceBuffer memory = NewBuffer(*step->PrepareBytes(batch, StepMode::kTrain));
    ASSERT_TRUE(step->Prepare(batch, StepMode::kTrain, {memory.data(), memory.bytes()}, {}).ok());
    std::vector<DeviceBuffer> buffers;
    std::vector<DeviceOutput> outputs(dims.size());  // not wanted
    std::vector<DeviceGradient> places;
    for (size_t t = 0; t < dims.size(); ++t) {
      buffers.push_back(ToDevice(std::span<const float>(gradients[t])));
      places.push_back({buffers.back().data(), dims[t] * sizeof(float)});
    }
    ASSERT_TRUE(step->Gather(outputs, Dtype::kFloat32, {}).ok());
    const DeviceBuffer sums = NewBuffer(step->ReduceBytes());
    ASSERT_TRUE(step->Reduce({places}, 1, {sums.data(), sums.bytes()}, {}).ok());
    const std::vector<UpdateFactors> factors(dims.size(), {.learning_rate = 0.125F});
    const DeviceBuffer verdict = NewVerdict();
    ASSERT_TRUE(step->Apply(factors, verdict.at<float>(0), {}).ok());
    for (size_t t = 0; t < dims.size(); ++t) {
      const auto host_step = hosts[t]->NewStep();
      Floats out(size * dims[t]);
      const BagBatch own{.keys = std::span(keys).subspan(t * size, size)};
      ASSERT_TRUE(ForwardOne(*hosts[t], own, host_step.get(), out).ok());
      ASSERT_TRUE(BackwardOne(*hosts[t], *host_step, gradients[t], factors[t]).ok());
      const ShardRows expected = *hosts[t]->ReadRows(true);
      const ShardRows actual = *set->rows(t).ReadRows(true);
      ASSERT_EQ(actual.keys, expected.keys);
      ASSERT_EQ(actual.values, expected.values) << t << " " << size;
      ASSERT_EQ(actual.update_counts, expected.update_counts);
    }
  }
}

// A million keys, all equal and all different, of a table that grows meanwhile.
TEST_F(HostAndDevice, LargeBatchesGrowTheTable) {
  const size_t size = 1'000'000;
  for (const uint32_t dim : {8U, 33U}) {
    Pair pair(Options(dim, OptimizerKind::kAdagrad));
    std::mt19937_64 random(3);
    const Keys equal(size, 7);
    ASSERT_NO_FATAL_FAILURE(pair.Step({.keys = equal}, random));
    Keys different(size);
    for (size_t i = 0; i < size; ++i) different[i] = static_cast<Key>(i * 0x9e3779b97f4a7c15);
    ASSERT_NO_FATAL_FAILURE(pair.Step({.keys = different}, random));
    for (Key& key : different) key += 5;
    ASSERT_NO_FATAL_FAILURE(pair.Step({.keys = different}, random));
    ASSERT_NO_FATAL_FAILURE(pair.ExpectEqual());
    EXPECT_GE(pair.device->Statistics().rows, size);
  }
}

}  // namespace
}  // namespace hps
