// The contract suite of DurableStore: tests that every implementation runs.
//
//   class Harness : public DurableHarness { ... };
//   INSTANTIATE_TEST_SUITE_P(Rocks, DurableContractTest, testing::Values(&MakeHarness));
//
// Included by one source file of a test program. Rows are stamped (testing/fakes/stamped_row.h), so
// that every read detects a foreign, torn or old row.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/limits.h"
#include "testing/fakes/stamped_row.h"
#include "testing/fakes/stamped_rows.h"
#include "tier/durable_tier.h"

namespace hps {

// A place for stores; initially empty.
class DurableHarness {
 public:
  virtual ~DurableHarness() = default;
  // Opens the store for writing, and creates it if there is none. One at a time.
  virtual absl::StatusOr<std::unique_ptr<DurableStore>> Open() = 0;
  // Opens a reader besides the writer.
  virtual absl::StatusOr<std::unique_ptr<DurableStore>> OpenReadOnly() = 0;
};
using DurableHarnessFactory = std::unique_ptr<DurableHarness> (*)();

class DurableContractTest : public testing::TestWithParam<DurableHarnessFactory> {
 protected:
  static constexpr uint64_t kStamp = 7;

  void SetUp() override {
    harness_ = GetParam()();
    Reopen();
  }
  void Reopen() {
    store_.reset();
    auto store = harness_->Open();
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  static TableSpec Spec(const std::string& name, uint32_t dim = 8) {
    TableSpec spec;
    spec.name = name;
    spec.dim = dim;
    return spec;
  }
  absl::StatusOr<BulkImport::Result> Import(const TableSpec& spec, std::vector<Key> keys,
                                            uint64_t stamp = kStamp) {
    HPS_ASSIGN_OR_RETURN(auto import, store_->BeginImport({&spec, 1}));
    StampedRows rows(stamp, spec.row_bytes(), std::move(keys));
    HPS_RETURN_IF_ERROR(import->Add(0, 0, rows.keys(), rows.rows()));
    return import->Commit();
  }
  std::unique_ptr<DurableTable> Table(const std::string& name) {
    auto table = store_->OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *std::move(table) : nullptr;
  }
  static std::vector<Key> Range(Key begin, Key end) {
    std::vector<Key> keys(static_cast<size_t>(end - begin));
    std::iota(keys.begin(), keys.end(), begin);
    return keys;
  }
  static void ExpectHit(const FetchedRows& fetched, size_t i, Version version,
                        uint64_t stamp = kStamp) {
    ASSERT_EQ(fetched.outcomes[i], FetchOutcome::kHit) << "key " << fetched.keys[i];
    EXPECT_TRUE(StampedRow::Matches(stamp, fetched.keys[i], version, fetched.row(i)))
        << "key " << fetched.keys[i];
    EXPECT_EQ(fetched.versions[i], version);
    EXPECT_TRUE(fetched.gap_untouched(i));
  }
  static void ExpectAbsent(const FetchedRows& fetched, size_t i) {
    EXPECT_EQ(fetched.outcomes[i], FetchOutcome::kAbsent) << "key " << fetched.keys[i];
    EXPECT_TRUE(fetched.untouched(i));
  }
  static std::vector<Key> ScanKeys(DurableTable& table, size_t step) {
    std::vector<Key> all;
    auto cursor = table.Scan();
    EXPECT_TRUE(cursor.ok()) << cursor.status();
    std::vector<Key> keys(step);
    std::vector<Version> versions(step);
    const size_t row_bytes = table.spec().row_bytes();
    std::vector<std::byte> bytes(step * row_bytes);
    for (;;) {
      const auto count =
          (*cursor)->Next(keys, {bytes.data(), step, row_bytes, row_bytes}, versions);
      EXPECT_TRUE(count.ok()) << count.status();
      if (!count.ok() || *count == 0) return all;
      for (size_t i = 0; i < *count; ++i) {
        EXPECT_TRUE(StampedRow::Matches(kStamp, keys[i], versions[i],
                                        {bytes.data() + i * row_bytes, row_bytes}));
        all.push_back(keys[i]);
      }
    }
  }

  std::unique_ptr<DurableHarness> harness_;
  std::unique_ptr<DurableStore> store_;
};

TEST_P(DurableContractTest, EveryImportedRowIsFetchedAtEverySize) {
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{33}, kFetchPieceKeysMax - 1,
        kFetchPieceKeysMax, kFetchPieceKeysMax + 1, kFetchTaskKeysMax + 1}) {
    ASSERT_TRUE(Import(Spec("m/t"), Range(0, static_cast<Key>(size))).ok());
    const auto table = Table("m/t");
    EXPECT_EQ(table->Info().row_count, size);
    const FetchedRows fetched(*table, Range(-1, static_cast<Key>(size) + 1));
    ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
    EXPECT_EQ(fetched.counts->hits, size);
    EXPECT_EQ(fetched.counts->absent, 2u);
    ExpectAbsent(fetched, 0);
    for (size_t i = 0; i < size; ++i) ExpectHit(fetched, i + 1, 0);
    ExpectAbsent(fetched, size + 1);
  }
}

TEST_P(DurableContractTest, EveryKeyIsLegalAndOrderedAsSigned) {
  const Key min = std::numeric_limits<Key>::min();
  const Key max = std::numeric_limits<Key>::max();
  const std::vector<Key> keys = {min, min + 1, -2, -1, 0, 1, 255, 256, max - 1, max};
  ASSERT_TRUE(Import(Spec("m/t"), keys).ok());
  const auto table = Table("m/t");
  const FetchedRows fetched(*table, keys);
  for (size_t i = 0; i < keys.size(); ++i) ExpectHit(fetched, i, 0);
  EXPECT_EQ(ScanKeys(*table, 3), keys);
}

TEST_P(DurableContractTest, AnyOrderAndDuplicatesOfKeysAreRight) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10'000)).ok());
  const auto table = Table("m/t");
  std::vector<Key> keys;
  for (Key i = 0; i < 9'000; ++i) keys.push_back((i * 7919) % 12'000);
  keys.push_back(5);
  keys.push_back(5);
  const FetchedRows fetched(*table, keys);
  ASSERT_TRUE(fetched.counts.ok()) << fetched.counts.status();
  EXPECT_EQ(fetched.counts->hits + fetched.counts->absent, keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] < 10'000) {
      ExpectHit(fetched, i, 0);
    } else {
      ExpectAbsent(fetched, i);
    }
  }
}

TEST_P(DurableContractTest, RowsOfTheNarrowestAndTheWidestKind) {
  TableSpec narrow = Spec("m/narrow", 1);
  narrow.dtype = Dtype::kFloat16;
  const TableSpec wide = Spec("m/wide", kRowBytesMax / 4);
  for (const TableSpec& spec : {narrow, wide}) {
    ASSERT_TRUE(Import(spec, Range(-40, 40)).ok());
    const auto table = Table(spec.name);
    EXPECT_EQ(table->spec(), spec);
    const FetchedRows fetched(*table, Range(-40, 40));
    for (size_t i = 0; i < 80; ++i) ExpectHit(fetched, i, 0);
  }
}

TEST_P(DurableContractTest, WritesReplaceInsertAndDelete) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 100)).ok());
  const auto table = Table("m/t");
  StampedRows rows(kStamp, 32, {5, 200, -7}, 9);
  const std::vector<Key> deletes = {6, 300};
  ASSERT_TRUE(table->Write({rows.batch(), deletes, {}}).ok());
  const FetchedRows fetched(*table, {-7, 4, 5, 6, 200, 300});
  ExpectHit(fetched, 0, 9);
  ExpectHit(fetched, 1, 0);
  ExpectHit(fetched, 2, 9);
  ExpectAbsent(fetched, 3);
  ExpectHit(fetched, 4, 9);
  ExpectAbsent(fetched, 5);
}

