#include "inference/request_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"
#include "inference/test_planned_model.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;

class RequestPlanTest : public ::testing::Test {
 protected:
  RequestPlanTest() { Use({{.name = "m/user", .dim = 4}, {.name = "m/item", .dim = 8}}); }

  void Use(std::vector<TableSpec> tables) {
    version_ = *ModelVersion::Make(std::make_unique<PlannedModel>(std::move(tables)), {});
  }
  // An input of `bytes` zeros but for what `bytes_of` brings.
  void Add(std::string_view name, Datatype datatype, const std::vector<int64_t>& dims,
           size_t bytes) {
    AddBytes(name, datatype, dims, {zeros_.data(), bytes});
  }
  void AddBytes(std::string_view name, Datatype datatype, const std::vector<int64_t>& dims,
                std::span<const std::byte> bytes) {
    InputTensor& input = request_.inputs.emplace_back();
    input.name = name;
    input.datatype = datatype;
    input.bytes = bytes;
    for (const int64_t dim : dims) input.shape.dims[input.shape.dim_count++] = dim;
  }
  void AddCounts(const std::vector<int32_t>& counts) {
    counts_ = counts;
    AddBytes("NUMKEYS", Datatype::kInt32, {1, std::ssize(counts_)},
             std::as_bytes(std::span(counts_)));
  }
  absl::Status Plan() { return PlanRequest(*version_, limits_, request_, outputs_, plan_); }
  // The plan must fail; the request is forgotten.
  void ExpectError(absl::StatusCode code, const std::string& part) {
    const absl::Status status = Plan();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    Forget();
  }
  void Forget() { request_ = {}; }

  ModelVersionRef version_;
  PlanLimits limits_{.response_bytes_max = uint64_t{256} << 20};
  std::vector<std::byte> zeros_ = std::vector<std::byte>(size_t{5} << 23);
  std::vector<int32_t> counts_;
  TensorRequest request_;
  std::vector<OutputTensor> outputs_;
  ExecutionPlan plan_;
};

TEST_F(RequestPlanTest, EveryTableGetsItsOutput) {
  Add("item", Datatype::kUint64, {2, 3}, 48);
  Add("user", Datatype::kInt64, {5}, 40);
  ASSERT_TRUE(Plan().ok());
  ASSERT_EQ(outputs_.size(), 2u);
  EXPECT_EQ(outputs_[0].name, "item");
  EXPECT_EQ(outputs_[0].datatype, Datatype::kFp32);
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(2, 3, 8));
  EXPECT_EQ(outputs_[0].byte_count, 6 * 8 * sizeof(float));
  EXPECT_THAT(outputs_[1].shape.values(), ElementsAre(5, 4));
  EXPECT_EQ(plan_.key_count, 11u);
  ASSERT_EQ(plan_.parts.size(), 2u);
  EXPECT_EQ(plan_.parts[0].table, 1u);
  EXPECT_EQ(plan_.parts[1].rows().output, 1u);
}

TEST_F(RequestPlanTest, NoKeysAreAnEmptyOutput) {
  Add("user", Datatype::kInt64, {0}, 0);
  request_.output_names = {"user", "user.status"};
  ASSERT_TRUE(Plan().ok());
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(0, 4));
  EXPECT_EQ(outputs_[0].byte_count, 0u);
  EXPECT_EQ(outputs_[1].byte_count, 0u);
  EXPECT_TRUE(plan_.parts.empty());
}

TEST_F(RequestPlanTest, WhatNobodyAsksForIsNotLookedUp) {
  Add("user", Datatype::kInt64, {5}, 40);
  Add("item", Datatype::kInt64, {2}, 16);
  request_.output_names = {"item.status", "item"};
  ASSERT_TRUE(Plan().ok());
  ASSERT_EQ(plan_.parts.size(), 1u);
  EXPECT_EQ(plan_.parts[0].table, 1u);
  EXPECT_EQ(plan_.parts[0].rows().output, 1u);
  EXPECT_EQ(plan_.parts[0].status().output, 0u);
  EXPECT_EQ(plan_.key_count, 2u);
}

