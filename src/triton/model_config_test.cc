#include "triton/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace hps::triton {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// A model of two tables and a network: what DescribeModel tells of one.
ModelMetadata Metadata() {
  return {.name = "m",
          .version = "1",
          .tables = {{.name = "m/user", .dim = 4}, {.name = "m/item", .dim = 8}},
          .inputs = {{.name = "dense", .datatype = Datatype::kFp32, .shape = {-1, 3}},
                     {.name = "user.offsets", .shape = {-1}},
                     {.name = "user", .shape = {-1}},
                     {.name = "item", .shape = {-1}},
                     {.name = "KEYS", .shape = {1, -1}},
                     {.name = "NUMKEYS", .datatype = Datatype::kInt32, .shape = {1, 2}}},
          .outputs = {{.name = "score", .datatype = Datatype::kFp32, .shape = {-1}},
                      {.name = "user", .datatype = Datatype::kFp32, .shape = {-1, 4}},
                      {.name = "user.status", .datatype = Datatype::kUint8, .shape = {-1}},
                      {.name = "OUTPUT0", .datatype = Datatype::kFp32, .shape = {-1}}}};
}

Json Completed(const std::string& json) {
  const absl::StatusOr<std::string> text = CompleteModelConfig(json, Metadata());
  EXPECT_TRUE(text.ok()) << text.status();
  return Json::parse(text.ok() ? *text : "{}");
}

Json Named(const Json& list, const std::string& name) {
  for (const Json& tensor : list)
    if (tensor["name"] == name) return tensor;
  return Json::object();
}

TEST(ModelConfigTest, ReadsWhatTheBackendNeeds) {
  const auto settings = ReadModelConfig(R"({
    "name": "m", "max_batch_size": 8,
    "input": [{"name": "user", "data_type": "TYPE_INT64", "dims": [3]}],
    "output": [{"name": "item", "dims": [1], "reshape": {"shape": []}}],
    "instance_group": [{"kind": "KIND_CPU", "count": 3}, {"kind": "KIND_GPU", "count": 2}],
    "parameters": {"config": {"string_value": "a/hps.toml"}, "other": {"string_value": "x"},
                   "read_only": {"string_value": "true"}}})");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->configuration, "a/hps.toml");
  EXPECT_TRUE(settings->is_read_only);
  EXPECT_EQ(settings->instance_count, 5U);
  EXPECT_TRUE(settings->has_gpu_group);
  EXPECT_TRUE(settings->is_batched);
  ASSERT_EQ(settings->inputs.size(), 1U);
  EXPECT_EQ(settings->inputs[0].name, "user");
  EXPECT_EQ(settings->inputs[0].type, "TYPE_INT64");
  EXPECT_EQ(settings->inputs[0].shape, std::vector<int64_t>({-1, 3}));
  ASSERT_EQ(settings->outputs.size(), 1U);
  EXPECT_EQ(settings->outputs[0].name, "item");
  EXPECT_EQ(settings->outputs[0].shape, std::vector<int64_t>({-1}));
}

TEST(ModelConfigTest, RefusesWhatItCannotMean) {
  const auto message = [](const std::string& json) {
    const auto settings = ReadModelConfig(json);
    EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(settings.status().message());
  };
  EXPECT_THAT(message("no json"), HasSubstr("no JSON object"));
  EXPECT_THAT(message(R"({"parameters": {"ps": {"string_value": "ps.json"}}})"),
              HasSubstr("convert-config"));
  EXPECT_THAT(message(R"({"parameters": {"config": {}}})"), HasSubstr("'config'"));
  EXPECT_THAT(message(R"({"parameters": {"read_only": {"string_value": "yes"}}})"),
              HasSubstr("'yes', expected 'true'"));
}

TEST(ModelConfigTest, WithoutABatchShapesAreThoseOfTheModel) {
  const Json config = Completed(R"({"name": "m", "max_batch_size": 0})");
  EXPECT_EQ(config["input"].size(), 6U);
  EXPECT_EQ(
      Named(config["input"], "user"),
      Json({{"name", "user"}, {"data_type", "TYPE_INT64"}, {"dims", {-1}}, {"optional", true}}));
  EXPECT_EQ(Named(config["input"], "KEYS")["dims"], Json({1, -1}));
  EXPECT_EQ(Named(config["output"], "user.status")["data_type"], "TYPE_UINT8");
  EXPECT_EQ(Named(config["output"], "OUTPUT0.status")["dims"], Json({-1}));
  EXPECT_FALSE(config.contains("dynamic_batching"));
}

TEST(ModelConfigTest, WithABatchTheFirstDimensionIsTritons) {
  const Json config = Completed(R"({"name": "m", "max_batch_size": 64})");
  const Json& inputs = config["input"];
  EXPECT_EQ(inputs.size(), 5U) << "offsets have no batch";
  EXPECT_EQ(Named(inputs, "user")["dims"], Json({-1}));
  EXPECT_EQ(Named(inputs, "user")["allow_ragged_batch"], true);
  EXPECT_EQ(Named(inputs, "dense")["dims"], Json({3}));
  EXPECT_EQ(Named(inputs, "KEYS")["dims"], Json({-1}));
  EXPECT_EQ(Named(config["output"], "score")["dims"], Json({1}));
  EXPECT_EQ(Named(config["output"], "score")["reshape"]["shape"], Json::array());
  EXPECT_EQ(Named(config["output"], "user")["dims"], Json({-1, 4}));
  EXPECT_EQ(Named(config["output"], "OUTPUT0")["dims"], Json({-1}));
  EXPECT_TRUE(config.contains("dynamic_batching"));
}

