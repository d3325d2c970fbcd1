#include "inference/model_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "inference/test_planned_model.h"

namespace hps {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> NamesOf(const std::vector<TensorMetadata>& tensors) {
  std::vector<std::string> names;
  for (const TensorMetadata& tensor : tensors) names.push_back(tensor.name);
  return names;
}

ModelMetadata Describe(std::vector<TableSpec> tables) {
  return DescribeModel("m",
                       **ModelVersion::Make(std::make_unique<PlannedModel>(std::move(tables)), {}));
}

TEST(ModelMetadataTest, TellsBothConventionsOfALookup) {
  const ModelMetadata model =
      Describe({{.name = "m/user", .dim = 4}, {.name = "m/item", .dim = 8}});
  EXPECT_EQ(model.name, "m");
  EXPECT_EQ(model.version, "3");
  EXPECT_THAT(NamesOf(model.inputs), ElementsAre("user", "item", "KEYS", "NUMKEYS"));
  EXPECT_THAT(NamesOf(model.outputs),
              ElementsAre("user", "user.status", "item", "item.status", "OUTPUT0"));
  EXPECT_THAT(model.outputs[2].shape, ElementsAre(-1, 8));
  EXPECT_THAT(model.inputs[3].shape, ElementsAre(1, 2));
}

TEST(ModelMetadataTest, ATableNamedKeysIsAskedByTableOnly) {
  const ModelMetadata model = Describe({{.name = "m/KEYS", .dim = 4}});
  EXPECT_THAT(NamesOf(model.inputs), ElementsAre("KEYS"));
  EXPECT_THAT(NamesOf(model.outputs), ElementsAre("KEYS", "KEYS.status"));
}

}  // namespace
}  // namespace hps
