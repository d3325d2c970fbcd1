#include "import/table_listing.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "import/test_table_files.h"

namespace hps {
namespace {

class TableListingTest : public TableFilesTest {
 protected:
  absl::StatusOr<std::vector<TableSource>> List(const std::string& directory) const {
    return ListTables({.name = "m", .from = directory_.Path(directory)}, nullptr, {});
  }
};

TEST_F(TableListingTest, AModelIsEverySubFolderAndSafetensorsFileInNaturalOrder) {
  for (const char* name : {"t10", "t2", "t1", "user", "t02", "T3"})
    WriteHugectr(std::string("model/") + name, 1, 2);
  WriteSafetensors("model/item.safetensors");
  directory_.Write("model/requests.npy", "not a table");
  directory_.Write("model/README", "not a table either");
  const auto tables = List("model");
  ASSERT_TRUE(tables.ok()) << tables.status();
  std::vector<std::string> names;
  for (const TableSource& table : *tables) names.push_back(table.name);
  EXPECT_EQ(names, (std::vector<std::string>{"T3", "item", "t1", "t02", "t2", "t10", "user"}));
}

TEST_F(TableListingTest, SaysWhatItExpectedWhereThereIsNoModel) {
  ExpectError(List("missing").status(), absl::StatusCode::kNotFound, "missing");
  directory_.Write("file", "x");
  ExpectError(List("file").status(), kInvalid, "file");
  std::filesystem::create_directory(directory_.Path("empty"));
  ExpectError(List("empty").status(), kInvalid, "found none");
  WriteHugectr("twice/x", 1, 2);
  WriteSafetensors("twice/x.safetensors");
  ExpectError(List("twice").status(), kInvalid, "table 'x' occurs twice");
}

// Catches: such a table skipped silently, so that the model's other tables switch without it.
TEST_F(TableListingTest, ATableThatCantBeExaminedFailsTheModel) {
  for (const char* target : {"nowhere", "lost"}) {  // the second link points to itself
    const std::string model = target;
    WriteHugectr(model + "/good", 1, 2);
    std::filesystem::create_symlink(target, directory_.Path(model + "/lost"));
    ExpectError(List(model).status(), kInvalid, directory_.Path(model + "/lost"));
  }
}

}  // namespace
}  // namespace hps