TEST_P(DurableContractTest, WritesAndPositionsOutliveTheStore) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10)).ok());
  {
    const auto table = Table("m/t");
    StampedRows rows(kStamp, 32, {3}, 4);
    const std::vector<StreamPosition> first = {{0, 1, 10}, {300, 2, uint64_t{1} << 47}};
    const std::vector<StreamPosition> second = {{0, 1, 11}};
    ASSERT_TRUE(table->Write({rows.batch(), {}, first}).ok());
    ASSERT_TRUE(table->Write({{}, {}, second}).ok());
  }
  ASSERT_TRUE(store_->Sync().ok());
  Reopen();
  const auto table = Table("m/t");
  const auto positions = table->Positions();
  ASSERT_TRUE(positions.ok()) << positions.status();
  const std::vector<StreamPosition> expected = {{0, 1, 11}, {300, 2, uint64_t{1} << 47}};
  EXPECT_EQ(*positions, expected);
  const FetchedRows fetched(*table, {2, 3});
  ExpectHit(fetched, 0, 0);
  ExpectHit(fetched, 1, 4);
  ASSERT_EQ(table->Info().positions.size(), 2u);
  EXPECT_EQ(table->Info().positions[1].partition, 300u);
}

TEST_P(DurableContractTest, AnImportReplacesTheTableButNotWhatIsPinned) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10), 1).ok());
  const auto old_table = Table("m/t");
  auto cursor = old_table->Scan();
  ASSERT_TRUE(cursor.ok());
  ASSERT_TRUE(Import(Spec("m/t"), Range(5, 15), 2).ok());
  const auto new_table = Table("m/t");
  EXPECT_NE(old_table->incarnation(), new_table->incarnation());
  EXPECT_EQ(new_table->incarnation() >> kIncarnationBits, 0u);

  const FetchedRows old_rows(*old_table, {0, 9, 10});
  ExpectHit(old_rows, 0, 0, 1);
  ExpectHit(old_rows, 1, 0, 1);
  ExpectAbsent(old_rows, 2);
  const FetchedRows new_rows(*new_table, {0, 9, 10});
  ExpectAbsent(new_rows, 0);
  ExpectHit(new_rows, 1, 0, 2);
  ExpectHit(new_rows, 2, 0, 2);

  StampedRows late(1, 32, {0}, 1);
  EXPECT_EQ(old_table->Write({late.batch(), {}, {}}).code(), absl::StatusCode::kFailedPrecondition);
  std::vector<Key> keys(20);
  std::vector<std::byte> bytes(20 * 32);
  const auto count = (*cursor)->Next(keys, {bytes.data(), 20, 32, 32}, {});
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 10u);
}

TEST_P(DurableContractTest, PositionsBelongToTheirIncarnation) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 3)).ok());
  const std::vector<StreamPosition> positions = {{1, 1, 5}};
  ASSERT_TRUE(Table("m/t")->Write({{}, {}, positions}).ok());
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 3)).ok());
  EXPECT_TRUE(Table("m/t")->Positions()->empty());
}

TEST_P(DurableContractTest, KeepsWhereTheUpdateStreamBeginsAndWhatItLost) {
  const TableSpec spec = Spec("m/t");
  const UpdateStart start = {.kind = UpdateStart::Kind::kTime, .time_ms = 1'700'000'000'123};
  {
    const auto import = *store_->BeginImport({&spec, 1});
    import->SetUpdateStart(start);
    ASSERT_TRUE(import->Commit().ok());
  }
  for (const uint64_t lost : {3, 4}) {
    DurableWrite write;
    write.records_lost = lost;
    ASSERT_TRUE(Table("m/t")->Write(write).ok());
  }
  ASSERT_TRUE(store_->Sync().ok());
  for (int i = 0; i < 2; ++i) {
    const auto tables = store_->Tables();
    ASSERT_TRUE(tables.ok()) << tables.status();
    EXPECT_EQ((*tables)[0].update_start, start);
    EXPECT_EQ((*tables)[0].update_records_lost, 7u);
    Reopen();
  }
  ASSERT_TRUE(Import(spec, Range(0, 3)).ok());
  EXPECT_EQ((*store_->Tables())[0].update_start, UpdateStart());
  EXPECT_EQ((*store_->Tables())[0].update_records_lost, 0u);
}

