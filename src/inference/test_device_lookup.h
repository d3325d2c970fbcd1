// A model with tables and a dense network, and requests for its scores: on a device and on the
// host. The device is one in host memory or, in a build with CUDA, a GPU.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hps/store.h"
#include "inference/batch_executor.h"
#include "inference/model_version.h"
#include "inference/request_plan.h"
#include "inference/test_host_network.h"
#include "network/onnx/test_models.h"
#include "node/open_store.h"
#include "testing/faults/fault_cache.h"
#include "testing/host_device_cache/host_devices.h"
#include "testing/test_directory.h"

namespace hps {

inline constexpr uint32_t kWideDim = 4;  // of table `wide`
// Of table `narrow`: its rows are not aligned for vectors, and each sample has two of them.
inline constexpr uint32_t kNarrowDim = 3;
inline constexpr int64_t kPairKeys = 2;
inline constexpr Key kRows = 500;

// score = Sigmoid(sum * w1 + mean * w2 + pair * w3 + dense * w4): `sum` and `mean` of bags of
// `wide`, `pair` of two rows of `narrow`, `dense` from the client.
inline ModelNetwork FourInputs() {
  constexpr int kFloat = ::onnx::TensorProto::FLOAT;
  TestModel model;
  model.Input("sum", kFloat, {-1, kWideDim});
  model.Input("mean", kFloat, {-1, kWideDim});
  model.Input("pair", kFloat, {-1, kPairKeys, kNarrowDim});
  model.Input("dense", kFloat, {-1, 2});
  model.Floats("w1", {kWideDim, 1}, {0.01F, -0.02F, 0.03F, 0.005F});
  model.Floats("w2", {kWideDim, 1}, {-0.03F, 0.01F, 0.02F, 0.01F});
  model.Floats("w3", {kPairKeys * kNarrowDim, 1}, {0.01F, 0.02F, -0.01F, 0.02F, -0.02F, 0.01F});
  model.Floats("w4", {2, 1}, {0.1F, -0.3F});
  const std::string one = model.Node("MatMul", "one", {"sum", "w1"});
  const std::string two = model.Node("MatMul", "two", {"mean", "w2"});
  const std::string flat = model.Node("Flatten", "flat", {"pair"});
  const std::string three = model.Node("MatMul", "three", {flat, "w3"});
  const std::string four = model.Node("MatMul", "four", {"dense", "w4"});
  const std::string left = model.Node("Add", "left", {one, two});
  const std::string right = model.Node("Add", "right", {three, four});
  model.Node("Sigmoid", "score", {model.Node("Add", "all", {left, right})});
  model.Output("score", kFloat, {-1, 1});
  return {.onnx = model.Bytes(),
          .inputs = {{.name = "sum", .table = "wide", .pooling = RowPooling::kSum},
                     {.name = "mean", .table = "wide", .pooling = RowPooling::kMean},
                     {.name = "pair", .table = "narrow", .pooling = RowPooling::kNone}}};
}

// score = Sigmoid(sum * w1 + mean * w2).
inline ModelNetwork TwoBags() {
  constexpr int kFloat = ::onnx::TensorProto::FLOAT;
  TestModel model;
  model.Input("sum", kFloat, {-1, kWideDim});
  model.Input("mean", kFloat, {-1, kWideDim});
  model.Floats("w1", {kWideDim, 1}, {0.01F, -0.02F, 0.03F, 0.005F});
  model.Floats("w2", {kWideDim, 1}, {-0.03F, 0.01F, 0.02F, 0.01F});
  const std::string one = model.Node("MatMul", "one", {"sum", "w1"});
  const std::string two = model.Node("MatMul", "two", {"mean", "w2"});
  model.Node("Sigmoid", "score", {model.Node("Add", "all", {one, two})});
  model.Output("score", kFloat, {-1, 1});
  return {.onnx = model.Bytes(),
          .inputs = {{.name = "sum", .table = "wide", .pooling = RowPooling::kSum},
                     {.name = "mean", .table = "wide", .pooling = RowPooling::kMean}}};
}

// A clock that the test moves.
class MovedClock final : public Clock {
 public:
  TimePoint Now() const override { return RealClock().Now() + ahead; }
  Duration ahead{};
};

enum class Place { kHost, kGpu };

class DeviceLookupFixture : public ::testing::TestWithParam<Place> {
 protected:
  explicit DeviceLookupFixture(uint64_t part_samples = BatchExecutor::kPartSamples,
                               ModelNetwork network = FourInputs())
      : network_(std::move(network)),
        device_executor_({.keys_max = 4096, .clock = &clock_, .part_samples = part_samples}) {}

