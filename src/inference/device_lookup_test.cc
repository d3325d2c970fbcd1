// Predictions whose rows stay on a device, against those whose rows come to the host: with a device
// in host memory and, in a build with CUDA, on a GPU.
#include "inference/device_lookup.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hps/store.h"
#include "inference/batch_executor.h"
#include "inference/pooling.h"
#include "inference/request_plan.h"
#include "model/open_store.h"
#include "onnx/test_models.h"
#include "testing/faults/fault_cache.h"
#include "testing/host_device_cache/host_devices.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

constexpr uint32_t kWideDim = 4;    // of table `wide`
constexpr uint32_t kNarrowDim = 3;  // of table `narrow`: its rows are not aligned for vectors
constexpr int64_t kPairKeys = 2;    // of table `narrow`, for each sample
constexpr Key kRows = 500;

// What the host's device is asked for, and which of it fails.
struct HostMachine {
  TierFaults cache_faults;
  absl::Status room_error;
  absl::Status run_error;
  int runs_from_rows = 0;
  int runs_from_host = 0;
};

class HostRoom final : public RowRoom {
 public:
  explicit HostRoom(HostMachine& machine) : machine_(machine) {}
  Stream stream() const override { return {}; }
  absl::StatusOr<Room> Make(std::span<const KeyPiece> pieces, uint64_t row_bytes) override {
    if (!machine_.room_error.ok()) return machine_.room_error;
    keys_.clear();
    for (const KeyPiece& piece : pieces) {
      keys_.resize(keys_.size() + piece.key_count);
      std::memcpy(keys_.data() + keys_.size() - piece.key_count, piece.keys,
                  piece.key_count * sizeof(Key));
    }
    rows_.assign(row_bytes / sizeof(double) + 1, -1);
    statuses_.assign(keys_.size(), KeyStatus::kAbsent);
    return Room{.keys = keys_.data(),
                .rows = std::as_writable_bytes(std::span(rows_)).data(),
                .statuses = statuses_.data()};
  }
  absl::Status ReadStatuses(std::span<KeyStatus> to) override {
    std::copy_n(statuses_.begin(), to.size(), to.begin());
    return absl::OkStatus();
  }

 private:
  HostMachine& machine_;
  std::vector<Key> keys_;
  std::vector<double> rows_;
  std::vector<KeyStatus> statuses_;
};

// A network of the CPU behind the interface of one on a device.
class HostDeviceSession final : public DenseSession {
 public:
  HostDeviceSession(HostMachine& machine, DenseNetwork& network)
      : machine_(machine), network_(network), session_(*network.NewSession()), room_(machine) {}

  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override {
    ++machine_.runs_from_host;
    if (!machine_.run_error.ok()) return machine_.run_error;
    return session_->Run(inputs, outputs);
  }
  RowRoom* row_room() override { return &room_; }
  absl::Status RunFromRows(uint32_t samples, std::span<const FedInput> inputs,
                           std::span<std::byte* const> outputs) override {
    ++machine_.runs_from_rows;
    if (!machine_.run_error.ok()) return machine_.run_error;
    std::vector<std::vector<float>> values;
    std::vector<std::vector<int64_t>> dims;
    std::vector<DenseTensor> tensors;
    for (size_t i = 0; i < inputs.size(); ++i) {
      values.push_back(ValuesOf(inputs[i], samples));
      dims.push_back(network_.inputs()[i].dims);
      dims.back().front() = samples;
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      tensors.push_back({std::as_writable_bytes(std::span(values[i])).data(), dims[i]});
    std::vector<int64_t> score_dims = network_.outputs()[0].dims;
    score_dims.front() = samples;
    const DenseTensor output{outputs[0], score_dims};
    return session_->Run(tensors, {&output, 1});
  }

 private:
  static std::vector<float> ValuesOf(const FedInput& input, uint32_t samples) {
    if (input.dim == 0) {
      std::vector<float> sent(input.sent.size() / sizeof(float));
      std::memcpy(sent.data(), input.sent.data(), input.sent.size());
      return sent;
    }
    std::vector<float> values;
    for (uint64_t sample = 0; sample < samples; ++sample) {
      BagPlace bag{static_cast<uint32_t>(sample * input.sample_rows),
                   static_cast<uint32_t>((sample + 1) * input.sample_rows)};
      if (!input.bags.empty()) bag = input.bags[sample];
      const float* const rows = input.rows + uint64_t{bag.begin} * input.dim;
      if (input.pooling == RowPooling::kNone) {
        values.insert(values.end(), rows, rows + input.sample_rows * input.dim);
        continue;
      }
      values.resize(values.size() + input.dim);
      PoolRows({.rows = rows, .dim = input.dim, .sample_keys = bag.end - bag.begin}, input.pooling,
               1, values.data() + values.size() - input.dim);
    }
    return values;
  }

  HostMachine& machine_;
  DenseNetwork& network_;
  const std::unique_ptr<DenseSession> session_;
  HostRoom room_;
};

class HostDeviceNetwork final : public DenseNetwork {
 public:
  HostDeviceNetwork(HostMachine& machine, std::unique_ptr<DenseNetwork> network)
      : machine_(machine), network_(std::move(network)) {}
  std::span<const OnnxValue> inputs() const override { return network_->inputs(); }
  std::span<const OnnxValue> outputs() const override { return network_->outputs(); }
  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    return std::make_unique<HostDeviceSession>(machine_, *network_);
  }