TEST_P(DurableContractTest, KeepsWhichKeysHaveNoOrder) {
  const std::vector<TableSpec> specs = {Spec("m/t"), Spec("m/other")};
  for (const TableSpec& spec : specs) ASSERT_TRUE(Import(spec, Range(0, 3)).ok());
  EXPECT_TRUE(Table("m/t")->UnorderedHashes().empty());
  for (const std::vector<uint16_t>& hashes : {std::vector<uint16_t>{65535, 8}, {7, 8, 0}, {}}) {
    StampedRows rows(kStamp, specs[0].row_bytes(), {1}, 1 + hashes.size());
    DurableWrite write = {.upserts = rows.batch()};
    write.unordered_hashes = hashes;
    ASSERT_TRUE(Table("m/t")->Write(write).ok());
  }
  const std::vector<uint16_t> kept = {0, 7, 8, 65535};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Table("m/t")->UnorderedHashes(), kept);
    EXPECT_TRUE(Table("m/other")->UnorderedHashes().empty());
    Reopen();
  }
  ASSERT_TRUE(store_->Drop("m/other").ok());
  Reopen();
  EXPECT_EQ(Table("m/t")->UnorderedHashes(), kept) << "the drop wrote the table's record";
  ASSERT_TRUE(Import(specs[0], Range(0, 3)).ok());
  EXPECT_TRUE(Table("m/t")->UnorderedHashes().empty()) << "they belong to an incarnation";
  Reopen();
  EXPECT_TRUE(Table("m/t")->UnorderedHashes().empty());
}

TEST_P(DurableContractTest, AnImportIdIsKeptAndRefusedASecondTime) {
  const std::vector<TableSpec> specs = {Spec("m/a"), Spec("m/b")};
  const auto import_as = [&](size_t count, const std::string& id) {
    const auto import = *store_->BeginImport(std::span(specs).first(count));
    HPS_RETURN_IF_ERROR(import->SetImportId(id));
    return import->Commit().status();
  };
  ASSERT_TRUE(import_as(2, "v1").ok());
  ASSERT_TRUE(import_as(1, "v2").ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*store_->Tables())[0].import_id, "v2");
    EXPECT_EQ((*store_->Tables())[1].import_id, "v1");
    EXPECT_EQ(Table("m/a")->Info().import_id, "v2");
    for (const std::string id : {"v1", "v2"}) {
      const absl::Status again = import_as(1, id);
      EXPECT_TRUE(absl::IsFailedPrecondition(again)) << again;
      EXPECT_NE(again.message().find("'m/a' had the import id '" + id), std::string::npos) << again;
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(import_as(2, "v1")));
    Reopen();
  }
  EXPECT_TRUE(absl::IsInvalidArgument(import_as(1, "")));
  EXPECT_TRUE(absl::IsInvalidArgument(import_as(1, "a b")));
  EXPECT_TRUE(absl::IsInvalidArgument(import_as(1, std::string(kImportIdBytesMax + 1, 'a'))));
  ASSERT_TRUE(store_->Drop("m/a").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(import_as(1, "v2"))) << "also after a drop";
  ASSERT_TRUE(Import(specs[0], Range(0, 3)).ok());
  EXPECT_EQ(Table("m/a")->Info().import_id, "");
  EXPECT_EQ((*store_->Tables())[0].import_id, "v1") << "the table of before is unchanged";
}

TEST_P(DurableContractTest, TablesImportedTogetherSwitchTogether) {
  const std::vector<TableSpec> specs = {Spec("m/b"), Spec("m/a", 2), Spec("m/empty")};
  auto import = store_->BeginImport(specs);
  ASSERT_TRUE(import.ok()) << import.status();
  StampedRows b(kStamp, 32, Range(0, 50));
  StampedRows a(kStamp, 8, Range(-5, 5));
  ASSERT_TRUE((*import)->Add(0, 0, b.keys(), b.rows()).ok());
  ASSERT_TRUE((*import)->Add(1, 0, a.keys(), a.rows()).ok());
  EXPECT_TRUE(store_->Tables()->empty());
  const auto result = (*import)->Commit();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->staged);
  const auto tables = store_->Tables();
  ASSERT_EQ(tables->size(), 3u);
  EXPECT_EQ((*tables)[0].spec, specs[0]);
  EXPECT_EQ((*tables)[1].spec, specs[1]);
  EXPECT_EQ((*tables)[1].row_count, 10u);
  EXPECT_EQ((*tables)[2].row_count, 0u);
  EXPECT_EQ(result->tables.size(), 3u);
  EXPECT_TRUE(ScanKeys(*Table("m/empty"), 4).empty());
}

TEST_P(DurableContractTest, PartsAddedOutOfOrderMakeOneTable) {
  const TableSpec spec = Spec("m/t");
  auto import = store_->BeginImport({&spec, 1});
  ASSERT_TRUE(import.ok());
  for (const uint32_t part : {2u, 0u, 1u}) {
    const Key begin = static_cast<Key>(part) * 1000;
    StampedRows rows(kStamp, 32, Range(begin, begin + 1000));
    ASSERT_TRUE((*import)->Add(0, part, rows.keys(), rows.rows()).ok());
    // Commit completes the other parts; a part without rows does not count.
    if (part == 1) continue;
    ASSERT_TRUE((*import)->FinishPart(0, part).ok());
  }
  ASSERT_TRUE((*import)->FinishPart(0, 7).ok());
  ASSERT_TRUE((*import)->Commit().ok());
  EXPECT_EQ(ScanKeys(*Table("m/t"), 777), Range(0, 3000));
}

TEST_P(DurableContractTest, AnImportThatIsNotCommittedLeavesNothing) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10), 1).ok());
  {
    const TableSpec spec = Spec("m/t");
    auto import = store_->BeginImport({&spec, 1});
    StampedRows rows(2, 32, Range(0, 10));
    ASSERT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
  }
  Reopen();
  const auto table = Table("m/t");
  const FetchedRows fetched(*table, {0, 9});
  ExpectHit(fetched, 0, 0, 1);
  ExpectHit(fetched, 1, 0, 1);
}

TEST_P(DurableContractTest, WrongImportsAreRefused) {
  const auto code = [&](std::vector<TableSpec> specs) {
    return store_->BeginImport(specs).status().code();
  };
  EXPECT_EQ(code({Spec("no-slash")}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Spec("m/t", 0)}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Spec("m/t"), Spec("m/t")}), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Import(Spec("m/t", 8), Range(0, 10)).ok());
  EXPECT_EQ(code({Spec("m/t", 9)}), absl::StatusCode::kFailedPrecondition);
  TableSpec other_dtype = Spec("m/t", 8);
  other_dtype.dtype = Dtype::kBfloat16;
  EXPECT_EQ(code({other_dtype}), absl::StatusCode::kFailedPrecondition);

  EXPECT_EQ(Import(Spec("m/u"), {1, 3, 2}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Import(Spec("m/u"), {1, 1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->OpenTable("m/u").status().code(), absl::StatusCode::kNotFound);

  const TableSpec spec = Spec("m/u");
  auto import = store_->BeginImport({&spec, 1});
  StampedRows first(kStamp, 32, {1, 5});
  StampedRows second(kStamp, 32, {5, 6});
  ASSERT_TRUE((*import)->Add(0, 0, first.keys(), first.rows()).ok());
  ASSERT_TRUE((*import)->Add(0, 1, second.keys(), second.rows()).ok());
  EXPECT_EQ((*import)->Commit().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DurableContractTest, AShapeThatChangedBeforeTheCommitIsRefused) {
  const TableSpec spec = Spec("m/t", 8);
  auto import = store_->BeginImport({&spec, 1});
  ASSERT_TRUE(import.ok());
  ASSERT_TRUE(Import(Spec("m/t", 4), Range(0, 10)).ok());
  EXPECT_EQ((*import)->Commit().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Table("m/t")->spec().dim, 4u);
}

TEST_P(DurableContractTest, ADroppedTableIsGoneButNotForItsReaders) {
  ASSERT_TRUE(Import(Spec("m/first"), Range(0, 10)).ok());
  ASSERT_TRUE(Import(Spec("m/second"), Range(0, 10)).ok());
  auto pinned = Table("m/first");
  ASSERT_TRUE(store_->Drop("m/first").ok());
  const absl::Status unknown = store_->OpenTable("m/first").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Drop("m/first").code(), absl::StatusCode::kNotFound);
  const absl::Status misspelt = store_->OpenTable("m/secund").status();
  EXPECT_NE(std::string(misspelt.message()).find("m/second"), std::string::npos) << misspelt;
  const FetchedRows fetched(*pinned, {0, 9});
  ExpectHit(fetched, 0, 0);
  ExpectHit(fetched, 1, 0);
  pinned.reset();
  Reopen();
  EXPECT_EQ(store_->Tables()->size(), 1u);
  ASSERT_TRUE(Import(Spec("m/first", 3), Range(0, 10)).ok());
}

TEST_P(DurableContractTest, ATableOutlivesItsStore) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10)).ok());
  const auto table = Table("m/t");
  store_.reset();
  const FetchedRows fetched(*table, {0, 10});
  ExpectHit(fetched, 0, 0);
  ExpectAbsent(fetched, 1);
}

TEST_P(DurableContractTest, ACursorSeesOneMoment) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10)).ok());
  const auto table = Table("m/t");
  auto cursor = table->Scan();
  ASSERT_TRUE(cursor.ok());
  StampedRows rows(kStamp, 32, {3, 20}, 1);
  const std::vector<Key> deletes = {4};
  ASSERT_TRUE(table->Write({rows.batch(), deletes, {}}).ok());
  std::vector<Key> keys(20);
  std::vector<Version> versions(20);
  std::vector<std::byte> bytes(20 * 32);
  const auto count = (*cursor)->Next(keys, {bytes.data(), 20, 32, 32}, versions);
  ASSERT_EQ(*count, 10u);
  EXPECT_EQ(versions[3], 0u);
  std::vector<Key> now = Range(0, 10);
  now.erase(now.begin() + 4);
  now.push_back(20);
  EXPECT_EQ(ScanKeys(*table, 100), now);
}

TEST_P(DurableContractTest, ADeadlineThatHasPassedLeavesMisses) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 1000)).ok());
  const auto table = Table("m/t");
  const FetchedRows fetched(*table, Range(0, 1000), RealClock().Now());
  EXPECT_EQ(fetched.counts.status().code(), absl::StatusCode::kDeadlineExceeded);
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(fetched.outcomes[i], FetchOutcome::kMiss);
    EXPECT_TRUE(fetched.untouched(i));
  }
  const FetchedRows in_time(*table, Range(0, 1000),
                            DeadlineAfter(RealClock(), std::chrono::hours(1)));
  for (size_t i = 0; i < 1000; ++i) ExpectHit(in_time, i, 0);
}

TEST_P(DurableContractTest, AReaderSeesWhatWasCommittedWhenItRefreshes) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10), 1).ok());
  auto reader = harness_->OpenReadOnly();
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto table = (*reader)->OpenTable("m/t");
  ASSERT_TRUE(table.ok()) << table.status();
  const FetchedRows first(**table, {0, 10});
  ExpectHit(first, 0, 0, 1);
  ExpectAbsent(first, 1);
  EXPECT_FALSE((*reader)->Refresh()->changed);

  StampedRows rows(1, 32, {10}, 3);
  ASSERT_TRUE(Table("m/t")->Write({rows.batch(), {}, {}}).ok());
  const auto rows_changed = (*reader)->Refresh();
  ASSERT_TRUE(rows_changed.ok()) << rows_changed.status();
  EXPECT_TRUE(rows_changed->changed);
  table = (*reader)->OpenTable("m/t");
  const FetchedRows caught_up(**table, {0, 10});
  ExpectHit(caught_up, 1, 3, 1);

  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 20), 2).ok());
  const auto changed = (*reader)->Refresh();
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(changed->changed);
  auto switched = (*reader)->OpenTable("m/t");
  const FetchedRows second(**switched, {0, 19});
  ExpectHit(second, 0, 0, 2);
  ExpectHit(second, 1, 0, 2);
  const FetchedRows pinned(**table, {0, 19});
  ExpectHit(pinned, 0, 0, 1);
  ExpectAbsent(pinned, 1);
}

TEST_P(DurableContractTest, AReaderWritesNothing) {
  ASSERT_TRUE(Import(Spec("m/t"), Range(0, 10)).ok());
  auto reader = harness_->OpenReadOnly();
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto table = (*reader)->OpenTable("m/t");
  StampedRows rows(kStamp, 32, {1}, 1);
  EXPECT_EQ((*table)->Write({rows.batch(), {}, {}}).code(), absl::StatusCode::kFailedPrecondition);
  const TableSpec spec = Spec("m/u");
  EXPECT_EQ((*reader)->BeginImport({&spec, 1}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*reader)->Drop("m/t").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*reader)->Sync().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(DurableContractTest, ASecondWriterIsRefused) {
  EXPECT_EQ(harness_->Open().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace hps
