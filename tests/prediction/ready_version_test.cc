// When a model is ready, its predictions make nothing any more: not even the first of a kind
// captures a graph, makes memory on the device or synchronizes with it. Counts the calls of the
// thread that predicts (l1_gpu/test_counted_runtime.h, which session_allocation_test.cc includes).
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda_status.h"
#include "hps/prediction_model.h"
#include "network/onnx/test_models.h"
#include "node/test_store_files.h"

namespace hps {

extern thread_local uint64_t runtime_calls_here;

namespace {

constexpr uint64_t kRows = 1000;

class ReadyVersionTest : public StoreFilesTest {
 protected:
  ReadyVersionTest() : StoreFilesTest(uint64_t{64} << 20) {
    config_.server.lookups = 2;
    config_.lookup.timeout = std::chrono::minutes(1);
    config_.l1.devices = {0};
    config_.l1.bytes_max = uint64_t{64} << 20;
  }

  void SetUp() override {
    const absl::Status gpu = CheckGpuDevice(0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.message();
    const ImportRequest files = ModelFiles("m", {"user"}, kRows, 1, 2);
    const std::string onnx = LogisticModel().Bytes();
    WriteVector(files.from + "/dense.onnx", std::vector<char>(onnx.begin(), onnx.end()));
    const std::string toml =
        "name = \"m\"\ntables = [\"user\"]\n[network]\nfile = \"dense.onnx\"\n"
        "[[network.input]]\nname = \"x\"\ntable = \"user\"\n";
    WriteVector(files.from + "/model.toml", std::vector<char>(toml.begin(), toml.end()));
    Import(files);
    store_ = *Store::Open(config_, OpenMode::kServe);
    ASSERT_TRUE(store_->models().LoadAll().ok());
    WarmLevel1();
  }

  // Misses travel through level 1's staging buffers, which grow.
  void WarmLevel1() {
    const auto session = *store_->NewSession("m", {.device = 0, .output_dtype = Dtype::kFloat32});
    const std::vector<Key> keys = Iota(kRows);
    std::vector<float> rows(2 * kRows);
    const HostTableQuery query{
        .table = {0},
        .keys = {keys.data(), keys.size()},
        .rows = {std::as_writable_bytes(std::span(rows)).data(), rows.size() * sizeof(float)}};
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(session->Lookup(HostLookupRequest{.queries = {&query, 1}}, nullptr).ok());
      ASSERT_TRUE(store_->DrainPromotions(std::chrono::minutes(1)).ok());
    }
  }

  std::unique_ptr<PredictionModel> Model(DenseDevice device = DenseDevice::kAuto) {
    Config config = config_;
    config.server.dense_device = device;
    auto opened = PredictionModel::Open(*store_, "m", config);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }

  std::unique_ptr<Store> store_;
};

TEST_F(ReadyVersionTest, TheFirstPredictionOfEachKindMakesNothing) {
  const auto on_cpu = Model(DenseDevice::kCpu);
  const uint64_t before_open = runtime_calls_here;
  ASSERT_NE(Model(), nullptr);
  EXPECT_GT(runtime_calls_here, before_open + 20) << "the counters count";
  // One sample; bags of 0 to 2 keys; parts; rows that are asked for, which go through the host.
  struct Kind {
    size_t samples = 1;
    bool has_bags = false;
    std::vector<std::string_view> outputs{};
  };
  for (const Kind& kind : {Kind{.samples = 1}, Kind{.samples = 3000, .has_bags = true},
                           Kind{.samples = 70'000}, Kind{.samples = 40'000, .has_bags = true},
                           Kind{.samples = 100, .outputs = {"score", "user"}}}) {
    SCOPED_TRACE(testing::Message() << kind.samples << " samples, bags " << kind.has_bags);
    std::vector<int64_t> offsets = {0};
    while (offsets.size() <= kind.samples) {
      const auto sample = static_cast<int64_t>(offsets.size() - 1);
      offsets.push_back(offsets.back() + (kind.has_bags ? sample % 3 : 1));
    }
    std::vector<Key> keys;
    for (int64_t i = 0; i < offsets.back(); ++i) keys.push_back((7 * i) % int64_t{kRows});
    const auto key_count = static_cast<int64_t>(keys.size());
    std::vector<ModelInput> inputs = {ModelInput::Keys("user", keys, {key_count})};
    if (kind.has_bags) {
      inputs.push_back({.name = "user.offsets",
                        .datatype = "INT64",
                        .shape = {static_cast<int64_t>(offsets.size())},
                        .bytes = std::as_bytes(std::span<const int64_t>(offsets))});
    }
    const PredictRequest request = {.inputs = inputs, .outputs = kind.outputs};
    const auto expected = on_cpu->Predict(request);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto model = Model();
    for (int round = 0; round < 2; ++round) {
      const uint64_t before = runtime_calls_here;
      const auto outputs = model->Predict(request);
      EXPECT_EQ(runtime_calls_here, before) << "round " << round;
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      ASSERT_EQ(outputs->size(), expected->size());
      for (size_t o = 0; o < outputs->size(); ++o) {
        const std::span<const float> values = (*outputs)[o].floats();
        ASSERT_EQ(values.size(), (*expected)[o].floats().size());
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(values[i], (*expected)[o].floats()[i], 1e-6) << i;
      }
    }
  }
}

}  // namespace
}  // namespace hps
