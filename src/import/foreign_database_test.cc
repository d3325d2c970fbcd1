#include "import/foreign_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

TEST(ForeignDatabaseTest, FilesAndRowsInMemoryAreNone) {
  const TestDirectory directory;
  for (const ImportRequest& request :
       {ImportRequest{.name = "m", .from = directory.path()},
        ImportRequest{.name = "m/t", .from = "redis://h:1", .format = TableFormat::kNpy},
        ImportRequest{.name = "m/t", .from = "", .memory = TableInMemory{}}}) {
    const auto store = OpenForeignDatabase(request, {});
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(*store, nullptr);
  }
}

TEST(ForeignDatabaseTest, OnlyRedisHasPartitions) {
  const TestDirectory directory;
  const absl::Status status =
      OpenForeignDatabase({.name = "m", .from = directory.path(), .partitions = 8}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("for the format hugectr-redis only"));
}

// Changes of rows are planned without an opener.
TEST(ForeignDatabaseTest, WithoutAnOpenerADatabaseIsRefused) {
  const TestDirectory directory;
  std::ofstream(directory.Path("CURRENT")) << "MANIFEST-000001\n";
  for (const std::string& from : {directory.path(), std::string("redis://127.0.0.1:1")}) {
    const absl::Status status = OpenForeignDatabase({.name = "m/t2", .from = from}, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("found a database of HugeCTR"));
  }
}

}  // namespace
}  // namespace hps
