#include "network/onnx/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "network/onnx/test_models.h"
#include "onnx/onnx-ml.pb.h"
#include "testing/test_directory.h"
#include "testing/unprivileged.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<OnnxModel> Parse(const std::string& bytes, const OnnxLimits& limits = {}) {
  return OnnxModel::Parse(AsBytes(std::string_view(bytes)), limits);
}

// What is said about a good model after a change.
std::string WhyRefused(const std::function<void(TestModel&)>& change) {
  TestModel model = LogisticModel();
  change(model);
  const absl::StatusOr<OnnxModel> read = Parse(model.Bytes());
  return read.ok() ? "it was taken" : std::string(read.status().message());
}

void Write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

TEST(OnnxModelTest, GivesAViewOfTheGraph) {
  const absl::StatusOr<OnnxModel> model = Parse(LogisticModel().Bytes());
  ASSERT_TRUE(model.ok()) << model.status();
  const OnnxGraph& graph = model->graph();
  EXPECT_EQ(graph.opset, 17);
  ASSERT_EQ(graph.inputs.size(), 1U);
  EXPECT_EQ(graph.inputs[0].name, "x");
  EXPECT_THAT(graph.inputs[0].dims, ElementsAre(-1, 2));
  EXPECT_THAT(graph.outputs[0].dims, ElementsAre(-1, 1));
  ASSERT_EQ(graph.nodes.size(), 3U);
  EXPECT_EQ(graph.nodes[0].op, "MatMul");
  EXPECT_THAT(graph.nodes[1].inputs, ElementsAre("product", "b"));
  ASSERT_NE(graph.Constant("w"), nullptr);
  EXPECT_EQ(graph.Constant("w")->element_count(), 2U);
  EXPECT_EQ(graph.Constant("x"), nullptr);
  EXPECT_NE(graph.Input("x"), nullptr);
}

TEST(OnnxModelTest, SerializesWhatItRead) {
  const absl::StatusOr<OnnxModel> model = Parse(LogisticModel().Bytes());
  ASSERT_TRUE(model.ok());
  const absl::StatusOr<std::string> bytes = model->Serialize();
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, LogisticModel().Bytes());
}

TEST(OnnxModelTest, ReadsTypedNumbersAndConstantNodes) {
  TestModel model = LogisticModel();
  ::onnx::TensorProto& bias = *model.graph().mutable_initializer(1);
  bias.clear_raw_data();
  bias.add_float_data(2.5F);
  ::onnx::NodeProto& node = *model.graph().add_node();
  node.set_op_type("Constant");
  node.add_output("axes");
  ::onnx::AttributeProto& value = *node.add_attribute();
  value.set_name("value");
  value.set_type(::onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(::onnx::TensorProto::INT32);
  value.mutable_t()->add_dims(2);
  value.mutable_t()->add_int32_data(-1);
  value.mutable_t()->add_int32_data(7);
  const absl::StatusOr<OnnxModel> read = Parse(model.Bytes());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(LoadLittleEndian<float>(read->graph().Constant("b")->bytes.data()), 2.5F);
  EXPECT_THAT(read->graph().Constant("axes")->Integers(), ElementsAre(-1, 7));
  EXPECT_EQ(read->graph().nodes.size(), 3U);
}

TEST(OnnxModelTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.graph().mutable_node(0)->set_op_type("Loop"); }),
              HasSubstr("(Loop): the operator is not supported"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.graph().mutable_node(0)->set_domain("x.y"); }),
              HasSubstr("of domain x.y"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.proto().mutable_opset_import(0)->set_version(8); }),
              HasSubstr("its opset is 8; read are 9 to 23"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.proto().add_functions(); }), HasSubstr("functions"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.graph().add_sparse_initializer(); }),
              HasSubstr("sparse"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.graph().clear_output(); }), HasSubstr("no output"));
  EXPECT_THAT(WhyRefused([](TestModel& m) {
                m.graph().mutable_node(0)->add_attribute()->mutable_g()->set_name("sub");
              }),
              HasSubstr("attribute"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.graph().mutable_node(0)->clear_output(); }),
              HasSubstr("it has no output"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.proto().clear_graph(); }), HasSubstr("no graph"));
}

TEST(OnnxModelTest, RefusesGraphsWithoutAnOrder) {
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.graph().mutable_node()->SwapElements(0, 2); }),
              HasSubstr("is not defined before it"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.Node("Relu", "sum", {"x"}); }),
              HasSubstr("value 'sum' is defined twice"));
  EXPECT_THAT(WhyRefused([](TestModel& m) { m.graph().mutable_output(0)->set_name("y"); }),
              HasSubstr("output 'y': no node makes it"));
}