TEST_F(RequestPlanTest, WhatIsWrongByTable) {
  ExpectError(kInvalid, "no input");
  Add("usr", Datatype::kInt64, {1}, 8);
  ExpectError(kNotFound, "did you mean 'user'");
  Add("user", Datatype::kInt64, {1}, 8);
  Add("user", Datatype::kInt64, {1}, 8);
  ExpectError(kInvalid, "given twice");
  Add("user", Datatype::kInt16, {1}, 2);
  ExpectError(kInvalid, "INT64, UINT64, INT32 or UINT32, not INT16");
  Add("user", Datatype::kUint32, {1}, 8);
  ExpectError(kInvalid, "does not fit its 8 bytes");
  Add("user", Datatype::kBytes, {1}, 8);
  ExpectError(kInvalid, "not BYTES");
  Add("user", Datatype::kInt64, {}, 8);
  ExpectError(kInvalid, "of shape [n] or [batch, k], not []");
  Add("user", Datatype::kInt64, {1, 1, 1}, 8);
  ExpectError(kInvalid, "not [1, 1, 1]");
  Add("user", Datatype::kInt64, {-1}, 8);
  ExpectError(kInvalid, "a dimension of -1");
  Add("user", Datatype::kInt64, {2}, 8);
  ExpectError(kInvalid, "[2] of INT64 does not fit its 8 bytes");
  Add("user", Datatype::kInt64, {1}, 15);
  ExpectError(kInvalid, "does not fit its 15 bytes");
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  Add("user", Datatype::kInt64, {kHuge, kHuge}, 8);
  ExpectError(kInvalid, "beyond 64 bits");
  Add("user", Datatype::kInt64, {int64_t{1} << 61}, 0);  // times 8 is 0 in 64 bits
  ExpectError(kInvalid, "does not fit its 0 bytes");
}

TEST_F(RequestPlanTest, WhatIsWrongWithOutputs) {
  Add("user", Datatype::kInt64, {1}, 8);
  request_.output_names = {"usr"};
  ExpectError(kNotFound, "no output 'usr'; did you mean 'user'");
  Add("user", Datatype::kInt64, {1}, 8);
  request_.output_names = {"OUTPUT"};
  ExpectError(kNotFound, "no output 'OUTPUT'; did you mean 'OUTPUT0'");
  Add("user", Datatype::kInt64, {1}, 8);
  request_.output_names = {"item"};
  ExpectError(kInvalid, "the input 'item' is missing");
  for (const std::string_view name : {"user", "user.status", "OUTPUT0", "OUTPUT0.status"}) {
    Add("user", Datatype::kInt64, {1}, 8);
    request_.output_names = {name, name};
    ExpectError(kInvalid, "asked for twice");
  }
  Add("user", Datatype::kInt64, {1}, 8);
  request_.output_names = {"user.status"};
  ExpectError(kInvalid, "output 'user.status' requires output 'user'; add 'user'");
}

TEST_F(RequestPlanTest, Limits) {
  limits_.response_bytes_max = 100;
  Add("user", Datatype::kInt64, {7}, 56);  // 112 bytes
  ExpectError(kOutOfRange, "response_bytes_max = 100");
  Add("user", Datatype::kInt64, {6}, 48);  // 96 bytes
  request_.output_names = {"user", "user.status"};
  ExpectError(kOutOfRange, "response_bytes_max = 100");
  Add("user", Datatype::kInt64, {5}, 40);
  request_.output_names = {"user", "user.status"};
  EXPECT_TRUE(Plan().ok());
  Forget();
  limits_.response_bytes_max = uint64_t{1} << 40;
  constexpr int64_t kMost = kKeysPerCallMax;
  Add("user", Datatype::kInt64, {kMost}, kMost * 8);
  EXPECT_TRUE(Plan().ok());
  Forget();
  Add("user", Datatype::kInt64, {kMost + 1}, (kMost + 1) * 8);
  ExpectError(kOutOfRange, "the maximum is 4194304");
  Add("user", Datatype::kInt64, {kMost}, kMost * 8);
  Add("item", Datatype::kInt64, {1}, 8);
  ExpectError(kOutOfRange, "the maximum is 4194304");
  request_.inputs.resize(kTablesPerCallMax + 1);
  ExpectError(kOutOfRange, "1025 inputs");
}

