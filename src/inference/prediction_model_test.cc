#include "hps/prediction_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "network/onnx/test_models.h"
#include "node/test_store_files.h"
#include "testing/await.h"
#include "testing/faults/fault_points.h"

namespace hps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kWidth = 2;  // of LogisticModel's input
constexpr uint64_t kRows = 10;

// Model "m": a score for the sum of a sample's rows of table `user`.
class PredictionModelTest : public StoreFilesTest {
 protected:
  PredictionModelTest() : StoreFilesTest(uint64_t{64} << 20) {
    config_.server.lookups = 2;
    config_.lookup.timeout = std::chrono::minutes(1);  // no row is late on a busy machine
  }

  void Import(const TestModel& network) {
    const absl::Status imported = TryImport(network);
    ASSERT_TRUE(imported.ok()) << imported;
  }

  absl::Status TryImport(const TestModel& network) {
    const ImportRequest files = ModelFiles("m", {"user"}, kRows, 1, kWidth);
    WriteText(files.from + "/dense.onnx", network.Bytes());
    WriteText(files.from + "/model.toml",
              "name = \"m\"\ntables = [\"user\"]\n[network]\nfile = \"dense.onnx\"\n"
              "[[network.input]]\nname = \"x\"\ntable = \"user\"\n");
    if (store_ == nullptr) {
      auto opened = Store::Open(config_, OpenMode::kCreate);
      if (!opened.ok()) return opened.status();
      store_ = *std::move(opened);
    }
    return store_->Import(files).status();
  }

  void Open() {
    auto opened = PredictionModel::Open(*store_, "m", config_);
    if (absl::IsUnimplemented(opened.status())) GTEST_SKIP() << "no engine in this build";
    ASSERT_TRUE(opened.ok()) << opened.status();
    model_ = *std::move(opened);
  }

  static void WriteText(const std::string& path, const std::string& text) {
    WriteVector(path, std::vector<char>(text.begin(), text.end()));
  }

  // The score of a bag, from rows that a session looks up.
  float Score(const std::vector<Key>& bag) {
    auto session = store_->NewSession("m", {.output_dtype = Dtype::kFloat32});
    EXPECT_TRUE(session.ok()) << session.status();
    std::vector<float> rows(bag.size() * kWidth);
    const HostTableQuery query{
        .table = {0},
        .keys = {bag.data(), bag.size()},
        .rows = {std::as_writable_bytes(std::span(rows)).data(), rows.size() * sizeof(float)}};
    EXPECT_TRUE((*session)->Lookup(HostLookupRequest{.queries = {&query, 1}}, nullptr).ok());
    float sum = 0.125F;
    for (size_t i = 0; i < bag.size(); ++i) sum += 0.5F * rows[2 * i] - 0.25F * rows[2 * i + 1];
    return 1.0F / (1.0F + std::exp(-sum));
  }

  std::unique_ptr<Store> store_;
  std::unique_ptr<PredictionModel> model_;
};