 private:
  HostMachine& machine_;
  const std::unique_ptr<DenseNetwork> network_;
};

// score = Sigmoid(sum * w1 + mean * w2 + pair * w3 + dense * w4): `sum` and `mean` of bags of
// `wide`, `pair` of two rows of `narrow`, `dense` from the client.
ModelNetwork FourInputs() {
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

// A clock that the test moves.
class MovedClock final : public Clock {
 public:
  TimePoint Now() const override { return RealClock().Now() + ahead; }
  Duration ahead{};
};

enum class Place { kHost, kGpu };

class DeviceLookupTest : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    const bool on_gpu = GetParam() == Place::kGpu;
    const absl::Status gpus = BuiltInDeviceCacheFactory().Devices().status();
    if (on_gpu && !gpus.ok()) GTEST_SKIP() << "needs a GPU: " << gpus.message();
    const auto engine = MakeDenseNetwork(FourInputs(), {});
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
    auto predictor =
        Predictor::Make(std::make_shared<const ModelNetwork>(FourInputs()), (*model)->tables(),
                        {.model = "m", .devices = devices, .make_on_device = make});
    EXPECT_TRUE(predictor.ok()) << predictor.status();
    return ModelVersion::Make(*std::move(model), {.devices = devices, .keys_max = 4096},
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

  static void Plan(Asked& asked, const ModelVersion& version) {
    asked.request = {};
    asked.memory.clear();
    asked.plan.Clear();
    const auto batch = static_cast<int64_t>(asked.dense.size() / 2);
    if (asked.offsets.empty()) {
      AddTensor(asked, "wide", Datatype::kInt64, {batch, asked.bag},
                std::as_bytes(std::span(asked.wide)));
    } else {
      AddTensor(asked, "wide", Datatype::kInt64, {static_cast<int64_t>(asked.wide.size())},
                std::as_bytes(std::span(asked.wide)));
      AddTensor(asked, "wide.offsets", Datatype::kInt64, {batch + 1},
                std::as_bytes(std::span(asked.offsets)));
    }
    AddTensor(asked, "narrow", Datatype::kInt64, {batch, kPairKeys},
              std::as_bytes(std::span(asked.narrow)));
    AddTensor(asked, "dense", Datatype::kFp32, {batch, 2}, std::as_bytes(std::span(asked.dense)));
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

  TestDirectory directory_;
  Config config_;
  HostMachine machine_;
  HostDevices host_devices_;
  MovedClock clock_;
  std::unique_ptr<Store> store_;
  ModelVersionRef device_version_;
  ModelVersionRef host_version_;
  BatchExecutor device_executor_{{.slot = 0, .keys_max = 4096, .clock = &clock_}};
  BatchExecutor host_executor_{{.slot = 0, .keys_max = 4096, .clock = &RealClock()}};
};

// Catches: bags that are cut elsewhere than the offsets say, rows of another request or table, rows
// that are not aligned as the kernels want them, runs of a large batch that begin at the wrong
// rows.
TEST_P(DeviceLookupTest, RequestsOfAllKindsGetTheScoresOfTheHost) {
  const auto samples = static_cast<int64_t>(PredictionSession::kSamplesMax);
  for (int round = 0; round < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(1, false)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(7, true)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, false, 5), NewRequest(1, false, 5)}));
    ASSERT_NO_FATAL_FAILURE(
        CheckSame({NewRequest(1, false), NewRequest(33, true), NewRequest(0, false),
                   NewRequest(2, false, 3), NewRequest(5, true)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(2, false, 0)}));  // empty bags
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(samples + 9, true), NewRequest(11, true)}));
    ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, false), NewRequest(samples + 1, false)}));
  }
  EXPECT_EQ(device_runs(), 3U * 7);  // one for each batch, whatever its size
  EXPECT_EQ(device_version_->predictor()->runs().device_failures, 0U);
  EXPECT_EQ(machine_.runs_from_host, 0);
}

// Its keys go to the device in several copies, and its lookup has many pieces.
TEST_P(DeviceLookupTest, ALargeBatchGetsTheScoresOfTheHost) {
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(20'000, false, 5), NewRequest(9'999, true)}));
  EXPECT_EQ(device_runs(), 1U);
}

// Catches: rows of a request that is not predicted in the place of the next one's.
TEST_P(DeviceLookupTest, ARequestCanBeLeftOutOfTheRun) {
  ASSERT_NO_FATAL_FAILURE(
      CheckSame({NewRequest(3, false), NewRequest(5, false), NewRequest(4, false)}, 1));
  ASSERT_NO_FATAL_FAILURE(
      CheckSame({NewRequest(3, true), NewRequest(5, false), NewRequest(4, true)}, 0));
}

