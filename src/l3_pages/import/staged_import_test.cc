#include "l3_pages/import/staged_import.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <functional>
#include <string>

namespace hps {
namespace {

StagedImport Example() {
  StagedImport import;
  import.order = 7;
  import.update_start = {.kind = UpdateStart::Kind::kTime, .time_ms = 99};
  import.import_id = "v1";
  import.tables = {{.spec = {.name = "m/a", .dim = 4},
                    .incarnation = 11,
                    .row_count = 5,
                    .files =
                    { {"t0-p0.rows",
                       { 2,
                         -9,
                         3 }},
                      { "t0-p1.rows",
                        { 3,
                          4,
                          8 } } }},
                   {.spec = {
                     .name = "m/b",
                     .dim = 2,
                     .dtype = Dtype::kFloat16
                   } }};
  import.tables[1].spec.default_row.assign(4, std::byte{1});
  import.network = {.model = "m", .digest = "d", .inputs = {
                      {.name = "x",
                       .table = "a",
                       .pooling = RowPooling::kMean }
                    }};
  return import;
}

TEST(StagedImportTest, AManifestSaysAllThatTheImportHas) {
  const StagedImport import = Example();
  const auto read = DecodeStagedImport(EncodeStagedImport(import));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(EncodeStagedImport(*read), EncodeStagedImport(import));
  ASSERT_EQ(read->tables.size(), 2u);
  ASSERT_EQ(read->tables[0].files.size(), 2u);
  EXPECT_EQ(read->tables[0].files[0].record.first_key, -9);
  EXPECT_EQ(read->tables[1].spec.default_row, import.tables[1].spec.default_row);
  EXPECT_EQ(read->network->inputs, import.network->inputs);
}

TEST(StagedImportTest, EveryDamagedByteIsFound) {
  const std::string whole = EncodeStagedImport(Example());
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 4);
    EXPECT_TRUE(absl::IsDataLoss(DecodeStagedImport(bytes).status())) << i;
    EXPECT_TRUE(absl::IsDataLoss(DecodeStagedImport(whole.substr(0, i)).status())) << i;
  }
}

// Catches: a manifest of another program that ends the server, makes its catalog unreadable, or
// removes files outside the directory.
TEST(StagedImportTest, WhatNoImportCanHaveIsDamage) {
  const auto expect_damage = [](const char* what,
                                const std::function<void(StagedImport&)>& change) {
    StagedImport import = Example();
    change(import);
    const absl::Status read = DecodeStagedImport(EncodeStagedImport(import)).status();
    EXPECT_TRUE(absl::IsDataLoss(read)) << what << ": " << read;
  };
  expect_damage("path", [](auto& import) { import.tables[0].files[0].name = "../file"; });
  expect_damage("no rows", [](auto& import) { import.tables[0].files[0].record.row_count = 0; });
  expect_damage("keys", [](auto& import) { import.tables[0].files[0].record.first_key = 4; });
  expect_damage("order", [](auto& import) { import.tables[0].files[1].record.first_key = 3; });
  expect_damage("dim", [](auto& import) { import.tables[0].spec.dim = 0; });
  expect_damage("pooling", [](auto& import) {
    import.network->inputs[0].pooling = static_cast<RowPooling>(9);
  });
}

TEST(StagedImportTest, AnotherVersionIsToldFromDamage) {
  std::string bytes = EncodeStagedImport(Example());
  bytes[8] = 6;  // the version follows the magic; the checksum ends the file
  const uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size() - sizeof(checksum));
  std::memcpy(bytes.data() + bytes.size() - sizeof(checksum), &checksum, sizeof(checksum));
  EXPECT_TRUE(absl::IsFailedPrecondition(DecodeStagedImport(bytes).status()));
}

TEST(StagedImportTest, ANewerImportReplacesAllTablesAndTheNetworkOrNothing) {
  const StagedImport import = Example();
  EXPECT_EQ(TablesOf(import), (std::set<std::string>{"m/", "m/a", "m/b"}));
  EXPECT_TRUE(IsReplacedBy(import, {"m/", "m/a", "m/b", "m/c"}));
  EXPECT_FALSE(IsReplacedBy(import, {"m/a", "m/b"}));
}

}  // namespace
}  // namespace hps