TEST(OnnxModelTest, RefusesTensorsThatDoNotFitTheirShape) {
  const auto weight = [](TestModel& m) { return m.graph().mutable_initializer(0); };
  EXPECT_THAT(WhyRefused([&](TestModel& m) { weight(m)->set_dims(0, 3); }),
              HasSubstr("its shape needs 12 bytes, it has 8"));
  EXPECT_THAT(WhyRefused([&](TestModel& m) { weight(m)->set_dims(0, -2); }),
              HasSubstr("a dimension of -2"));
  EXPECT_THAT(WhyRefused([&](TestModel& m) {
                weight(m)->set_dims(0, int64_t{1} << 62);
                weight(m)->set_dims(1, int64_t{1} << 62);
              }),
              HasSubstr("beyond 64 bits"));
  EXPECT_THAT(WhyRefused([&](TestModel& m) { weight(m)->set_data_type(8); }),
              HasSubstr("type 8 are not supported"));
  EXPECT_THAT(WhyRefused([&](TestModel& m) { weight(m)->mutable_segment(); }),
              HasSubstr("part of a tensor"));
  EXPECT_THAT(WhyRefused([&](TestModel& m) {
                for (int i = 0; i < 9; ++i) weight(m)->add_dims(1);
              }),
              HasSubstr("dimensions"));
}

TEST(OnnxModelTest, LimitsFileAndStructure) {
  const std::string bytes = LogisticModel().Bytes();
  EXPECT_EQ(Parse(bytes, {.bytes_max = bytes.size() - 1}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Parse(bytes, {.structure_bytes_max = 64}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Parse("\xff\xff").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse("").status().code(), absl::StatusCode::kInvalidArgument);
}

class ExternalDataTest : public ::testing::Test {
 protected:
  ExternalDataTest() : model_(LogisticModel()) {
    std::filesystem::create_directory(folder_);
    ::onnx::TensorProto& weight = *model_.graph().mutable_initializer(0);
    Write(folder_ / "data", "1234" + weight.raw_data());
    weight.clear_raw_data();
    weight.set_data_location(::onnx::TensorProto::EXTERNAL);
    Set("location", "data");
    Set("offset", "4");
    Set("length", "8");
  }

  void Set(const std::string& key, const std::string& value) {
    auto& entries = *model_.graph().mutable_initializer(0)->mutable_external_data();
    for (auto& entry : entries) {
      if (entry.key() == key) return entry.set_value(value);
    }
    auto& entry = *entries.Add();
    entry.set_key(key);
    entry.set_value(value);
  }

  absl::StatusOr<OnnxModel> Read(const OnnxLimits& limits = {}) {
    Write(folder_ / "m.onnx", model_.Bytes());
    return OnnxModel::Read((folder_ / "m.onnx").string(), limits);
  }

  TestDirectory directory_;
  const std::filesystem::path folder_ = std::filesystem::path(directory_.path()) / "model";
  TestModel model_;
};

TEST_F(ExternalDataTest, BecomesPartOfTheModel) {
  const absl::StatusOr<OnnxModel> model = Read();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*model->Serialize(), LogisticModel().Bytes());
}

TEST_F(ExternalDataTest, LiesInsideTheFolderOnly) {
  Write(std::filesystem::path(directory_.path()) / "secret", std::string(12, 'x'));
  Set("location", "../secret");
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("outside the model's folder"));
  Set("location", (std::filesystem::path(directory_.path()) / "secret").string());
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("outside the model's folder"));
  std::filesystem::create_symlink("../secret", folder_ / "link");
  Set("location", "link");
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("outside the model's folder"));
  Set("location", ".");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExternalDataTest, IsCheckedAgainstItsFile) {
  Set("offset", "5");
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("which has 12"));
  Set("offset", "18446744073709551615");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
  Set("offset", "4x");
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("is not a number"));
  Set("offset", "4");
  Set("length", "9");
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("needs 8 bytes, it has 9"));
  Set("length", "8");
  Set("location", "gone");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ExternalDataTest, CountsAgainstTheLimit) {
  const uint64_t file_bytes = model_.Bytes().size();
  EXPECT_EQ(Read({.bytes_max = file_bytes + 7}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(Read({.bytes_max = file_bytes + 8}).ok());
}

TEST_F(ExternalDataTest, IsRefusedWhereThereIsNoFolder) {
  EXPECT_THAT(std::string(Parse(model_.Bytes()).status().message()), HasSubstr("another file"));
}

TEST_F(ExternalDataTest, FilesThatCanNotBeReadAreNamed) {
  EXPECT_EQ(OnnxModel::Read((folder_ / "gone").string(), {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(OnnxModel::Read(folder_.string(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// What is not refused is a graph that can be walked and written.
TEST(OnnxModelTest, SurvivesMutants) {
  const std::string good = LogisticModel().Bytes();
  std::mt19937_64 random(20);
  int taken = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string bytes = good;
    for (uint64_t change = random() % 4 + 1; change > 0; --change) {
      const size_t at = random() % bytes.size();
      if (random() % 4 == 0) {
        bytes.erase(at, 1 + random() % 4);
      } else if (random() % 4 == 0) {
        bytes.insert(at, bytes, random() % bytes.size(), random() % 16);
      } else {
        bytes[at] = static_cast<char>(random());
      }
      if (bytes.empty()) bytes = good;
    }
    const absl::StatusOr<OnnxModel> model = Parse(bytes);
    if (!model.ok()) continue;
    ++taken;
    EXPECT_TRUE(model->Serialize().ok());
  }
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace hps