TEST(ModelConfigTest, KeepsWhatIsDeclared) {
  const Json config = Completed(
      R"({"name": "m", "max_batch_size": 4, "output": [{"name": "score", "dims": [1]}],
          "sequence_batching": {"max_sequence_idle_microseconds": 1}})");
  EXPECT_EQ(config["output"].size(), 1U);
  EXPECT_FALSE(config.contains("dynamic_batching"));
}

TEST(ModelConfigTest, NamesTheNearestOfAnUnknownTensor) {
  ModelSettings settings{.inputs = {{.name = "user"}},
                         .outputs = {{.name = "OUTPUT0.status"}, {.name = "scor"}}};
  const absl::Status status = CheckDeclared(settings, Metadata());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean 'score'"));
  settings.outputs.pop_back();
  EXPECT_TRUE(CheckDeclared(settings, Metadata()).ok());
}

// Catches: a network output whose name begins as OUTPUT0, and a table named OUTPUT0, announced as
// rows of all tables.
TEST(ModelConfigTest, OnlyOutput0ItselfIsOfAllTables) {
  ModelMetadata metadata = Metadata();
  metadata.outputs[0].name = "OUTPUT0_x";
  const auto completed = [&] {
    return Json::parse(*CompleteModelConfig(R"({"max_batch_size": 8})", metadata))["output"];
  };
  EXPECT_EQ(Named(completed(), "OUTPUT0_x")["dims"], Json({1}));
  EXPECT_TRUE(Named(completed(), "OUTPUT0_x").contains("reshape"));
  EXPECT_EQ(Named(completed(), "OUTPUT0.status")["dims"], Json({-1}));
  metadata.tables[0].name = "m/OUTPUT0";
  metadata.outputs[1] = {.name = "OUTPUT0", .datatype = Datatype::kFp32, .shape = {-1, 4}};
  metadata.outputs[2] = {.name = "OUTPUT0.status", .datatype = Datatype::kUint8, .shape = {-1}};
  metadata.outputs.pop_back();
  EXPECT_EQ(completed().size(), 3U);
  EXPECT_EQ(Named(completed(), "OUTPUT0")["dims"], Json({-1, 4}));
}

TEST(ModelConfigTest, ANameThatIsNotUtf8IsAnError) {
  ModelMetadata metadata = Metadata();
  metadata.outputs[0].name = "\xff";
  const absl::Status status = CompleteModelConfig("{}", metadata).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(ModelConfigTest, WhatIsDeclaredFitsTheModel) {
  const auto check = [](const std::string& config) {
    const auto settings = ReadModelConfig(config);
    EXPECT_TRUE(settings.ok()) << settings.status();
    return CheckDeclared(*settings, Metadata());
  };
  const auto input = [](const std::string& name, const std::string& type, const std::string& dims) {
    return R"("input": [{"name": ")" + name + R"(", "data_type": "TYPE_)" + type +
           R"(", "dims": )" + dims + "}]}";
  };
  const std::string batch = R"({"max_batch_size": 8, )";
  for (const std::string& good :
       {"{" + input("user", "INT64", "[-1]"), "{" + input("user", "UINT64", "[-1, 3]"),
        batch + input("user", "INT64", R"(["5"])"), batch + input("KEYS", "INT64", "[-1]"),
        "{" + input("KEYS", "INT64", "[-1]"), "{" + input("KEYS", "INT64", "[1, -1]"),
        batch + input("KEYS", "UINT32", "[-1]"), "{" + input("user", "INT32", "[-1]"),
        batch + input("NUMKEYS", "INT32", "[-1]"), batch + input("dense", "FP32", "[3]"),
        "{" + input("dense", "FP32", "[-1, -1]"), "{" + input("user.offsets", "INT32", "[-1]")}) {
    EXPECT_TRUE(check(good).ok()) << good << check(good);
  }
  for (const std::string& bad :
       {"{" + input("user", "FP32", "[-1]"), "{" + input("dense", "UINT64", "[-1, 3]"),
        "{" + input("user", "INT16", "[-1]"), batch + input("NUMKEYS", "UINT32", "[-1]"),
        "{" + input("dense", "FP32", "[-1, 4]"), batch + input("dense", "FP32", "[-1, 3]"),
        batch + input("NUMKEYS", "INT32", "[3]"), batch + input("user.offsets", "INT64", "[-1]")}) {
    EXPECT_EQ(check(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_THAT(std::string(check("{" + input("dense", "FP32", "[-1, 4]")).message()),
              HasSubstr("as TYPE_FP32 [-1, 4], but it is TYPE_FP32 [-1, 3]"));
  const absl::Status rows =
      check(R"({"output": [{"name": "user", "data_type": "TYPE_FP32", "dims": [-1, 5]}]})");
  EXPECT_THAT(std::string(rows.message()), HasSubstr("TYPE_FP32 [-1, 4] or TYPE_FP32 [-1, -1, 4]"));
}

}  // namespace
}  // namespace hps::triton
