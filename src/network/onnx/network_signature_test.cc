#include "network/onnx/network_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/test_models.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// score = Sigmoid(sum of rows * dense), with a fixed row width of 2.
TestModel TwoInputs(const std::vector<int64_t>& row_dims) {
  TestModel model;
  model.Input("rows", ::onnx::TensorProto::FLOAT, row_dims);
  model.Input("dense", ::onnx::TensorProto::FLOAT, {-1, 3});
  model.Node("Identity", "score", {"dense"});
  model.Output("score", ::onnx::TensorProto::FLOAT, {-1, 3});
  return model;
}

const std::vector<TableSpec> kTables = {{.name = "m/user", .dim = 2}, {.name = "m/item", .dim = 4}};

absl::StatusOr<NetworkSignature> Resolve(const TestModel& model, std::vector<NetworkInput> inputs) {
  return SignatureOf({.onnx = model.Bytes(), .inputs = std::move(inputs)}, kTables);
}

std::string WhyNot(const TestModel& model, std::vector<NetworkInput> inputs) {
  const absl::Status status = Resolve(model, std::move(inputs)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(NetworkSignatureTest, TablesFeedInputsAndTheClientSendsTheRest) {
  const auto signature =
      Resolve(TwoInputs({-1, 2}),
              {{.name = "rows", .table = "user", .pooling = RowPooling::kMean}, {.name = "dense"}});
  ASSERT_TRUE(signature.ok()) << signature.status();
  EXPECT_EQ(signature->inputs[0].table, 0U);
  EXPECT_EQ(signature->inputs[0].pooling, RowPooling::kMean);
  EXPECT_FALSE(signature->inputs[1].table.has_value());
  EXPECT_THAT(signature->inputs[1].sample_dims, ElementsAre(3));
  EXPECT_EQ(signature->outputs[0].sample_elements, 3U);
}

TEST(NetworkSignatureTest, RowsOneByOneMayBeFlatOrNot) {
  const NetworkInput none = {.name = "rows", .table = "user", .pooling = RowPooling::kNone};
  EXPECT_EQ(Resolve(TwoInputs({-1, 5, 2}), {none})->inputs[0].sample_keys, 5U);
  EXPECT_EQ(Resolve(TwoInputs({-1, -1, 2}), {none})->inputs[0].sample_keys, 0U);
  EXPECT_EQ(Resolve(TwoInputs({-1, 10}), {none})->inputs[0].sample_keys, 5U);
  EXPECT_THAT(WhyNot(TwoInputs({-1, 5}), {none}), HasSubstr("rows of dim 2"));
  EXPECT_THAT(WhyNot(TwoInputs({-1, 5, 3}), {none}), HasSubstr("[batch, 5, 3]"));
}

TEST(NetworkSignatureTest, SaysWhatDoesNotFit) {
  const NetworkInput rows = {.name = "rows", .table = "user"};
  EXPECT_THAT(WhyNot(TwoInputs({-1, 3}), {rows}), HasSubstr("are [batch, 2]"));
  EXPECT_THAT(WhyNot(TwoInputs({1, 2}), {rows}), HasSubstr("dynamic batch"));
  EXPECT_THAT(WhyNot(TwoInputs({-1, 2}), {rows, rows}), HasSubstr("twice"));
  EXPECT_THAT(WhyNot(TwoInputs({-1, 2}), {{.name = "row"}}), HasSubstr("did you mean 'rows'"));
  EXPECT_THAT(WhyNot(TwoInputs({-1, 2}), {{.name = "rows", .table = "users"}}),
              HasSubstr("did you mean 'user'"));
  TestModel open_output = TwoInputs({-1, 2});
  open_output.graph().clear_output();
  open_output.Output("score", ::onnx::TensorProto::FLOAT, {-1, -1});
  EXPECT_THAT(WhyNot(open_output, {rows}), HasSubstr("must be known"));
}

TEST(NetworkSignatureTest, NamesAreOfOneThing) {
  TestModel model;
  model.Input("user", ::onnx::TensorProto::FLOAT, {-1, 2});
  model.Node("Identity", "item", {"user"});
  model.Output("item", ::onnx::TensorProto::FLOAT, {-1, 2});
  EXPECT_THAT(WhyNot(model, {}), HasSubstr("the client sends it"));
  EXPECT_THAT(WhyNot(model, {{.name = "user", .table = "user"}}), HasSubstr("the same name"));
}

// Catches: a network that is served, whose output or input no request can name.
TEST(NetworkSignatureTest, NamesOfRequestsAreRefused) {
  for (const std::string name :
       {"KEYS", "NUMKEYS", "OUTPUT0", "OUTPUT0.status", "user.offsets", "item.status"}) {
    TestModel input;
    input.Input(name, ::onnx::TensorProto::FLOAT, {-1, 2});
    input.Node("Identity", "score", {name});
    input.Output("score", ::onnx::TensorProto::FLOAT, {-1, 2});
    EXPECT_THAT(WhyNot(input, {}), HasSubstr("input '" + name + "': requests have this name"));
    // Clients don't see the name of an input that gets rows.
    EXPECT_TRUE(Resolve(input, {{.name = name, .table = "user"}}).ok());
    TestModel output;
    output.Input("x", ::onnx::TensorProto::FLOAT, {-1, 2});
    output.Node("Identity", name, {"x"});
    output.Output(name, ::onnx::TensorProto::FLOAT, {-1, 2});
    EXPECT_THAT(WhyNot(output, {}), HasSubstr("output '" + name + "': requests have this name"));
  }
}

}  // namespace
}  // namespace hps