// Catches: bags that are cut elsewhere than the offsets say; calls that share a slot's memory.
TEST_F(PredictionModelTest, AnswersManyThreadsWithRaggedBags) {
  Import(LogisticModel());
  Open();
  if (model_ == nullptr) return;
  const std::vector<Key> keys = {1, 2, 3, 9, 1000};
  const std::array<int64_t, 4> offsets = {0, 2, 2, 5};
  const std::array<float, 3> expected = {Score({1, 2}), Score({}), Score({3, 9, 1000})};
  const std::array inputs = {ModelInput::Keys("user", keys, {5}),
                             ModelInput{.name = "user.offsets",
                                        .datatype = "INT64",
                                        .shape = {4},
                                        .bytes = std::as_bytes(std::span<const int64_t>(offsets))}};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto outputs = model_->Predict({.inputs = inputs});
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        ASSERT_EQ(outputs->size(), 1U);
        EXPECT_EQ(outputs->front().name, "score");
        EXPECT_THAT(outputs->front().shape, ElementsAre(3, 1));
        for (size_t sample = 0; sample < expected.size(); ++sample)
          EXPECT_NEAR(outputs->front().floats()[sample], expected[sample], 1e-6F);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Catches: a handle that goes on with the network that it was opened with; calls that wait for a
// new network, or for one that is refused.
TEST_F(PredictionModelTest, FollowsItsModel) {
  Import(LogisticModel());
  if (store_ == nullptr) return;
  const std::vector<Key> keys = {4};
  const std::array inputs = {ModelInput::Keys("user", keys, {1})};
  Open();
  if (model_ == nullptr) return;
  TestModel doubled = LogisticModel();
  doubled.Node("Add", "twice", {"score", "score"});
  doubled.graph().mutable_output(0)->set_name("twice");
  constexpr const char* kOpening = "inference.open.before_network";
  FaultPoints::Arm(kOpening, {.action = FaultAction::kWait});
  std::thread import([&] { Import(doubled); });
  const bool is_opening = AwaitCondition([&] { return FaultPoints::IsWaiting(kOpening); });
  const auto meanwhile = model_->Predict({.inputs = inputs});
  FaultPoints::DisarmAll();
  import.join();
  ASSERT_TRUE(is_opening);
  ASSERT_TRUE(meanwhile.ok()) << meanwhile.status();
  EXPECT_EQ(meanwhile->front().name, "score");
  const auto outputs = model_->Predict({.inputs = inputs});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->front().name, "twice");
  EXPECT_NEAR(outputs->front().floats()[0], 2 * Score(keys), 1e-6F);

  TestModel wrong;  // a product of [batch, 2] and [3, 1], which only the engine finds out
  wrong.Input("x", ::onnx::TensorProto::FLOAT, {-1, 2});
  wrong.Floats("w", {3, 1}, {1, 2, 3});
  wrong.Node("MatMul", "score", {"x", "w"});
  wrong.Output("score", ::onnx::TensorProto::FLOAT, {-1, 1});
  const absl::Status refused = TryImport(wrong);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("is imported, but is not served yet"),
                    HasSubstr("requests are answered from the old ones until a load succeeds")));
  const auto after = model_->Predict({.inputs = inputs});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->front().name, "twice");

  ASSERT_TRUE(store_->Drop("m").ok());
  EXPECT_TRUE(absl::IsNotFound(model_->Predict({.inputs = inputs}).status()));
}

// Catches: a handle that keeps an unloaded model in memory.
TEST_F(PredictionModelTest, AnUnloadTakesItsVersion) {
  Import(LogisticModel());
  Open();
  if (model_ == nullptr) return;
  const std::vector<Key> keys = {4};
  const std::array inputs = {ModelInput::Keys("user", keys, {1})};
  const absl::Status unloaded = store_->models().Unload("m", std::chrono::minutes(1));
  EXPECT_TRUE(unloaded.ok()) << unloaded;
  EXPECT_TRUE(absl::IsUnavailable(model_->Predict({.inputs = inputs}).status()));
  FaultPoints::Arm(
      "inference.open.before_network",
      {.action = FaultAction::kFail, .status = absl::ResourceExhaustedError("planned")});
  EXPECT_TRUE(absl::IsResourceExhausted(store_->models().Load("m")));
  EXPECT_TRUE(absl::IsResourceExhausted(model_->Predict({.inputs = inputs}).status()));
  FaultPoints::DisarmAll();
  ASSERT_TRUE(store_->models().Load("m").ok());
  EXPECT_TRUE(model_->Predict({.inputs = inputs}).ok());
}

TEST_F(PredictionModelTest, SaysWhatIsWrongWithARequest) {
  Import(LogisticModel());
  EXPECT_TRUE(absl::IsNotFound(PredictionModel::Open(*store_, "n", config_).status()));
  Open();
  if (model_ == nullptr) return;
  const std::vector<Key> keys = {4, 5};
  const auto error_of = [&](const ModelInput& input) {
    const std::array inputs = {input};
    return model_->Predict({.inputs = inputs}).status();
  };
  EXPECT_TRUE(absl::IsNotFound(error_of(ModelInput::Keys("usr", keys, {2}))));
  EXPECT_TRUE(absl::IsInvalidArgument(error_of(ModelInput::Keys("user", keys, {3}))));
  EXPECT_TRUE(absl::IsInvalidArgument(error_of(ModelInput::Keys("user", keys, {-2}))));
  EXPECT_TRUE(absl::IsInvalidArgument(
      error_of(ModelInput::Keys("user", keys, {2, 1, 1, 1, 1, 1, 1, 1, 1}))));
  const absl::Status unknown =
      error_of({.name = "user", .datatype = "INT128", .shape = {2}, .bytes = {}});
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("INT128"));
  EXPECT_TRUE(error_of(ModelInput::Keys("user", keys, {2})).ok());
}

}  // namespace
}  // namespace hps
