#include "import/formats/memory_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "import/formats/test_files.h"
#include "import/import.h"
#include "import/test_import_store.h"

namespace hps {
namespace {

class MemoryTableTest : public testing::Test {
 protected:
  TableInMemory Table(uint32_t dim = 2) const {
    return {.keys = keys_, .rows = std::as_bytes(std::span(rows_)), .dim = dim};
  }
  static absl::StatusOr<FakeRows> Import(const TableInMemory& table) {
    const TestDirectory directory;
    auto plan = PlanImport({.name = "m/t", .memory = table});
    if (!plan.ok()) return plan.status();
    FakeBulkImport import(plan->specs());
    const auto report = RunImport(*plan, import, {.spill_directory = directory.Path()}, nullptr);
    if (!report.ok()) return report.status();
    EXPECT_EQ(report->tables[0].bytes_read, table.keys.size_bytes() + table.rows.size());
    return import.rows(0);
  }

  std::vector<Key> keys_ = {7, -1, 3};
  std::vector<float> rows_ = {70, 71, -10, -11, 30, 31};
};

TEST_F(MemoryTableTest, KeysInAnyOrderAreImported) {
  const auto rows = Import(Table());
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 3U);
  for (size_t i = 0; i < keys_.size(); ++i)
    EXPECT_EQ(std::memcmp(rows->at(keys_[i]).data(), &rows_[2 * i], 2 * sizeof(float)), 0);
}

TEST_F(MemoryTableTest, NoRowsAreATableWithoutRows) {
  keys_.clear();
  rows_.clear();
  const auto rows = Import(Table());
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(rows->empty());
}

TEST_F(MemoryTableTest, AKeyThatOccursTwiceIsNamed) {
  keys_[2] = 7;
  const absl::Status status = Import(Table()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("rows in memory"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("key 7"), absl::string_view::npos) << status;
}

TEST_F(MemoryTableTest, SizesMustAgree) {
  for (const uint32_t dim : {0U, 1U, 3U, static_cast<uint32_t>(kDimMax + 1)})
    EXPECT_EQ(OpenMemoryTable(Table(dim)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(OpenMemoryTable(Table()).ok());
}

}  // namespace
}  // namespace hps
