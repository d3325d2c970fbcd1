#include "import/formats/foreign_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "import/import.h"
#include "import/import_plan.h"
#include "import/test_import_store.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

std::string KeyBytes(uint64_t key, size_t size = 8) {
  std::string bytes(8, '\0');
  StoreLittleEndian(bytes.data(), key);
  return bytes.substr(0, size);
}
std::string RowBytes(float a, float b) {
  std::string bytes(8, '\0');
  StoreLittleEndian(bytes.data(), a);
  StoreLittleEndian(bytes.data() + 4, b);
  return bytes;
}

// Two parts; what they pass is the test's. The tests in src/l2_redis cover the real cache.
class ScriptedCache final : public ForeignCache {
 public:
  using Part = std::function<absl::Status(uint32_t, ForeignRecordSink&)>;
  explicit ScriptedCache(Part part, uint32_t part_count = 2)
      : part_(std::move(part)), part_count_(part_count) {}

  const std::vector<std::string>& tables() const override { return tables_; }
  absl::StatusOr<uint32_t> PartCount(const std::string& table) override {
    if (table != "m/t" && table != "m/u") return absl::NotFoundError("no such table");
    return part_count_;
  }
  absl::Status ReadPart(const std::string&, uint32_t part, ForeignRecordSink& sink) override {
    sink.Begin();
    return part_(part, sink);
  }

 private:
  const std::vector<std::string> tables_ = {"m/t", "m/u"};
  const Part part_;
  const uint32_t part_count_;
};

class ForeignCopyTest : public testing::Test {
 protected:
  std::unique_ptr<ForeignStore> Copy(ScriptedCache::Part part, uint32_t part_count = 2) {
    auto store = CopyForeignCache(
        std::make_unique<ScriptedCache>(std::move(part), part_count),
        {.what = "cache", .directory = directory_.Path("not/there/yet"), .progress = {}});
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  // "key:first element" of each row.
  static std::string Text(const ForeignTable& table) {
    std::vector<Key> keys(table.row_count());
    std::vector<std::byte> rows(table.row_count() * table.row_bytes());
    EXPECT_TRUE(table.Read(0, keys, rows).ok());
    std::string text;
    for (size_t i = 0; i < keys.size(); ++i) {
      absl::StrAppend(&text, keys[i], ":", LoadLittleEndian<float>(&rows[i * table.row_bytes()]),
                      " ");
    }
    return text;
  }

  const TestDirectory directory_;
};

TEST_F(ForeignCopyTest, ATableIsCopiedOnceAndLeavesNoFile) {
  size_t reads = 0;
  const auto store = Copy([&](uint32_t part, ForeignRecordSink& sink) -> absl::Status {
    ++reads;
    for (uint64_t i = 0; i < 3; ++i)
      HPS_RETURN_IF_ERROR(sink.Add(KeyBytes(10 * part + i), RowBytes(static_cast<float>(i), 0)));
    return absl::OkStatus();
  });
  for (int i = 0; i < 2; ++i) {
    const auto table = store->OpenTable("m/t");
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ((*table)->row_count(), 6u);
    EXPECT_EQ((*table)->key_bytes(), 8u);
    EXPECT_EQ((*table)->row_bytes(), 8u);
    EXPECT_EQ(Text(**table), "0:0 1:1 2:2 10:0 11:1 12:2 ");
    std::vector<Key> keys(2);
    ASSERT_TRUE((*table)->Read(3, keys, {}).ok());
    EXPECT_EQ(keys, (std::vector<Key>{10, 11}));
  }
  EXPECT_EQ(reads, 2u);
  const auto other = store->OpenTable("m/u");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Text(**other), "0:0 1:1 2:2 10:0 11:1 12:2 ");
  EXPECT_EQ(store->OpenTable("m/x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(directory_.List().empty());
}

// More than the buffers hold was written before the part began again.
TEST_F(ForeignCopyTest, APartThatBeginsAgainCountsOnce) {
  const auto store = Copy([](uint32_t part, ForeignRecordSink& sink) -> absl::Status {
    if (part == 1) {
      for (uint64_t i = 0; i < 20'000; ++i)
        HPS_RETURN_IF_ERROR(sink.Add(KeyBytes(i), RowBytes(-1, -1)));
      sink.Begin();
    }
    return sink.Add(KeyBytes(part), RowBytes(static_cast<float>(part), 0));
  });
  const auto table = store->OpenTable("m/t");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(Text(**table), "0:0 1:1 ");
}

TEST_F(ForeignCopyTest, KeysOf4BytesAreUnsigned) {
  const auto store = Copy([](uint32_t part, ForeignRecordSink& sink) {
    return sink.Add(KeyBytes(0xffffffff - part, 4), RowBytes(0, 0));
  });
  const auto table = store->OpenTable("m/t");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->key_bytes(), 4u);
  EXPECT_EQ(Text(**table), "4294967295:0 4294967294:0 ");
}

TEST_F(ForeignCopyTest, RefusesRecordsOfOtherSizes) {
  const auto error = [&](std::string key, std::string row) {
    const auto store = Copy([&](uint32_t part, ForeignRecordSink& sink) -> absl::Status {
      if (part == 1) return sink.Add(key, row);
      return sink.Add(KeyBytes(1), RowBytes(0, 0));
    });
    return store->OpenTable("m/t").status();
  };
  for (const absl::Status& status :
       {error(KeyBytes(2), "four"), error(KeyBytes(2, 4), RowBytes(0, 0)), error("", "")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cache, table 'm/t': expected keys of 8 and rows of 8 bytes"));
  }
  const auto odd =
      Copy([](uint32_t, ForeignRecordSink& sink) { return sink.Add(KeyBytes(1), "seven b"); });
  EXPECT_THAT(std::string(odd->OpenTable("m/t").status().message()),
              HasSubstr("float32, found 7 bytes"));
}

TEST_F(ForeignCopyTest, AnEmptyPartOfAManyRowsTableIsAnError) {
  const auto cache = [](uint64_t rows) {
    return [rows](uint32_t part, ForeignRecordSink& sink) -> absl::Status {
      for (uint64_t i = 0; part != 2 && i < rows; ++i)
        HPS_RETURN_IF_ERROR(sink.Add(KeyBytes(1000 * part + i), RowBytes(0, 0)));
      return absl::OkStatus();
    };
  };
  const absl::Status lost = Copy(cache(100), 4)->OpenTable("m/t").status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr("partition 2 of 4 has no rows, but the others have 300"));
  EXPECT_TRUE(Copy(cache(80), 4)->OpenTable("m/t").ok()) << "a hash may leave it empty";
  EXPECT_EQ((*Copy(cache(0), 4)->OpenTable("m/t"))->row_count(), 0u);
}

// What the cache repeats, an import takes once: the row that it read last.
TEST_F(ForeignCopyTest, AnImportTakesTheLastRowOfAKeyThatRepeats) {
  for (const bool is_ascending : {true, false}) {
    const auto open = [&](const ImportRequest&) -> absl::StatusOr<std::unique_ptr<ForeignStore>> {
      return Copy([&](uint32_t part, ForeignRecordSink& sink) -> absl::Status {
        const uint64_t first = is_ascending ? 100 * part : 100 - 100 * part;
        for (const auto& [key, value] :
             std::vector<std::pair<uint64_t, float>>{{1, 1}, {2, 2}, {2, 3}, {2, 4}, {7, 5}})
          HPS_RETURN_IF_ERROR(sink.Add(KeyBytes(first + key), RowBytes(value, value)));
        return absl::OkStatus();
      });
    };
    const auto plan = PlanImport({.name = "m/t", .from = "redis://127.0.0.1:1"}, open);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->tables[0].shape.row_count, 10u);
    FakeBulkImport import(plan->specs());
    const ImportOptions options = {.spill_directory = directory_.Path()};
    const auto report = RunImport(*plan, import, options, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    const FakeRows rows = import.rows(0);
    EXPECT_EQ(rows.size(), 6u);
    EXPECT_EQ(rows.at(2), RowBytes(4, 4));
    EXPECT_EQ(rows.at(102), RowBytes(4, 4));
  }
}

}  // namespace
}  // namespace hps