TEST_P(DeviceLookupTest, RowsThatAreAskedForComeToTheHost) {
  std::vector<Asked> all = {NewRequest(3, true), NewRequest(2, false)};
  all[1].output_names = {"narrow", "score"};
  ASSERT_NO_FATAL_FAILURE(CheckSame(all));
  EXPECT_EQ(machine_.runs_from_rows, 0);
}

TEST_P(DeviceLookupTest, EachRequestKnowsHowManyRowsItLacks) {
  std::vector<Asked> all = {NewRequest(2, false, 3), NewRequest(1, false)};
  ASSERT_NO_FATAL_FAILURE(
      Answer(*device_version_, device_executor_, all, {.deadline = Deadline::min()}));
  // Nothing has been read from level 3 yet.
  EXPECT_EQ(all[0].plan.degraded_count, 2U * 3 + 2 * 2);
  EXPECT_EQ(all[1].plan.degraded_count, 1U + 2);
  EXPECT_EQ(device_runs(), 1U);
  std::vector<Asked> one = {NewRequest(2, false, 2)};
  ASSERT_NO_FATAL_FAILURE(
      Answer(*device_version_, device_executor_, one, {.deadline = Deadline::min()}));
  EXPECT_EQ(one[0].plan.degraded_count, device_executor_.counts()[KeyStatus::kDefaultDegraded]);
  EXPECT_GT(one[0].plan.degraded_count, 0U);
}

// Catches: a batch that is lost with its device; a device that is asked for each batch while it is
// down, or not asked again when it is up.
TEST_P(DeviceLookupTest, WhatFailsOnTheDeviceTakesItsRowsThroughTheHost) {
  if (GetParam() == Place::kGpu) GTEST_SKIP() << "a GPU can't be made to fail here";
  const std::vector<Asked> all = {NewRequest(3, true), NewRequest(2, false)};
  const auto check_falls_back = [&](int tries) {
    machine_.runs_from_rows = 0;
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));
    EXPECT_EQ(machine_.runs_from_rows, tries);
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));  // it rests
    EXPECT_EQ(machine_.runs_from_rows, tries);
  };
  const auto check_comes_back = [&] {
    clock_.ahead += CircuitBreaker::kRest;
    machine_.runs_from_rows = 0;
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));
    ASSERT_NO_FATAL_FAILURE(CheckSame(all));
    EXPECT_EQ(machine_.runs_from_rows, 2);
  };
  machine_.room_error = absl::DeadlineExceededError("the device hangs");
  ASSERT_NO_FATAL_FAILURE(check_falls_back(0));
  machine_.room_error = absl::OkStatus();
  ASSERT_NO_FATAL_FAILURE(check_comes_back());
  machine_.cache_faults.Plan(TierOperation::kBegin, {.status = absl::InternalError("lost")});
  ASSERT_NO_FATAL_FAILURE(check_falls_back(0));
  machine_.cache_faults.Clear();
  ASSERT_NO_FATAL_FAILURE(check_comes_back());
  // The network fails when its rows are there: they are looked up again.
  machine_.run_error = absl::InternalError("the network's kernel failed");
  ASSERT_NO_FATAL_FAILURE(check_falls_back(1));
  EXPECT_EQ(device_version_->predictor()->runs().device_failures, 2U);
  machine_.run_error = absl::OkStatus();
  ASSERT_NO_FATAL_FAILURE(check_comes_back());
}

// Catches: keys that a metric counts twice because their rows were lost with the device.
TEST_P(DeviceLookupTest, KeysThatAreLookedUpAgainCountOnce) {
  if (GetParam() == Place::kGpu) GTEST_SKIP() << "a GPU can't be made to fail here";
  machine_.run_error = absl::InternalError("the network's kernel failed");
  std::vector<Asked> all = {NewRequest(3, false), NewRequest(2, false, 2)};
  ASSERT_NO_FATAL_FAILURE(Answer(*device_version_, device_executor_, all));
  EXPECT_EQ(machine_.runs_from_rows, 1);
  EXPECT_EQ(device_executor_.counts().total(), all[0].plan.key_count + all[1].plan.key_count);
}

// Catches: one batch that is too large for the device, which takes the others to the host with it.
TEST_P(DeviceLookupTest, ABatchWithoutRoomIsNoFailureOfTheDevice) {
  if (GetParam() == Place::kGpu) GTEST_SKIP() << "a GPU can't be made to fail here";
  machine_.room_error = absl::ResourceExhaustedError("no memory");
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, true)}));
  EXPECT_EQ(machine_.runs_from_rows, 0);
  machine_.room_error = absl::OkStatus();
  ASSERT_NO_FATAL_FAILURE(CheckSame({NewRequest(3, true)}));
  EXPECT_EQ(machine_.runs_from_rows, 1);
}

std::vector<Place> Places() {
  if (BuiltInDeviceCacheFactory().Support().ok()) return {Place::kHost, Place::kGpu};
  return {Place::kHost};
}

INSTANTIATE_TEST_SUITE_P(Places, DeviceLookupTest, ::testing::ValuesIn(Places()),
                         [](const ::testing::TestParamInfo<Place>& place) {
                           return place.param == Place::kHost ? "Host" : "Gpu";
                         });

}  // namespace
}  // namespace hps