  void SetUp() override {
    const bool on_gpu = GetParam() == Place::kGpu;
    const absl::Status gpus = BuiltInDeviceCacheFactory().Devices().status();
    if (on_gpu && !gpus.ok()) GTEST_SKIP() << "needs a GPU: " << gpus.message();
    const auto engine = MakeDenseNetwork(network_, {});
    if (absl::IsUnimplemented(engine.status())) GTEST_SKIP() << "no engine in this build";
    host_devices_.memory[0] = {.free_bytes = uint64_t{1} << 30, .total_bytes = uint64_t{1} << 30};
    host_devices_.decorate = [this](std::unique_ptr<DeviceCache> cache) {
      return WithFaults(std::move(cache), &machine_.cache_faults);
    };
    config_.store.path = directory_.Path("store");
    config_.l1.bytes_max = uint64_t{64} << 20;
    config_.l1.devices_auto = false;
    config_.l1.devices = {0};
    config_.l2.bytes_max = uint64_t{8} << 20;
    config_.l2.huge_pages = false;
    config_.lookup.timeout = std::chrono::minutes(1);
    Import("m/wide", kWideDim, 0.25F);
    Import("m/narrow", kNarrowDim, -0.5F);
    auto store =
        OpenStore(config_, OpenMode::kServe, on_gpu ? BuiltInDeviceCacheFactory() : host_devices_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ASSERT_TRUE(store_->models().LoadAll().ok());
    MakeOnDevice make = MakeDeviceDenseNetwork;
    if (!on_gpu) {
      make = [this](const ModelNetwork& network,
                    const DeviceDenseOptions&) -> absl::StatusOr<std::unique_ptr<DenseNetwork>> {
        return std::make_unique<HostDeviceNetwork>(machine_, *MakeDenseNetwork(network, {}));
      };
    }
    device_version_ = Version({0}, make);
    host_version_ = Version({}, make);
  }

  void Import(const std::string& table, uint32_t dim, float step) {
    std::vector<Key> keys;
    std::vector<float> rows;
    for (Key key = 0; key < kRows; ++key) {
      keys.push_back(key);
      for (uint32_t i = 0; i < dim; ++i)
        rows.push_back(step * static_cast<float>((key * 7 + i * 3) % 29) - 2);
    }
    const TableInMemory memory = {.keys = keys, .rows = std::as_bytes(std::span(rows)), .dim = dim};
    const auto report = ImportTables(config_, {.name = table, .memory = memory});
    ASSERT_TRUE(report.ok()) << report.status();
  }

  ModelVersionRef Version(const std::vector<int>& devices, const MakeOnDevice& make) {
    auto model = store_->models().Open("m");
    EXPECT_TRUE(model.ok()) << model.status();
    auto predictor = Predictor::Make(std::make_shared<const ModelNetwork>(network_),
                                     (*model)->tables(), {.devices = devices, .make = make}, "m");
    EXPECT_TRUE(predictor.ok()) << predictor.status();
    return *ModelVersion::Make(*std::move(model), {.devices = devices, .keys_max = 4096},
                               *std::move(predictor));
  }

  // A request for scores, with its plan and its scores.
  struct Asked {
    std::vector<Key> wide{};
    std::vector<int64_t> offsets{};  // empty: `bag` keys for each sample
    int64_t bag = 1;
    std::vector<Key> narrow{};
    std::vector<float> dense{};
    std::vector<std::string_view> output_names{};

    TensorRequest request{};
    std::vector<OutputTensor> outputs{};
    ExecutionPlan plan{};
    std::vector<std::vector<float>> memory{};
  };

  // `batch` samples; those of a ragged request have 0 to 4 keys of `wide`.
  static Asked NewRequest(int64_t batch, bool ragged, int64_t bag = 1) {
    static int64_t next = 0;
    Asked asked;
    asked.bag = bag;
    for (int64_t i = 0; i < batch; ++i) {
      if (ragged) asked.offsets.push_back(static_cast<int64_t>(asked.wide.size()));
      const int64_t count = ragged ? (i + batch) % 5 : bag;
      // Some keys are absent.
      for (int64_t k = 0; k < count; ++k) asked.wide.push_back((next += 13) % (kRows + 20));
      for (int64_t k = 0; k < kPairKeys; ++k) asked.narrow.push_back((next += 7) % kRows);
      asked.dense.push_back(static_cast<float>(i % 5) - 2);
      asked.dense.push_back(static_cast<float>(i % 3));
    }
    if (ragged) asked.offsets.push_back(static_cast<int64_t>(asked.wide.size()));
    return asked;
  }

  static void AddTensor(Asked& asked, std::string_view name, Datatype datatype,
                        const std::vector<int64_t>& dims, std::span<const std::byte> bytes) {
    InputTensor& input = asked.request.inputs.emplace_back();
    input.name = name;
    input.datatype = datatype;
    input.shape.dim_count = dims.size();
    std::copy(dims.begin(), dims.end(), input.shape.dims.begin());
    input.bytes = bytes;
  }

  void Plan(Asked& asked, const ModelVersion& version) const {
    asked.request = {};
    asked.memory.clear();
    asked.plan.Clear();
    const auto batch = static_cast<int64_t>(asked.dense.empty() && !asked.offsets.empty()
                                                ? asked.offsets.size() - 1
                                                : asked.dense.size() / 2);
    if (asked.offsets.empty()) {
      AddTensor(asked, "wide", Datatype::kInt64, {batch, asked.bag},
                std::as_bytes(std::span(asked.wide)));
    } else {
      AddTensor(asked, "wide", Datatype::kInt64, {static_cast<int64_t>(asked.wide.size())},
                std::as_bytes(std::span(asked.wide)));
      AddTensor(asked, "wide.offsets", Datatype::kInt64, {batch + 1},
                std::as_bytes(std::span(asked.offsets)));
    }
    if (network_.inputs.size() > 2) {
      AddTensor(asked, "narrow", Datatype::kInt64, {batch, kPairKeys},
                std::as_bytes(std::span(asked.narrow)));
      AddTensor(asked, "dense", Datatype::kFp32, {batch, 2}, std::as_bytes(std::span(asked.dense)));
    }
    asked.request.output_names.assign(asked.output_names.begin(), asked.output_names.end());
    const absl::Status planned = PlanRequest(version, {.response_bytes_max = 1 << 24},
                                             asked.request, asked.outputs, asked.plan);
    ASSERT_TRUE(planned.ok()) << planned;
    asked.memory.reserve(asked.outputs.size());
    for (OutputTensor& output : asked.outputs) {
      std::vector<float>& memory = asked.memory.emplace_back(output.byte_count / 4 + 1, -1.0F);
      output.data = std::as_writable_bytes(std::span(memory)).data();
    }
  }

  // Answers all requests together, by plans of this version. `left_out`: the request that the
  // network does not run for.
  void Answer(ModelVersion& version, BatchExecutor& executor, std::vector<Asked>& all,
              const BatchExecutor::LookupLimits& limits = {}, size_t left_out = SIZE_MAX) {
    std::vector<ExecutionPlan*> plans;
    for (Asked& asked : all) {
      ASSERT_NO_FATAL_FAILURE(Plan(asked, version));
      plans.push_back(&asked.plan);
    }
    const absl::Status looked_up = executor.LookUp(version, plans, limits);
    ASSERT_TRUE(looked_up.ok()) << looked_up;
    if (left_out < plans.size()) plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(left_out));
    const absl::Status predicted = executor.Predict(version, plans);
    ASSERT_TRUE(predicted.ok()) << predicted;
  }

