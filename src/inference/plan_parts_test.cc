#include "inference/plan_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A network with two inputs of table 5, whose samples have 2, 0, 1 and 3 keys, one of table 7 with
// three keys for each sample, and one that the client sends, of two bytes for each sample.
class PlanPartsTest : public testing::Test {
 protected:
  PlanPartsTest() {
    signature_.inputs.resize(4);
    signature_.inputs[0].table = signature_.inputs[3].table = 5;
    signature_.inputs[2].table = 7;
    plan_.is_prediction = true;
    plan_.prediction.Reset(4, 1);
    plan_.prediction.batch = 4;
    plan_.prediction.inputs[0].offsets = plan_.prediction.inputs[3].offsets = {0, 2, 2, 3, 6};
    plan_.prediction.inputs[1].sent = sent_;
    plan_.prediction.inputs[1].sample_dims = {2};
    plan_.prediction.inputs[2].sample_keys = 3;
    plan_.parts = {{.table = 5, .keys = keys_.data(), .key_count = 6, .row_bytes = 16},
                   {.table = 7, .keys = keys_.data() + 48, .key_count = 12, .row_bytes = 8}};
    plan_.key_count = 18;
  }

  // Where the keys of a table of the part lie in the request.
  static std::vector<size_t> KeysOf(const TablePart& table, const std::byte* first) {
    std::vector<size_t> places;
    for (size_t i = 0; i < table.key_count; ++i)
      places.push_back(static_cast<size_t>(table.keys - first) / sizeof(Key) + i);
    return places;
  }

  const std::vector<std::byte> keys_ = std::vector<std::byte>(18 * sizeof(Key));
  const std::vector<std::byte> sent_ = std::vector<std::byte>(8);
  NetworkSignature signature_;
  ExecutionPlan plan_;
  ExecutionPlan part_;
};

TEST_F(PlanPartsTest, APartHasTheKeysAndInputsOfItsSamples) {
  CutPlan(signature_, plan_, {.begin = 2, .count = 2}, part_);
  EXPECT_TRUE(part_.is_prediction);
  EXPECT_EQ(part_.prediction.batch, 2U);
  ASSERT_EQ(part_.parts.size(), 2U);
  EXPECT_EQ(part_.parts[0].table, 5U);
  EXPECT_EQ(part_.parts[0].row_bytes, 16U);
  EXPECT_THAT(KeysOf(part_.parts[0], keys_.data()), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(part_.parts[1].table, 7U);
  EXPECT_THAT(KeysOf(part_.parts[1], keys_.data()), ElementsAre(12, 13, 14, 15, 16, 17));
  EXPECT_EQ(part_.key_count, 10U);
  const std::vector<PredictionInput>& inputs = part_.prediction.inputs;
  EXPECT_THAT(inputs[0].offsets, ElementsAre(0, 1, 4));
  EXPECT_THAT(inputs[3].offsets, ElementsAre(0, 1, 4));
  EXPECT_THAT(inputs[2].offsets, IsEmpty());
  EXPECT_EQ(inputs[2].sample_keys, 3U);
  EXPECT_EQ(inputs[1].sent.data(), sent_.data() + 4);
  EXPECT_EQ(inputs[1].sent.size(), 4U);
  EXPECT_THAT(inputs[1].sample_dims, ElementsAre(2));
}

// Catches: keys of the part before, which has used the same plan object.
TEST_F(PlanPartsTest, APartWithoutKeysOfATableFollowsOneWithThem) {
  CutPlan(signature_, plan_, {.begin = 0, .count = 2}, part_);
  EXPECT_THAT(KeysOf(part_.parts[0], keys_.data()), ElementsAre(0, 1));
  part_.degraded_count = 9;
  std::byte row{};
  part_.parts[0].network_rows = &row;
  CutPlan(signature_, plan_, {.begin = 1, .count = 1}, part_);
  EXPECT_EQ(part_.degraded_count, 0U);
  EXPECT_EQ(part_.key_count, 3U);
  ASSERT_EQ(part_.parts.size(), 2U);
  EXPECT_EQ(part_.parts[0].key_count, 0U);
  EXPECT_EQ(part_.parts[0].network_rows, nullptr);
  EXPECT_THAT(part_.prediction.inputs[0].offsets, ElementsAre(0, 0));
  EXPECT_THAT(KeysOf(part_.parts[1], keys_.data()), ElementsAre(9, 10, 11));
}

}  // namespace
}  // namespace hps
