#include "import/split_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/file.h"
#include "import/model_toml.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ModelTomlTest, WritesTablesAndNetwork) {
  const std::vector<std::string> tables = {"user", "item"};
  EXPECT_EQ(ModelToml({.name = "m", .tables = tables}),
            "name = \"m\"\ntables = [\"user\", \"item\"]\n");
  const std::vector<NetworkInput> inputs = {
      {.name = "a\"b\\\n", .table = "user", .pooling = RowPooling::kNone}, {.name = "dense"}};
  EXPECT_EQ(ModelToml({.name = "m", .tables = tables, .has_network = true, .inputs = inputs}),
            "name = \"m\"\ntables = [\"user\", \"item\"]\n[network]\nfile = \"dense.onnx\"\n"
            "[[network.input]]\nname = \"a\\\"b\\\\\\n\"\ntable = \"user\"\npooling = \"none\"\n"
            "[[network.input]]\nname = \"dense\"\n");
}

TEST(SplitFilesTest, AFileThatIsNoModelLeavesNothing) {
  const TestDirectory directory;
  const std::string path = directory.path() + "/model.onnx";
  ASSERT_TRUE(WriteNewFile(path, "this is no model").ok());
  EXPECT_EQ(WriteNewFile(path, "twice").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadText(path), "this is no model");
  const absl::Status status = SplitOnnxFile(path, directory.path() + "/out").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(File::OpenForReading(directory.path() + "/out/model.toml").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps
