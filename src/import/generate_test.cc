#include "import/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "import/formats/npy.h"
#include "import/formats/test_files.h"
#include "import/import.h"
#include "import/test_import_store.h"

namespace hps {
namespace {

FakeRows PlantedRows(const GenerateRequest& request, uint32_t table, const FakeRows& like) {
  FakeRows rows;
  for (const auto& [key, row] : like) {
    std::vector<float> planted(request.dim);
    PlantedRow(request.seed, table, key, planted);
    rows.emplace(key, std::string(AsText(std::as_bytes(std::span(planted)))));
  }
  return rows;
}

class GenerateFormatTest : public testing::TestWithParam<TableFormat> {};

TEST_P(GenerateFormatTest, TablesImportAndHoldThePlantedRows) {
  const TestDirectory directory;
  const GenerateRequest request{.out = directory.Path("model"),
                                .tables = 12,
                                .rows = 20000,
                                .dim = 5,
                                .seed = 7,
                                .format = GetParam(),
                                .requests = 3000};
  ASSERT_EQ(GenerateTables(request), absl::OkStatus());
  const auto plan = PlanImport({.name = "m", .from = request.out});
  ASSERT_TRUE(plan.ok()) << plan.status();
  FakeBulkImport import(plan->specs());
  ASSERT_TRUE(RunImport(*plan, import, {.spill_directory = request.out}, nullptr).ok());

  uint64_t row_count = 0;
  std::vector<FakeRows> tables;
  for (uint32_t table = 0; table < request.tables; ++table) {
    EXPECT_EQ(plan->tables[table].spec.name, "m/t" + std::to_string(table));
    tables.push_back(import.rows(table));
    EXPECT_EQ(tables[table], PlantedRows(request, table, tables[table]));
    EXPECT_GE(tables[table].size(), 3U);
    row_count += tables[table].size();
  }
  EXPECT_EQ(row_count, request.rows);
  EXPECT_GT(tables[0].size(), request.rows / 2) << "few tables are huge";
  EXPECT_LT(tables[11].size(), 20U) << "many are tiny";

  const auto file = File::OpenForReading(directory.Path("model/requests.npy"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto header = ReadNpyHeader(*file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->shape, (std::vector<uint64_t>{3000, 12}));
  ASSERT_EQ(ValidateNpyData(*file, *header, 8), absl::OkStatus());
  std::vector<Key> keys(3000 * 12);
  ASSERT_TRUE(file->ReadAt(header->data_offset, std::as_writable_bytes(std::span(keys))).ok());
  uint64_t absent = 0;
  for (size_t i = 0; i < keys.size(); ++i) absent += tables[i % 12].count(keys[i]) == 0 ? 1 : 0;
  EXPECT_GT(absent, keys.size() / 200);
  EXPECT_LT(absent, keys.size() / 50);
}

INSTANTIATE_TEST_SUITE_P(Formats, GenerateFormatTest,
                         testing::Values(TableFormat::kHugectr, TableFormat::kNpy));

TEST(GenerateTest, IsDeterministic) {
  const TestDirectory directory;
  GenerateRequest request{.out = directory.Path("a"), .tables = 3, .rows = 1000, .dim = 4};
  ASSERT_EQ(GenerateTables(request), absl::OkStatus());
  request.out = directory.Path("b");
  ASSERT_EQ(GenerateTables(request), absl::OkStatus());
  for (const char* name : {"t0/key", "t1/emb_vector", "t2/key", "requests.npy"})
    EXPECT_EQ(directory.Read(std::string("a/") + name), directory.Read(std::string("b/") + name));
  request.out = directory.Path("c");
  request.seed = 2;
  ASSERT_EQ(GenerateTables(request), absl::OkStatus());
  EXPECT_NE(directory.Read("a/t0/key"), directory.Read("c/t0/key"));
}

TEST(GenerateTest, RefusesInvalidRequests) {
  const TestDirectory directory;
  const auto code = [&](GenerateRequest request) {
    if (request.out.empty()) request.out = directory.Path("new");
    return GenerateTables(request).code();
  };
  EXPECT_EQ(code({.tables = 0, .rows = 5}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.tables = 6, .rows = 5}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.tables = 2000, .rows = 5000}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 5, .dim = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 5, .dim = 4097}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 5, .alpha = -1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 5, .alpha = NAN}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 5, .format = TableFormat::kSafetensors}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 5, .requests = uint64_t{1} << 40}), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(directory.Path("new")));
  directory.Write("full/file", "x");
  EXPECT_EQ(code({.out = directory.Path("full"), .rows = 5}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(directory.Read("full/file"), "x");
  EXPECT_EQ(code({.out = directory.Path("full/file"), .rows = 5}),
            absl::StatusCode::kInvalidArgument);
}

TEST(GenerateTest, RefusesMoreThanTheDiskHolds) {
  const TestDirectory directory;
  for (const uint64_t rows : {uint64_t{1} << 50, ~uint64_t{0}}) {
    const absl::Status refused =
        GenerateTables({.out = directory.Path("new"), .rows = rows, .dim = 4096});
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  }
  EXPECT_EQ(GenerateTables({.out = directory.Path("new"),
                            .tables = 1024,
                            .rows = 5000,
                            .requests = uint64_t{1} << 32})
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(std::filesystem::exists(directory.Path("new")));
  // Only the created files are removed.
  std::filesystem::create_directory(directory.Path("there"));
  EXPECT_EQ(GenerateTables({.out = directory.Path("there"), .rows = uint64_t{1} << 50}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(std::filesystem::is_empty(directory.Path("there")));
}

// Catches: a generator that removes everything in the directory after an error, including the files
// of another generator.
TEST(GenerateTest, AFailureRemovesOnlyItsOwnFiles) {
  const TestDirectory directory;
  GenerateRequest request{.out = directory.Path("model"), .tables = 2, .rows = 20'000};
  bool other_came = false;
  request.progress = [&](const Progress& progress) {
    if (std::exchange(other_came, true)) return;
    ASSERT_EQ(progress.step, "writing tables");
    ASSERT_LT(progress.done, 10'000U) << "the first table is not yet there";
    directory.Write("model/t1/key", "another's");
    directory.Write("model/letter", "another's");
  };
  const absl::Status failed = GenerateTables(request);
  ASSERT_TRUE(other_came);
  EXPECT_EQ(failed.code(), absl::StatusCode::kAlreadyExists) << failed;
  EXPECT_EQ(directory.Read("model/t1/key"), "another's");
  EXPECT_EQ(directory.Read("model/letter"), "another's");
  EXPECT_FALSE(std::filesystem::exists(directory.Path("model/t0")));
}

}  // namespace
}  // namespace hps