  // Answers them on the device and on the host, and compares.
  void CheckSame(std::vector<Asked> all, size_t left_out = SIZE_MAX) {
    std::vector<Asked> expected = all;
    ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, device_executor_, all, {}, left_out));
    ASSERT_NO_FATAL_FAILURE(Answer(*host_version_, host_executor_, expected, {}, left_out));
    for (size_t r = 0; r < all.size(); ++r) {
      if (r == left_out) continue;
      for (size_t o = 0; o < all[r].memory.size(); ++o) {
        ASSERT_EQ(all[r].memory[o].size(), expected[r].memory[o].size());
        for (size_t i = 0; i < all[r].memory[o].size(); ++i) {
          ASSERT_NEAR(all[r].memory[o][i], expected[r].memory[o][i], 1e-5)
              << "request " << r << ", output " << o << ", element " << i;
        }
      }
    }
  }

  uint64_t device_runs() const { return device_version_->predictor()->runs().on_devices; }

  const ModelNetwork network_;
  TestDirectory directory_;
  Config config_;
  HostMachine machine_;
  HostDevices host_devices_;
  MovedClock clock_;
  std::unique_ptr<Store> store_;
  ModelVersionRef device_version_;
  ModelVersionRef host_version_;
  BatchExecutor device_executor_;
  BatchExecutor host_executor_{{.slot = 0, .keys_max = 4096, .clock = &RealClock()}};
};

inline std::vector<Place> Places() {
  if (BuiltInDeviceCacheFactory().Support().ok()) return {Place::kHost, Place::kGpu};
  return {Place::kHost};
}

inline std::string PlaceName(const ::testing::TestParamInfo<Place>& place) {
  return place.param == Place::kHost ? "Host" : "Gpu";
}

}  // namespace hps
