#include "import/import.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/bytes.h"
#include "import/export.h"
#include "import/fake_store.h"
#include "import/test_directory.h"
#include "tier/stamped_row.h"

namespace hps {
namespace {

TEST(ImportTest, HugectrInAndOutGivesTheSameBytes) {
  const TestDirectory directory;
  FakeRows rows;
  std::mt19937_64 random(1);
  while (rows.size() < 5000) {
    const Key key = static_cast<Key>(random());
    std::string row(16 * 4, '\0');
    StampedRow::Write(1, key, 0, std::as_writable_bytes(std::span(row)));
    rows.emplace(key, row);
  }
  std::vector<Key> keys;
  for (const auto& [key, row] : rows) keys.push_back(key);
  std::shuffle(keys.begin(), keys.end(), random);
  std::string key_bytes;
  std::string row_bytes;
  for (const Key key : keys) {
    key_bytes.append(AsText(std::as_bytes(std::span(&key, 1))));
    row_bytes += rows.at(key);
  }
  directory.Write("in/key", key_bytes);
  directory.Write("in/emb_vector", row_bytes);

  const auto plan = PlanImport({.name = "m/t", .from = directory.Path("in")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  FakeBulkImport import(plan->specs());
  const auto report = RunImport(*plan, import, {.spill_directory = directory.Path("")}, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(import.rows(0), rows);
  EXPECT_EQ(report->tables.at(0).info.row_count, 5000U);

  const FakeTable table(plan->specs()[0], import.rows(0));
  const auto exported = RunExport(table, {.name = "m/t", .to = directory.Path("out")});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto again = PlanImport({.name = "m/t", .from = directory.Path("out")});
  ASSERT_TRUE(again.ok()) << again.status();
  FakeBulkImport second(again->specs());
  ASSERT_TRUE(RunImport(*again, second, {.spill_directory = directory.Path("")}, nullptr).ok());
  EXPECT_EQ(second.rows(0), rows);
}

}  // namespace
}  // namespace hps
