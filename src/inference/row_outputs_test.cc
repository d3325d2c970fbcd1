#include "inference/row_outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "inference/test_planned_model.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two keys of `user`, three of `item`; `other` is not in the request.
class RowOutputsTest : public ::testing::Test {
 protected:
  static ModelVersionRef Version(const std::string& third) {
    return *ModelVersion::Make(
        std::make_unique<PlannedModel>(std::vector<TableSpec>{{.name = "m/user", .dim = 2},
                                                              {.name = "m/item", .dim = 4},
                                                              {.name = "m/" + third, .dim = 8}}),
        {});
  }
  static TablePart Part(uint32_t table, int64_t keys, size_t row_bytes) {
    return {.table = table,
            .key_count = static_cast<size_t>(keys),
            .key_shape = {.dims = {keys}, .dim_count = 1},
            .row_bytes = row_bytes};
  }
  void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  const PlanLimits limits_{.response_bytes_max = 70};
  std::vector<TablePart> parts_ = {Part(0, 2, 8), Part(1, 3, 16)};
  std::vector<OutputTensor> outputs_;
};

TEST_F(RowOutputsTest, GivesEachOutputItsPlace) {
  const ModelVersionRef version = Version("other");
  RowOutputs rows(*version, limits_, parts_, outputs_);
  for (const char* name : {"OUTPUT0.status", "item", "OUTPUT0", "item.status"})
    ASSERT_TRUE(rows.Add(name).ok()) << name;
  ASSERT_TRUE(rows.CheckStatuses().ok());
  ASSERT_EQ(outputs_.size(), 4U);
  EXPECT_THAT(outputs_[1].shape.values(), ElementsAre(3, 4));
  EXPECT_THAT(outputs_[2].shape.values(), ElementsAre(2 * 2 + 3 * 4));
  EXPECT_FALSE(parts_[0].table_rows.is_set());
  EXPECT_EQ(parts_[0].rows().output, 2U);
  EXPECT_EQ(parts_[1].rows().output, 1U);
  EXPECT_EQ(parts_[1].joint_rows.offset_bytes, 16U);
  EXPECT_EQ(parts_[1].joint_status.offset_bytes, 2U);
  EXPECT_EQ(parts_[1].status().output, 3U);
}

TEST_F(RowOutputsTest, WhatIsWrong) {
  const ModelVersionRef version = Version("other");
  RowOutputs rows(*version, limits_, parts_, outputs_);
  ExpectError(rows.Add("itm"), absl::StatusCode::kNotFound, "did you mean 'item'");
  ExpectError(rows.Add("other"), absl::StatusCode::kInvalidArgument, "'other' is missing");
  for (const char* name : {"user.status", "OUTPUT0.status", "OUTPUT0", "user"}) {
    ASSERT_TRUE(rows.Add(name).ok());
    ExpectError(rows.Add(name), absl::StatusCode::kInvalidArgument, "asked for twice");
  }
  parts_[1].row_bytes = 32;
  ExpectError(rows.Add("item"), absl::StatusCode::kOutOfRange, "response_bytes_max");
}

TEST_F(RowOutputsTest, StatusesComeWithTheirRowsOnly) {
  const ModelVersionRef version = Version("other");
  RowOutputs of_table(*version, limits_, parts_, outputs_);
  ASSERT_TRUE(of_table.Add("item.status").ok());
  ExpectError(of_table.CheckStatuses(), absl::StatusCode::kInvalidArgument,
              "requires output 'item'");
  parts_[1].table_status = {};
  RowOutputs joint(*version, limits_, parts_, outputs_);
  ASSERT_TRUE(joint.Add("OUTPUT0.status").ok());
  ExpectError(joint.CheckStatuses(), absl::StatusCode::kInvalidArgument,
              "requires output 'OUTPUT0'");
}

TEST_F(RowOutputsTest, ATableWithTheNameOfAJointTensorTakesItsPlace) {
  const ModelVersionRef version = Version("KEYS");
  EXPECT_FALSE(IsJointOutput(*version, "OUTPUT0"));
  RowOutputs rows(*version, limits_, parts_, outputs_);
  ExpectError(rows.Add("OUTPUT0"), absl::StatusCode::kNotFound, "no output 'OUTPUT0'");
}

}  // namespace
}  // namespace hps