TEST_F(RequestPlanTest, KeysGoToTablesInDeclaredOrder) {
  Add("KEYS", Datatype::kInt64, {1, 5}, 40);
  AddCounts({2, 3});
  ASSERT_TRUE(Plan().ok());
  ASSERT_EQ(outputs_.size(), 1u);
  EXPECT_EQ(outputs_[0].name, "OUTPUT0");
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(2 * 4 + 3 * 8));
  ASSERT_EQ(plan_.parts.size(), 2u);
  EXPECT_EQ(plan_.parts[1].keys, zeros_.data() + 16);
  EXPECT_EQ(plan_.parts[1].rows().offset_bytes, 2u * 4 * 4);
  Forget();
  AddCounts({0, 5});
  Add("KEYS", Datatype::kUint64, {5}, 40);
  request_.output_names = {"OUTPUT0"};
  ASSERT_TRUE(Plan().ok());
  ASSERT_EQ(plan_.parts.size(), 1u) << "a table without keys is not asked";
  EXPECT_EQ(plan_.parts[0].table, 1u);
  Forget();
  AddCounts({0, 0});
  Add("KEYS", Datatype::kInt64, {1, 0}, 0);
  ASSERT_TRUE(Plan().ok());
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(0));
}

TEST_F(RequestPlanTest, KeysHaveStatusesWhereTheyAreAskedFor) {
  for (const bool status_first : {false, true}) {
    Add("KEYS", Datatype::kInt64, {1, 5}, 40);
    AddCounts({2, 3});
    request_.output_names = {"OUTPUT0", "OUTPUT0.status"};
    if (status_first) std::swap(request_.output_names[0], request_.output_names[1]);
    ASSERT_TRUE(Plan().ok());
    ASSERT_EQ(outputs_.size(), 2u);
    const OutputTensor& rows = outputs_[status_first ? 1 : 0];
    const OutputTensor& status = outputs_[status_first ? 0 : 1];
    EXPECT_EQ(rows.name, "OUTPUT0");
    EXPECT_THAT(rows.shape.values(), ElementsAre(2 * 4 + 3 * 8));
    EXPECT_EQ(status.name, "OUTPUT0.status");
    EXPECT_EQ(status.datatype, Datatype::kUint8);
    EXPECT_THAT(status.shape.values(), ElementsAre(5));
    EXPECT_EQ(status.byte_count, 5u);
    for (const TablePart& part : plan_.parts) {
      EXPECT_EQ(&outputs_[part.rows().output], &rows);
      EXPECT_EQ(&outputs_[part.status().output], &status);
    }
    EXPECT_EQ(plan_.parts[0].status().offset_bytes, 0u);
    EXPECT_EQ(plan_.parts[1].status().offset_bytes, 2u);
    Forget();
  }
  Add("KEYS", Datatype::kInt64, {1, 5}, 40);
  AddCounts({2, 3});
  request_.output_names = {"OUTPUT0.status"};
  ExpectError(kInvalid, "requires output 'OUTPUT0'");
  Add("KEYS", Datatype::kInt64, {1, 5}, 40);
  AddCounts({2, 3});
  request_.output_names = {"OUTPUT0", "OUTPUT0.status", "OUTPUT0.status"};
  ExpectError(kInvalid, "asked for twice");
}

TEST_F(RequestPlanTest, WhatIsWrongWithKeys) {
  const auto keys = [&] { Add("KEYS", Datatype::kInt64, {1, 5}, 40); };
  keys();
  ExpectError(kInvalid, "'NUMKEYS' is missing");
  AddCounts({2, 3});
  ExpectError(kInvalid, "'KEYS' is missing");
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{2, 2}, {3, 3}, {6, -1}, {2147483647, 2147483647}}) {
    keys();
    AddCounts(counts);
    ExpectError(kInvalid, "NUMKEYS");
  }
  keys();
  AddCounts({6, -1});
  ExpectError(kInvalid, "over the 5 keys");
  keys();
  AddCounts({-1, 6});
  ExpectError(kInvalid, "element 0 is -1");
  for (const std::vector<int32_t>& counts : {std::vector<int32_t>{5}, {1, 2, 2}, {}}) {
    keys();
    AddCounts(counts);
    ExpectError(kInvalid, "the model has 2 tables");
  }
  keys();
  Add("NUMKEYS", Datatype::kInt64, {1, 2}, 16);
  ExpectError(kInvalid, "INT32, not INT64");
  keys();
  Add("NUMKEYS", Datatype::kInt32, {1, 2}, 7);
  ExpectError(kInvalid, "does not fit its 7 bytes");
  keys();
  Add("NUMKEYS", Datatype::kInt32, {2, 1}, 8);
  ExpectError(kInvalid, "[n] or [1, n], not [2, 1]");
  Add("KEYS", Datatype::kInt64, {5, 1}, 40);
  AddCounts({2, 3});
  ExpectError(kInvalid, "[n] or [1, n], not [5, 1]");
  keys();
  keys();
  ExpectError(kInvalid, "given twice");
  keys();
  AddCounts({2, 3});
  Add("user", Datatype::kInt64, {1}, 8);
  ExpectError(kInvalid, "can't come with KEYS");
  keys();
  AddCounts({2, 3});
  Add("other", Datatype::kInt64, {1}, 8);
  ExpectError(kNotFound, "no input 'other'");
  keys();
  AddCounts({2, 3});
  request_.output_names = {"usr"};
  ExpectError(kNotFound, "no output 'usr'; did you mean 'user'");
  keys();
  AddCounts({2, 3});
  request_.output_names = {"OUTPUT0", "OUTPUT0"};
  ExpectError(kInvalid, "asked for twice");
}

