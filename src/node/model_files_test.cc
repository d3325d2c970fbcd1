#include "node/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/split_files.h"
#include "network/onnx/test_models.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelFilesTest : public testing::Test {
 protected:
  absl::StatusOr<std::optional<ModelFiles>> Read(const std::string& text) {
    std::filesystem::remove(directory_.path() + "/model.toml");
    EXPECT_TRUE(WriteNewFile(directory_.path() + "/model.toml", text).ok());
    return ReadModelFiles(directory_.path());
  }
  std::string WhyNot(const std::string& text) {
    const absl::Status status = Read(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  const TestDirectory directory_;
};

TEST_F(ModelFilesTest, ReadsTablesAndNetwork) {
  EXPECT_FALSE(ReadModelFiles(directory_.path())->has_value());
  ASSERT_TRUE(WriteNewFile(directory_.path() + "/dense.onnx", LogisticModel().Bytes()).ok());
  const auto files = Read(
      "name = \"m\"\ntables = [\"user\", \"item\"]\n[network]\nfile = \"dense.onnx\"\n"
      "[[network.input]]\nname = \"x\"\ntable = \"item\"\npooling = \"mean\"\n");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT((*files)->tables, ElementsAre("user", "item"));
  EXPECT_EQ((*files)->network->inputs[0].table, "item");
  EXPECT_EQ((*files)->network->inputs[0].pooling, RowPooling::kMean);
  EXPECT_EQ((*files)->network->digest, NetworkDigest(*(*files)->network));
}

TEST_F(ModelFilesTest, SaysWhereAndWhatIsWrong) {
  ASSERT_TRUE(WriteNewFile(directory_.path() + "/dense.onnx", "no model").ok());
  const std::string begin = "name = \"m\"\ntables = [\"user\"]\n";
  EXPECT_FALSE(Read(begin).value()->network.has_value());
  EXPECT_THAT(WhyNot("name = \"m\"\n"), HasSubstr("'tables' is missing"));
  EXPECT_THAT(WhyNot("tables = [\"user\"]\n"), HasSubstr("'name' is missing"));
  EXPECT_THAT(WhyNot("name = \"m\"\ntables = [\"a/b\"]\n"), HasSubstr("model.toml:2:11"));
  EXPECT_THAT(WhyNot(begin + "nam = 1\n"), HasSubstr("did you mean 'name'"));
  EXPECT_THAT(WhyNot(begin + "[network]\nfile = \"../dense.onnx\"\n"), HasSubstr("this folder"));
  EXPECT_THAT(WhyNot(begin + "[network]\nfile = \"dense.onnx\"\n"), HasSubstr("dense.onnx"));
  const std::string input = begin + "[network]\nfile = \"dense.onnx\"\n[[network.input]]\n";
  EXPECT_THAT(WhyNot(input + "table = \"user\"\n"), HasSubstr("'name' is missing"));
  EXPECT_THAT(WhyNot(input + "name = \"x\"\ntable = \"users\"\n"),
              HasSubstr("did you mean 'user'"));
  EXPECT_THAT(WhyNot(input + "name = \"x\"\ntable = \"user\"\npooling = \"max\"\n"),
              HasSubstr("\"sum\", \"mean\" or \"none\""));
  EXPECT_THAT(WhyNot("name = "), HasSubstr("model.toml:1:"));
}

TEST_F(ModelFilesTest, ANetworkMayStandInForTheImportedOne) {
  const std::string path = directory_.path() + "/other.onnx";
  ASSERT_TRUE(WriteNewFile(path, LogisticModel().Bytes()).ok());
  const std::vector<TableSpec> tables = {{.name = "m/x", .dim = 2}};
  const auto by_name = ReadNetworkInstead(path, nullptr, tables);
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  EXPECT_EQ(by_name->inputs[0].table, "x");
  const ModelNetwork imported{.inputs = {{.name = "x", .table = "y"}}};
  EXPECT_EQ(ReadNetworkInstead(path, &imported, tables)->inputs[0].table, "y");
  EXPECT_EQ(ReadNetworkInstead(path + "x", nullptr, tables).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps
