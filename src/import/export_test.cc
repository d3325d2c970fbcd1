#include "import/export.h"

#include <gtest/gtest.h>

#include <random>

#include "import/formats/test_files.h"
#include "import/import.h"
#include "import/test_import_store.h"

namespace hps {
namespace {

class ExportTest : public testing::Test {
 protected:
  static FakeRows RandomRows(size_t count, size_t row_bytes) {
    std::mt19937_64 random(count);
    FakeRows rows;
    while (rows.size() < count) {
      std::string row(row_bytes, '\0');
      // No NaN, because a conversion would change the bits of a signalling one.
      for (char& c : row) c = static_cast<char>(random() & 0x3f);
      rows.emplace(static_cast<Key>(random()), row);
    }
    return rows;
  }
  absl::StatusOr<ExportReport> Export(const FakeTable& table, const std::string& to,
                                      TableFormat format) const {
    return RunExport(table, {.name = "m/t", .to = directory_.Path(to), .format = format});
  }

  const TestDirectory directory_;
};

TEST_F(ExportTest, ExportImportExportGivesIdenticalBytes) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const TableFormat format : {TableFormat::kHugectr, TableFormat::kNpy}) {
      for (const size_t count : {0, 1, 31, 32, 33, 4095, 4096, 4097}) {
        const TestDirectory directory;
        const TableSpec spec = {.name = "m/t", .dim = 5, .dtype = dtype};
        const FakeTable table(spec, RandomRows(count, spec.row_bytes()));
        const ExportRequest first = {.name = "m/t", .to = directory.Path("a"), .format = format};
        const auto report = RunExport(table, first);
        ASSERT_TRUE(report.ok()) << report.status();
        EXPECT_EQ(report->row_count, count);

        const auto plan =
            PlanImport({.name = "m/t", .from = directory.Path("a"), .dim = 5, .dtype = dtype});
        ASSERT_TRUE(plan.ok()) << plan.status();
        FakeBulkImport import(plan->specs());
        ASSERT_TRUE(RunImport(*plan, import, {.spill_directory = directory.Path()}, nullptr).ok());
        const FakeTable again(plan->specs()[0], import.rows(0));
        ASSERT_TRUE(
            RunExport(again, {.name = "m/t", .to = directory.Path("b"), .format = format}).ok());
        uint64_t bytes = 0;
        for (const auto& file : std::filesystem::directory_iterator(directory.Path("a"))) {
          const std::string name = file.path().filename().string();
          EXPECT_EQ(directory.Read("a/" + name), directory.Read("b/" + name));
          bytes += file.file_size();
        }
        EXPECT_EQ(report->bytes, bytes);
      }
    }
  }
}

TEST_F(ExportTest, ASinkGetsEveryRowInOrder) {
  const TableSpec spec = {.name = "m/t", .dim = 5, .dtype = Dtype::kFloat16};
  const FakeRows rows = RandomRows(4097, spec.row_bytes());
  const FakeTable table(spec, rows);
  FakeRows taken;
  const RowSink sink = [&](std::span<const Key> keys, HostRows view) {
    EXPECT_EQ(view.row_count, keys.size());
    for (size_t i = 0; i < keys.size(); ++i)
      taken.emplace_hint(taken.end(), keys[i], std::string(AsChars(view.row(i)), view.row_bytes));
    return absl::OkStatus();
  };
  const auto report = RunExport(table, {.name = "m/t", .sink = sink});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->row_count, 4097U);
  EXPECT_EQ(report->bytes, 4097 * (sizeof(Key) + spec.row_bytes()));
  EXPECT_EQ(taken, rows);
}

TEST_F(ExportTest, AnErrorOfTheSinkEndsTheExport) {
  const TableSpec spec = {.name = "m/t", .dim = 2};
  const FakeTable table(spec, RandomRows(5000, spec.row_bytes()));
  size_t calls = 0;
  const RowSink sink = [&](std::span<const Key>, HostRows) {
    ++calls;
    return absl::CancelledError("enough");
  };
  EXPECT_EQ(RunExport(table, {.name = "m/t", .sink = sink}).status(),
            absl::CancelledError("enough"));
  EXPECT_EQ(calls, 1U);
}

TEST_F(ExportTest, RefusesADirectoryThatHoldsATable) {
  const TableSpec spec = {.name = "m/t", .dim = 2};
  const FakeTable table(spec, RandomRows(10, 8));
  ASSERT_TRUE(Export(table, "out", TableFormat::kNpy).ok());
  const std::string before = directory_.Read("out/rows.npy");
  EXPECT_EQ(Export(table, "out", TableFormat::kNpy).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Export(table, "out", TableFormat::kHugectr).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(directory_.Read("out/rows.npy"), before);
  EXPECT_EQ(Export(table, "new", TableFormat::kSafetensors).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ExportTest, ADamagedRowLeavesNothingBehind) {
  const TableSpec spec = {.name = "m/t", .dim = 2};
  FakeTable table(spec, RandomRows(10'000, 8));
  table.FailAfter(9000);
  EXPECT_EQ(Export(table, "out", TableFormat::kHugectr).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(directory_.List().empty());
}

}  // namespace
}  // namespace hps
