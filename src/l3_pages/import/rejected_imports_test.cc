#include "l3_pages/import/rejected_imports.h"

#include <gtest/gtest.h>

#include "base/limits.h"

namespace hps {
namespace {

const absl::Status kDamaged = absl::DataLossError("damaged");

std::vector<std::string> Taken(RejectedImports& rejected, const std::string& model) {
  std::vector<std::string> tables;
  for (const RejectedImport& import : rejected.Take(model)) tables.push_back(import.table);
  return tables;
}
using Tables = std::vector<std::string>;

TEST(RejectedImportsTest, ReportsEachTableOnceToItsModel) {
  RejectedImports rejected;
  for (const char* table : {"m/b", "m-n/a", "m/a", "n/a", "m0/a"})
    rejected.Add(table, kDamaged, {});
  EXPECT_EQ(Taken(rejected, "m"), (Tables{"m/a", "m/b"}));
  EXPECT_EQ(Taken(rejected, "m"), Tables{});
  EXPECT_EQ(Taken(rejected, ""), Tables{});
  EXPECT_EQ(Taken(rejected, "m-n"), Tables{"m-n/a"});
}

TEST(RejectedImportsTest, OnlyANewerImportReplacesARejectedOne) {
  RejectedImports rejected;
  rejected.Add("m/a", kDamaged, {1, 2});
  rejected.Replace("m/a", 2);
  rejected.Replace("m/b", 3);
  EXPECT_EQ(Taken(rejected, "m"), Tables{"m/a"});
  rejected.Add("m/a", kDamaged, {1, 2});
  rejected.Replace("m/a", 3);
  EXPECT_EQ(Taken(rejected, "m"), Tables{});
  // Only the `older` incarnations of the newest rejected import count.
  rejected.Add("m/a", kDamaged, {});
  rejected.Add("m/a", absl::FailedPreconditionError("another shape"), {4});
  rejected.Replace("m/a", 4);
  const std::vector<RejectedImport> taken = rejected.Take("m");
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].why.code(), absl::StatusCode::kFailedPrecondition);
  rejected.Add("m/a", kDamaged, {4});
  rejected.Forget("m/a");
  EXPECT_EQ(Taken(rejected, "m"), Tables{});
}

TEST(RejectedImportsTest, ReportsAnUnknownTableToTheFirstCaller) {
  RejectedImports rejected;
  rejected.AddUnknown(kDamaged);
  rejected.AddUnknown(kDamaged);
  rejected.Replace("m/a", 1);
  EXPECT_EQ(Taken(rejected, "m"), Tables{""});
  EXPECT_EQ(Taken(rejected, "n"), Tables{});
}

TEST(RejectedImportsTest, RecordsNoTableNamesBeyondItsLimit) {
  RejectedImports rejected;
  for (size_t i = 0; i < kTablesPerStoreMax; ++i)
    rejected.Add("m/t" + std::to_string(i), kDamaged, {});
  rejected.Add("m/t1", kDamaged, {});
  EXPECT_EQ(Taken(rejected, "n"), Tables{});
  rejected.Add("n/a", kDamaged, {});
  EXPECT_EQ(Taken(rejected, "n"), Tables{""});
  EXPECT_EQ(rejected.Take("m").size(), kTablesPerStoreMax);
}

}  // namespace
}  // namespace hps
