#include "import/formats/foreign_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "import/import_plan.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

// Rows of one float, the row's number. The tests in src/l3_rocksdb cover the real reader.
class CountingTable final : public ForeignTable {
 public:
  explicit CountingTable(uint64_t rows) : rows_(rows) {}
  uint64_t row_count() const override { return rows_; }
  size_t key_bytes() const override { return 8; }
  size_t row_bytes() const override { return rows_ == 0 ? 0 : sizeof(float); }
  bool keys_repeat() const override { return false; }
  absl::Status Read(uint64_t first_row, std::span<Key> keys,
                    std::span<std::byte> rows) const override {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = -static_cast<Key>(first_row + i);
    for (size_t i = 0; i < rows.size() / sizeof(float); ++i) {
      const auto row = static_cast<float>(first_row + i);
      std::memcpy(&rows[i * sizeof(float)], &row, sizeof(row));
    }
    return absl::OkStatus();
  }

 private:
  const uint64_t rows_;
};

class CountingStore final : public ForeignStore {
 public:
  const std::vector<std::string>& tables() const override { return tables_; }
  absl::StatusOr<std::unique_ptr<ForeignTable>> OpenTable(const std::string& name) override {
    if (name == "m/none") return std::make_unique<CountingTable>(0);
    if (name == "m/t2" || name == "m/t10") return std::make_unique<CountingTable>(5);
    return absl::NotFoundError("no such table");
  }

 private:
  const std::vector<std::string> tables_ = {"m/t10", "m/t2", "other/t"};
};

absl::StatusOr<std::unique_ptr<ForeignStore>> OpenCounting(const ImportRequest&) {
  return std::make_unique<CountingStore>();
}

TEST(ForeignTableTest, ReadsKeysAndRows) {
  const auto reader = OpenForeignTable(std::make_shared<CountingStore>(), "dir", "m/t2", {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->shape(), (TableShape{5, 1, Dtype::kFloat32}));
  EXPECT_EQ((*reader)->data_bytes(), 60u);
  EXPECT_EQ((*reader)->keys_path(), "dir");
  std::vector<Key> keys(2);
  ASSERT_TRUE((*reader)->ReadKeys(3, keys).ok());
  EXPECT_EQ(keys, (std::vector<Key>{-3, -4}));
  std::vector<std::byte> row(sizeof(float));
  ASSERT_TRUE((*reader)->ReadRows(4, row).ok());
  EXPECT_EQ(std::memcmp(row.data(), "\0\0\x80\x40", 4), 0);
}

TEST(ForeignTableTest, ComparesTheDimAndNeedsItForAnEmptyTable) {
  const absl::Status other =
      OpenForeignTable(std::make_shared<CountingStore>(), "dir", "m/t2", 3).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.message()), HasSubstr("expected dim 3, found 1"));
  const absl::Status empty =
      OpenForeignTable(std::make_shared<CountingStore>(), "dir", "m/none", {}).status();
  EXPECT_THAT(std::string(empty.message()), HasSubstr("--dim"));
  EXPECT_EQ((*OpenForeignTable(std::make_shared<CountingStore>(), "dir", "m/none", 7))->shape().dim,
            7u);
  EXPECT_EQ(OpenForeignTable(std::make_shared<CountingStore>(), "dir", "m/x", {}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ForeignTableTest, APlanHasTheModelsTablesInNaturalOrder) {
  const TestDirectory directory;
  std::ofstream(directory.Path("CURRENT")) << "MANIFEST-000001\n";
  for (const TableFormat format : {TableFormat::kAuto, TableFormat::kHugectrRocksdb}) {
    const auto plan =
        PlanImport({.name = "m", .from = directory.path(), .format = format}, OpenCounting);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->tables.size(), 2u);
    EXPECT_EQ(plan->tables[0].spec.name, "m/t2");
    EXPECT_EQ(plan->tables[1].spec.name, "m/t10");
    EXPECT_TRUE(plan->tables[1].Open().ok());
    const auto one =
        PlanImport({.name = "m/t10", .from = directory.path(), .format = format}, OpenCounting);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->tables.size(), 1u);
  }
  const absl::Status unknown =
      PlanImport({.name = "n", .from = directory.path()}, OpenCounting).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("m/t10, m/t2, other/t"));
}

}  // namespace
}  // namespace hps
