#include "import/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "import/export.h"
#include "import/formats/test_files.h"
#include "import/test_import_store.h"
#include "types/elements.h"

namespace hps {
namespace {

// A table as plain values and as files of a random format.
struct RandomTable {
  std::vector<Key> keys;  // in the order of the files
  std::vector<std::string> rows;
  Dtype file_dtype = Dtype::kFloat32;
  ImportRequest request;

  // The expected rows in the requested dtype.
  FakeRows Expected() const {
    const Dtype dtype = request.dtype.value_or(file_dtype);
    FakeRows expected;
    for (size_t i = 0; i < keys.size(); ++i) {
      std::string row(rows[i].size() / ElementBytes(file_dtype) * ElementBytes(dtype), '\0');
      ConvertElements(file_dtype, AsBytes(std::string_view(rows[i])), dtype,
                      std::as_writable_bytes(std::span(row)));
      expected.emplace(keys[i], row);
    }
    return expected;
  }
};

class Randomness {
 public:
  explicit Randomness(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Below(values.size())];
  }
  std::string Bytes(size_t count) {
    std::string bytes(count, '\0');
    for (char& c : bytes) c = static_cast<char>(engine_());
    return bytes;
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

std::string Join(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

// Distinct keys within the range of the key type; sometimes ascending.
std::vector<Key> RandomKeys(Randomness& random, size_t count, const std::string& descr) {
  std::vector<Key> keys;
  FakeRows seen;
  while (keys.size() < count) {
    Key key = static_cast<Key>(random.engine()());
    if (descr == "<i4") key = static_cast<int32_t>(key);
    if (descr == "<u4") key = static_cast<uint32_t>(key);
    if (seen.emplace(key, "").second) keys.push_back(key);
  }
  if (random.Below(5) == 0) std::sort(keys.begin(), keys.end());
  return keys;
}

std::string KeyBytesOf(const std::vector<Key>& keys, const std::string& descr) {
  if (descr[2] == '8') return BytesOf(keys);
  std::vector<int32_t> narrow;
  for (const Key key : keys) narrow.push_back(static_cast<int32_t>(key));
  return BytesOf(narrow);
}

RandomTable MakeTable(Randomness& random, const TestDirectory& directory, size_t row_count) {
  RandomTable table;
  const size_t dim = random.Of<size_t>({1, 2, 3, 16, 31, 33});
  const std::string name = "t" + std::to_string(random.engine()());
  const std::string n = std::to_string(row_count);
  const std::string d = std::to_string(dim);
  const std::string key_descr = random.Of<const char*>({"<i8", "<u8", "<i4", "<u4"});
  table.request.name = "m/t";
  table.request.from = directory.Path(name);
  const TableFormat format =
      random.Of({TableFormat::kHugectr, TableFormat::kNpy, TableFormat::kSafetensors});
  if (format != TableFormat::kHugectr)
    table.file_dtype = random.Of({Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16});
  if (table.file_dtype == Dtype::kFloat32 && random.Below(2) == 0)
    table.request.dtype = random.Of({Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16});
  for (size_t i = 0; i < row_count; ++i)
    table.rows.push_back(random.Bytes(dim * ElementBytes(table.file_dtype)));
  if (format == TableFormat::kHugectr) {
    table.keys = RandomKeys(random, row_count, "<i8");
    table.request.dim = dim;
    directory.Write(name + "/key", BytesOf(table.keys));
    directory.Write(name + "/emb_vector", Join(table.rows));
  } else if (format == TableFormat::kNpy) {
    table.keys = RandomKeys(random, row_count, key_descr);
    if (table.file_dtype == Dtype::kBfloat16) table.request.dtype = Dtype::kBfloat16;
    const char* descr = table.file_dtype == Dtype::kFloat32   ? "<f4"
                        : table.file_dtype == Dtype::kFloat16 ? "<f2"
                                                              : "<u2";
    directory.Write(name + "/keys.npy",
                    NpyBytes(key_descr, "(" + n + ",)", KeyBytesOf(table.keys, key_descr)));
    directory.Write(name + "/rows.npy",
                    NpyBytes(descr, "(" + n + ", " + d + ")", Join(table.rows)));
  } else {
    const char* type = table.file_dtype == Dtype::kFloat32   ? "F32"
                       : table.file_dtype == Dtype::kFloat16 ? "F16"
                                                             : "BF16";
    const std::string rows = Join(table.rows);
    table.request.format = TableFormat::kSafetensors;
    if (random.Below(3) == 0) {
      for (size_t i = 0; i < row_count; ++i) table.keys.push_back(static_cast<Key>(i));
      table.request.tensor = "weights";
      directory.Write(name, SafetensorsBytes("{" +
                                                 TensorJson("weights", type, n + "," + d,
                                                            "0," + std::to_string(rows.size())) +
                                                 "}",
                                             rows));
    } else {
      table.keys = RandomKeys(random, row_count, "<i8");
      const std::string middle = std::to_string(8 * row_count);
      directory.Write(
          name, SafetensorsBytes(
                    "{" + TensorJson("keys", "I64", n, "0," + middle) + "," +
                        TensorJson("rows", type, n + "," + d,
                                   middle + "," + std::to_string(8 * row_count + rows.size())) +
                        "}",
                    BytesOf(table.keys) + rows));
    }
  }
  return table;
}

// 10^6 rows in total, compared with a map.
TEST(ImportModelTest, RandomTablesOfAllFormatsAreImportedAsTheyAre) {
  const uint64_t seed = 20260103;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Randomness random(seed);
  uint64_t rows_left = 1'000'000;
  uint64_t spilled_tables = 0;
  while (rows_left > 0) {
    const TestDirectory directory;
    const size_t small = random.Of<size_t>({0, 1, 2, 31, 32, 33, 4095, 4096, 4097, 20000});
    const size_t row_count =
        std::min<uint64_t>(random.Below(2) == 0 ? small : random.Below(30'000), rows_left);
    rows_left -= row_count;
    const RandomTable table = MakeTable(random, directory, row_count);
    const auto plan = PlanImport(table.request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    FakeBulkImport import(plan->specs());
    const ImportOptions options = {
        .spill_directory = directory.Path(),
        .memory_bytes_max = random.Of<uint64_t>({256 << 10, 512 << 10, 600'000, 1 << 20, 64 << 20}),
        .threads = static_cast<uint32_t>(random.Below(4))};
    ImportEffort effort;
    const auto report = RunImport(*plan, import, options, &effort);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_LE(effort.memory_bytes_peak, options.memory_bytes_max);
    spilled_tables += effort.spilled_runs > 0 ? 1 : 0;
    const FakeRows expected = table.Expected();
    ASSERT_EQ(import.rows(0), expected);
    EXPECT_EQ(report->tables[0].info.row_count, row_count);
  }
  EXPECT_GT(spilled_tables, 10U);
}

class ImportTest : public testing::Test {
 protected:
  absl::StatusOr<ImportReport> Import(const ImportRequest& request) {
    const auto plan = PlanImport(request);
    if (!plan.ok()) return plan.status();
    import_ = std::make_unique<FakeBulkImport>(plan->specs());
    return RunImport(*plan, *import_, {.spill_directory = directory_.Path()}, nullptr);
  }

  const TestDirectory directory_;
  std::unique_ptr<FakeBulkImport> import_;
};

TEST_F(ImportTest, NanAndInfinityAreImportedCountedAndWarnedAbout) {
  const std::string rows = BytesOf<float>({1, std::nanf(""), INFINITY, 4, 5, -INFINITY});
  directory_.Write("t/key", BytesOf<Key>({3, 1, 2}));
  directory_.Write("t/emb_vector", rows);
  const auto report = Import({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tables[0].non_finite_count, 3U);
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_EQ(report->warnings[0], "table 'm/t': 3 elements are NaN or infinite");
  EXPECT_EQ(import_->rows(0).at(3), rows.substr(0, 8));
  EXPECT_EQ(report->tables[0].bytes_read, 48U);
}

TEST_F(ImportTest, WhatOverflowsFloat16IsWarnedAbout) {
  directory_.Write("t/key", BytesOf<Key>({1}));
  directory_.Write("t/emb_vector", BytesOf<float>({1e6, -1e6, 1}));
  const auto report =
      Import({.name = "m/t", .from = directory_.Path("t"), .dtype = Dtype::kFloat16});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_EQ(report->warnings[0],
            "table 'm/t': 2 elements are too large for float16 and became infinite");
  EXPECT_EQ(report->tables[0].non_finite_count, 0U);
}

TEST_F(ImportTest, TheTablesOfAModelAreCommittedTogetherOrNotAtAll) {
  directory_.Write("model/a/key", BytesOf<Key>({2, 1}));
  directory_.Write("model/a/emb_vector", BytesOf<float>({2, 1}));
  directory_.Write("model/b/key", BytesOf<Key>({7, 5, 7}));
  directory_.Write("model/b/emb_vector", BytesOf<float>({7, 5, 7}));
  const ImportRequest request = {.name = "m", .from = directory_.Path("model")};
  EXPECT_EQ(Import(request).status(),
            absl::InvalidArgumentError(directory_.Path("model/b/key") +
                                       ": key 7 occurs twice, at rows 0 and 2 (counted from 0)"));
  EXPECT_FALSE(import_->committed());
  directory_.Write("model/b/key", BytesOf<Key>({7, 5, 6}));
  const auto report = Import(request);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->tables.size(), 2U);
  EXPECT_EQ(report->tables[1].info.spec.name, "m/b");
  EXPECT_EQ(import_->rows(0), (FakeRows{{1, BytesOf<float>({1})}, {2, BytesOf<float>({2})}}));
  EXPECT_EQ(import_->rows(1).size(), 3U);
}

TEST_F(ImportTest, AFileTruncatedBetweenPlanAndReadIsDataLoss) {
  directory_.Write("t/key", BytesOf<Key>({2, 1}));
  directory_.Write("t/emb_vector", BytesOf<float>({2, 1}));
  const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(plan.ok());
  std::filesystem::resize_file(directory_.Path("t/emb_vector"), 7);
  FakeBulkImport import(plan->specs());
  const auto report = RunImport(*plan, import, {.spill_directory = directory_.Path()}, nullptr);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(import.committed());
}

TEST_F(ImportTest, TooLittleMemoryIsRefused) {
  directory_.Write("t/key", BytesOf<Key>({2, 1}));
  directory_.Write("t/emb_vector", BytesOf<float>({2, 1}));
  const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(plan.ok());
  FakeBulkImport import(plan->specs());
  const auto report = RunImport(
      *plan, import, {.spill_directory = directory_.Path(), .memory_bytes_max = 1000}, nullptr);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ImportTest, AMissingSpillDirectoryIsAnErrorOnlyWhenItIsNeeded) {
  std::vector<Key> keys(20'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(keys.size() - i);
  directory_.Write("t/key", BytesOf(keys));
  directory_.Write("t/emb_vector", std::string(keys.size() * 64, '\0'));
  const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(plan.ok());
  ImportOptions options = {.spill_directory = directory_.Path("missing")};
  FakeBulkImport fits(plan->specs());
  EXPECT_TRUE(RunImport(*plan, fits, options, nullptr).ok());
  options.memory_bytes_max = 512 << 10;
  FakeBulkImport import(plan->specs());
  EXPECT_EQ(RunImport(*plan, import, options, nullptr).status().code(),
            absl::StatusCode::kNotFound);
}

// Sparse files: tebibytes of rows that take no space.
TEST_F(ImportTest, RowsThatNoDiskHoldsAreRefusedBeforeAnyAreRead) {
  constexpr uint64_t kRows = uint64_t{1} << 36;
  directory_.Write("t/key", BytesOf<Key>({2, 1}));
  directory_.Write("t/emb_vector", "");
  std::error_code error;
  std::filesystem::resize_file(directory_.Path("t/key"), kRows * sizeof(Key), error);
  std::filesystem::resize_file(directory_.Path("t/emb_vector"), kRows * 64, error);
  if (error) GTEST_SKIP() << "the file system has no files of 4 TiB: " << error.message();
  const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  FakeBulkImport import(plan->specs());
  const auto report = RunImport(*plan, import, {.spill_directory = directory_.Path()}, nullptr);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kResourceExhausted) << report.status();
  EXPECT_FALSE(import.committed());
}

// Catches: a plan that keeps the files of all its tables open.
TEST_F(ImportTest, APlanKeepsNoFileOpen) {
  for (int i = 0; i < 30; ++i) {
    const std::string table = "m/t" + std::to_string(i);
    directory_.Write(table + "/key", BytesOf<Key>({2, 1}));
    directory_.Write(table + "/emb_vector", BytesOf<float>({2, 1}));
  }
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = open_files();
  const auto plan = PlanImport({.name = "m", .from = directory_.Path("m")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->tables.size(), 30U);
  EXPECT_EQ(open_files(), before);
  FakeBulkImport import(plan->specs());
  EXPECT_TRUE(RunImport(*plan, import, {.spill_directory = directory_.Path()}, nullptr).ok());
  EXPECT_EQ(import.rows(29).size(), 2U);
}

TEST_F(ImportTest, ATableThatChangedSinceThePlanIsRefused) {
  directory_.Write("t/key", BytesOf<Key>({2, 1}));
  directory_.Write("t/emb_vector", BytesOf<float>({2, 1}));
  const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  directory_.Write("t/emb_vector", BytesOf<float>({2, 1, 4, 3}));
  FakeBulkImport import(plan->specs());
  const auto report = RunImport(*plan, import, {.spill_directory = directory_.Path()}, nullptr);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss) << report.status();
  EXPECT_FALSE(import.committed());
}

TEST_F(ImportTest, TheUpdateStreamBeginsWhereTheImportBeganUnlessSaid) {
  const auto start_of = [&](const std::optional<UpdateStart>& wanted) {
    directory_.Write("t/key", BytesOf<Key>({2, 1}));
    directory_.Write("t/emb_vector", BytesOf<float>({2, 1}));
    const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
    EXPECT_TRUE(plan.ok()) << plan.status();
    FakeBulkImport import(plan->specs());
    const ImportOptions options = {.spill_directory = directory_.Path(), .update_start = wanted};
    EXPECT_TRUE(RunImport(*plan, import, options, nullptr).ok());
    return import.update_start();
  };
  // The end has the time of the import, too: changes of before are not replayed.
  const UpdateStart end = start_of(UpdateStart{.kind = UpdateStart::Kind::kEnd});
  EXPECT_EQ(end.kind, UpdateStart::Kind::kEnd);
  EXPECT_GT(end.time_ms, int64_t{1'700'000'000'000});
  const UpdateStart now = start_of(std::nullopt);
  EXPECT_EQ(now.kind, UpdateStart::Kind::kTime);
  EXPECT_GT(now.time_ms, int64_t{1'700'000'000'000});
}

TEST_F(ImportTest, AnImportIdNeedsAStartThatAllNodesCanHave) {
  directory_.Write("t/key", BytesOf<Key>({2, 1}));
  directory_.Write("t/emb_vector", BytesOf<float>({2, 1}));
  const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto id_from = [&](const std::optional<UpdateStart>& start) -> absl::StatusOr<std::string> {
    FakeBulkImport import(plan->specs());
    const ImportOptions options = {
        .spill_directory = directory_.Path(), .update_start = start, .import_id = "v1"};
    HPS_RETURN_IF_ERROR(RunImport(*plan, import, options, nullptr).status());
    return import.import_id();
  };
  EXPECT_EQ(id_from(UpdateStart{}).value_or("none"), "v1");
  EXPECT_EQ(id_from(UpdateStart{.kind = UpdateStart::Kind::kTime, .time_ms = 5}).value_or("none"),
            "v1");
  EXPECT_TRUE(absl::IsInvalidArgument(id_from(std::nullopt).status()));
  const auto end = id_from(UpdateStart{.kind = UpdateStart::Kind::kEnd});
  EXPECT_TRUE(absl::IsInvalidArgument(end.status()));
  EXPECT_NE(end.status().message().find("--stream-from earliest or TIME"), std::string::npos);
}

TEST_F(ImportTest, ProgressEndsWithTheCommit) {
  directory_.Write("t/key", BytesOf<Key>({2, 1}));
  directory_.Write("t/emb_vector", BytesOf<float>({2, 1}));
  const auto plan = PlanImport({.name = "m/t", .from = directory_.Path("t")});
  ASSERT_TRUE(plan.ok());
  FakeBulkImport import(plan->specs());
  Progress last;
  ASSERT_TRUE(RunImport(*plan, import,
                        {.spill_directory = directory_.Path(),
                         .progress = [&](const Progress& progress) { last = progress; }},
                        nullptr)
                  .ok());
  EXPECT_EQ(last.step, "committing");
  EXPECT_EQ(last.done, last.total);
}

}  // namespace
}  // namespace hps