TEST_F(RequestPlanTest, InputsByTableGiveTheJointOutputInDeclaredOrder) {
  Add("item", Datatype::kInt64, {2, 1}, 16);
  Add("user", Datatype::kInt64, {3}, 24);
  request_.output_names = {"OUTPUT0.status", "item", "OUTPUT0", "user.status"};
  ASSERT_TRUE(Plan().ok());
  ASSERT_EQ(outputs_.size(), 4u);
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(5));
  EXPECT_THAT(outputs_[1].shape.values(), ElementsAre(2, 1, 8));
  EXPECT_THAT(outputs_[2].shape.values(), ElementsAre(3 * 4 + 2 * 8));
  EXPECT_THAT(outputs_[3].shape.values(), ElementsAre(3));
  ASSERT_EQ(plan_.parts.size(), 2u);
  const TablePart& user = plan_.parts[0];
  EXPECT_EQ(user.table, 0u);
  EXPECT_EQ(user.rows().output, 2u);
  EXPECT_EQ(user.status().output, 3u);
  EXPECT_EQ(user.joint_status.offset_bytes, 0u);
  const TablePart& item = plan_.parts[1];
  EXPECT_EQ(item.rows().output, 1u);
  EXPECT_EQ(item.joint_rows.output, 2u);
  EXPECT_EQ(item.joint_rows.offset_bytes, 3u * 4 * 4);
  EXPECT_EQ(item.joint_status.offset_bytes, 3u);
  Forget();
  Add("item", Datatype::kInt64, {2}, 16);  // the other table is not asked
  request_.output_names = {"OUTPUT0"};
  ASSERT_TRUE(Plan().ok());
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(2 * 8));
}

TEST_F(RequestPlanTest, KeysGiveTheTablesOutputs) {
  Add("KEYS", Datatype::kInt64, {1, 5}, 40);
  AddCounts({5, 0});
  request_.output_names = {"item", "item.status", "user", "user.status", "OUTPUT0"};
  ASSERT_TRUE(Plan().ok());
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(0, 8));
  EXPECT_THAT(outputs_[1].shape.values(), ElementsAre(0));
  EXPECT_THAT(outputs_[2].shape.values(), ElementsAre(5, 4));
  EXPECT_THAT(outputs_[3].shape.values(), ElementsAre(5));
  EXPECT_THAT(outputs_[4].shape.values(), ElementsAre(5 * 4));
  ASSERT_EQ(plan_.parts.size(), 1u);
  Forget();
  Add("KEYS", Datatype::kInt64, {1, 5}, 40);
  AddCounts({2, 3});
  request_.output_names = {"item"};
  ASSERT_TRUE(Plan().ok());
  ASSERT_EQ(plan_.parts.size(), 1u) << "a table whose rows are not asked for is not looked up";
  EXPECT_EQ(plan_.parts[0].keys, zeros_.data() + 16);
}

// A table's own name wins: else it could not be asked.
TEST_F(RequestPlanTest, ATableNamedKeysIsATable) {
  EXPECT_TRUE(HasKeysConvention(*version_));
  Use({{.name = "m/KEYS", .dim = 4}, {.name = "m/item", .dim = 8}});
  EXPECT_FALSE(HasKeysConvention(*version_));
  Add("KEYS", Datatype::kInt64, {5}, 40);
  ASSERT_TRUE(Plan().ok());
  EXPECT_EQ(outputs_[0].name, "KEYS");
  Forget();
  Add("KEYS", Datatype::kInt64, {5}, 40);
  AddCounts({2, 3});
  ExpectError(kNotFound, "no input 'NUMKEYS'");
}

}  // namespace
}  // namespace hps
