#include "l3_rocksdb/import/lost_imports.h"

#include <gtest/gtest.h>

#include "base/limits.h"

namespace hps {
namespace {

const absl::Status kDamaged = absl::DataLossError("damaged");

std::vector<std::string> Taken(LostImports& lost, const std::string& model) {
  std::vector<std::string> tables;
  for (const RejectedImport& import : lost.Take(model)) tables.push_back(import.table);
  return tables;
}
using Tables = std::vector<std::string>;

TEST(LostImportsTest, TellsEachModelOfItsOwnTablesOnce) {
  LostImports lost;
  for (const char* table : {"m/b", "m-n/a", "m/a", "n/a", "m0/a"}) lost.Add(table, kDamaged, {});
  EXPECT_EQ(Taken(lost, "m"), (Tables{"m/a", "m/b"}));
  EXPECT_EQ(Taken(lost, "m"), Tables{});
  EXPECT_EQ(Taken(lost, ""), Tables{});
  EXPECT_EQ(Taken(lost, "m-n"), Tables{"m-n/a"});
}

TEST(LostImportsTest, OnlyANewerImportReplacesALostOne) {
  LostImports lost;
  lost.Add("m/a", kDamaged, {1, 2});
  lost.Replace("m/a", 2);
  lost.Replace("m/b", 3);
  EXPECT_EQ(Taken(lost, "m"), Tables{"m/a"});
  lost.Add("m/a", kDamaged, {1, 2});
  lost.Replace("m/a", 3);
  EXPECT_EQ(Taken(lost, "m"), Tables{});
  // The newest loss counts: what was older than the one before may be newer than nothing.
  lost.Add("m/a", kDamaged, {});
  lost.Add("m/a", absl::FailedPreconditionError("another shape"), {4});
  lost.Replace("m/a", 4);
  const std::vector<RejectedImport> taken = lost.Take("m");
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].why.code(), absl::StatusCode::kFailedPrecondition);
  lost.Add("m/a", kDamaged, {4});
  lost.Forget("m/a");
  EXPECT_EQ(Taken(lost, "m"), Tables{});
}

TEST(LostImportsTest, WhatNobodyCanTellIsToldToWhoeverAsksFirst) {
  LostImports lost;
  lost.AddUnknown(kDamaged);
  lost.AddUnknown(kDamaged);
  lost.Replace("m/a", 1);
  EXPECT_EQ(Taken(lost, "m"), Tables{""});
  EXPECT_EQ(Taken(lost, "n"), Tables{});
}

TEST(LostImportsTest, ForgetsNamesButNotLossesBeyondItsLimit) {
  LostImports lost;
  for (size_t i = 0; i < kTablesPerStoreMax; ++i) lost.Add("m/t" + std::to_string(i), kDamaged, {});
  lost.Add("m/t1", kDamaged, {});
  EXPECT_EQ(Taken(lost, "n"), Tables{});
  lost.Add("n/a", kDamaged, {});
  EXPECT_EQ(Taken(lost, "n"), Tables{""});
  EXPECT_EQ(lost.Take("m").size(), kTablesPerStoreMax);
}

}  // namespace
}  // namespace hps
