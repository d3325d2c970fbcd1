#include "l2_memory/memory_table.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>

#include "l2_memory/index_line.h"
#include "l2_memory/memory_tier.h"
#include "testing/contracts/lossy_rows.h"
#include "testing/fakes/stamped_row.h"
#include "tier/direct_rows.h"

namespace {

// Counts this thread's allocations; the operators below replace those of the program.
thread_local size_t allocation_count = 0;
// The number of the allocation that fails.
thread_local size_t allocation_to_fail = 0;

}  // namespace

// Not inlined: otherwise the compiler sees malloc memory passed to delete.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (++allocation_count == allocation_to_fail) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hps {
namespace {

constexpr uint64_t kTable = 7;

std::vector<Key> Range(Key first, size_t count) {
  std::vector<Key> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = first + static_cast<Key>(i);
  return keys;
}

std::unique_ptr<LossyTable> Open(const MemoryTierOptions& options, size_t row_bytes,
                                 uint64_t bytes_max) {
  auto table = MakeMemoryTier(options)->OpenTable(ContractSpec(row_bytes), 1, bytes_max);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

InsertCounts Insert(LossyTable& table, const std::vector<Key>& keys, size_t row_bytes,
                    Admission admission = Admission::kAlways) {
  ContractRows rows(kTable, keys, row_bytes, 1);
  RowBatch batch = rows.batch();
  batch.admission = admission;
  const auto counts = table.Insert(batch, 0);
  EXPECT_TRUE(counts.ok());
  return counts.value_or(InsertCounts());
}

size_t HeldOf(LossyTable& table, const std::vector<Key>& keys, size_t row_bytes) {
  return ContractFetch(table, keys, row_bytes).CountOf(FetchOutcome::kHit);
}

// The fetch functions that this machine can run.
std::vector<FetchFunction> FetchFunctions() {
  std::vector<FetchFunction> functions = {FetchPortable};
  for (const FetchFunction fetch : {FetchAvx2(), FetchAvx512()}) {
    if (fetch != nullptr) functions.push_back(fetch);
  }
  return functions;
}

std::unique_ptr<LossyTable> OpenWith(FetchFunction fetch, size_t row_bytes, uint64_t bytes_max) {
  const auto layout = LayoutForBytes(row_bytes, bytes_max, {});
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *MemoryTable::Create(*layout, bytes_max,
                              {.pages = MakeSystemPageAllocator(false), .fetch = fetch});
}

// Widths that no table has, to test the copies' last bytes.
TEST(MemoryTableTest, CopiesRowsOfOddWidths) {
  for (const FetchFunction fetch : FetchFunctions()) {
    for (const size_t row_bytes :
         {1, 3, 4, 8, 15, 16, 63, 64, 65, 127, 128, 129, 512, 1000, 16384}) {
      const auto table = OpenWith(fetch, row_bytes, 16 << 20);
      const std::vector<Key> keys = Range(-40, 130);
      Insert(*table, keys, row_bytes);
      const ContractFetch answer(*table, keys, row_bytes);
      for (size_t i = 0; i < keys.size(); ++i) ASSERT_TRUE(answer.IsRowOf(i, kTable, 1));
    }
  }
}

// Large batches to aligned rows are stored past the caches, small and unaligned ones through them.
TEST(MemoryTableTest, StoresLargeBatchesRightWhateverTheAlignment) {
  constexpr size_t kRowBytes = 128;
  constexpr size_t kRows = 10'000;
  const std::vector<Key> keys = Range(0, kRows);
  const auto block = *MakeSystemPageAllocator(false)->Allocate(kRows * 256 + 64);
  std::vector<FetchOutcome> outcomes(kRows);
  for (const FetchFunction fetch : FetchFunctions()) {
    const auto table = OpenWith(fetch, kRowBytes, 8 << 20);
    ASSERT_EQ(Insert(*table, keys, kRowBytes).inserted, kRows);
    for (const size_t offset : {0, 4, 16, 64}) {
      for (const size_t stride : {128, 132, 192}) {
        std::byte* const out = block->bytes().data() + offset;
        const auto counts = table->Fetch(
            {.keys = keys, .rows = {out, kRows, kRowBytes, stride}, .outcomes = outcomes},
            kNoDeadline);
        ASSERT_TRUE(counts.ok());
        ASSERT_EQ(counts->hits, kRows);
        for (size_t i = 0; i < kRows; ++i)
          ASSERT_TRUE(StampedRow::Matches(kTable, keys[i], 1, {out + i * stride, kRowBytes}));
      }
    }
  }
}

TEST(MemoryTableTest, FetchAllocatesNothingOnceWarm) {
  const auto table = Open({}, 64, 8 << 20);
  const std::vector<Key> keys = Range(0, 5000);
  Insert(*table, Range(0, 4000), 64);
  std::vector<std::byte> rows(keys.size() * 64);
  std::vector<FetchOutcome> outcomes(keys.size());
  std::vector<Version> versions(keys.size());
  const FetchBatch batch = {.keys = keys,
                            .rows = {rows.data(), keys.size(), 64, 64},
                            .outcomes = outcomes,
                            .versions = versions};
  ASSERT_TRUE(table->Fetch(batch, kNoDeadline).ok());
  const size_t before = allocation_count;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(table->Fetch(batch, kNoDeadline).ok());
  EXPECT_EQ(allocation_count, before);
  EXPECT_GT(before, 0u);  // checks that the counter works
}

// Compares the memory that the system reports for a table with the table's own number.
TEST(MemoryTableTest, NeverOccupiesMoreThanItsBudget) {
  class Watched final : public PageAllocator {
   public:
    absl::StatusOr<std::unique_ptr<PageBlock>> Allocate(size_t bytes) override {
      auto block = pages_->Allocate(bytes);
      if (block.ok()) bytes_ = (*block)->bytes();
      return block;
    }
    size_t page_bytes() const override { return pages_->page_bytes(); }
    size_t touched_bytes() const override { return pages_->touched_bytes(); }
    size_t resident() const {
      const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      std::vector<unsigned char> pages(bytes_.size() / page);
      EXPECT_EQ(mincore(bytes_.data(), bytes_.size(), pages.data()), 0);
      size_t count = 0;
      for (const unsigned char state : pages) count += state & 1;
      return count * page;
    }

   private:
    const std::unique_ptr<PageAllocator> pages_ = MakeSystemPageAllocator(true);
    std::span<std::byte> bytes_;
  };
  for (const size_t row_bytes : {4, 64, 1024, 16384}) {
    for (const uint64_t bytes_max : {uint64_t{2} << 20, uint64_t{12'345'678}}) {
      auto watched = std::make_unique<Watched>();
      const Watched& pages = *watched;
      auto tier = MakeMemoryTier({}, std::move(watched));
      const auto table = *tier->OpenTable(ContractSpec(row_bytes), 1, bytes_max);
      const size_t batch = 512;
      const size_t rows = 3 * bytes_max / (row_bytes + 32);
      uint64_t used = 0;
      for (size_t i = 0; i < rows; i += batch) {
        Insert(*table, Range(static_cast<Key>(i), batch), row_bytes);
        ContractRows newer(kTable, Range(static_cast<Key>(i), batch), row_bytes, 2);
        ASSERT_TRUE(table->Update(newer.batch()).ok());
        if (i / batch % 32 != 0) continue;
        const LevelStatistics statistics = table->Statistics();
        ASSERT_LE(statistics.bytes_used, bytes_max);
        ASSERT_GE(statistics.bytes_used, used);
        ASSERT_LE(pages.resident(), statistics.bytes_used);
        used = statistics.bytes_used;
      }
      EXPECT_GT(table->Statistics().evictions, 0u);
      // The budget must also be used: at 16 KiB per row, watermarks and epochs are small.
      EXPECT_GT(table->Statistics().entries * (row_bytes + 32), bytes_max * 7 / 10);
    }
  }
}

TEST(MemoryTableTest, UntouchedPagesAreNotCounted) {
  const auto table = Open({.huge_pages = false}, 1024, uint64_t{64} << 20);
  Insert(*table, Range(0, 1000), 1024);
  EXPECT_LT(table->Statistics().bytes_used, uint64_t{5} << 20);
}

TEST(MemoryTableTest, HoldsWhatItsBudgetWasMadeFor) {
  for (const size_t rows : {100, 5'000, 200'000}) {
    const auto table = Open({}, 64, MemoryTierBytesFor(rows, 64, {}));
    EXPECT_EQ(Insert(*table, Range(-5, rows), 64).inserted, rows);
    const LevelStatistics statistics = table->Statistics();
    EXPECT_EQ(statistics.entries, rows);
    EXPECT_EQ(statistics.evictions, 0u);
    if (rows == 200'000) {
      // The sketch takes four bytes for each row, and its first page is counted with the rings.
      EXPECT_LE(static_cast<double>(statistics.bytes_used), (1.10 * 64 + 36) * 200'000);
    }
  }
}

// Tests the policies by the rows that remain of two kinds of keys when a third kind is inserted.
struct Kept {
  double used = 0;
  double unused = 0;
};

Kept FillUseAndOverflow(EvictionPolicy eviction) {
  constexpr size_t kRows = 20'000;
  const MemoryTierOptions options{.eviction = eviction};
  const auto table = Open(options, 64, MemoryTierBytesFor(kRows, 64, options));
  const std::vector<Key> used = Range(0, kRows / 2);
  const std::vector<Key> unused = Range(kRows / 2, kRows / 2);
  // The used keys are inserted first: by age alone they would be evicted first.
  Insert(*table, used, 64);
  Insert(*table, unused, 64);
  for (int i = 0; i < 20; ++i) HeldOf(*table, used, 64);
  for (size_t i = 0; i < kRows / 4; i += 100) {
    Insert(*table, Range(static_cast<Key>(1'000'000 + i), 100), 64);
    HeldOf(*table, used, 64);
  }
  EXPECT_GT(table->Statistics().evictions, kRows / 5);
  constexpr double kHalf = 0.5 * kRows;
  return {static_cast<double>(HeldOf(*table, used, 64)) / kHalf,
          static_cast<double>(HeldOf(*table, unused, 64)) / kHalf};
}

TEST(MemoryTableTest, EvictsTheOldestUses) {
  const Kept kept = FillUseAndOverflow(EvictionPolicy::kOldest);
  EXPECT_GT(kept.used, 0.97);
  EXPECT_LT(kept.unused, 0.7);
}

TEST(MemoryTableTest, EvictsTheLeastUsed) {
  const Kept kept = FillUseAndOverflow(EvictionPolicy::kLeastUsed);
  EXPECT_GT(kept.used, 0.97);
  EXPECT_LT(kept.unused, 0.8);
}

TEST(MemoryTableTest, EvictsAtRandom) {
  const Kept kept = FillUseAndOverflow(EvictionPolicy::kRandom);
  EXPECT_NEAR(kept.used, kept.unused, 0.05);
  EXPECT_LT(kept.used, 0.95);
}

// Catches: one pass over cold keys that pushes the rows out which lookups use.
TEST(MemoryTableTest, OnePassOverColdKeysLeavesAFullTableAsItWas) {
  constexpr size_t kRows = 20'000;
  for (const EvictionPolicy eviction :
       {EvictionPolicy::kOldest, EvictionPolicy::kLeastUsed, EvictionPolicy::kRandom}) {
    const MemoryTierOptions options{.eviction = eviction};
    const auto table = Open(options, 64, MemoryTierBytesFor(kRows, 64, options));
    const std::vector<Key> hot = Range(0, kRows + kRows / 10);
    Insert(*table, hot, 64, Admission::kFrequent);
    const size_t held_before = HeldOf(*table, hot, 64);
    EXPECT_GT(held_before, kRows);
    const InsertCounts cold = Insert(*table, Range(1'000'000, 4 * kRows), 64, Admission::kFrequent);
    EXPECT_LT(cold.inserted, 4 * kRows / 10);
    EXPECT_EQ(cold.inserted + cold.not_admitted, 4 * kRows);
    EXPECT_GT(HeldOf(*table, hot, 64), held_before * 7 / 10);
    if (eviction != EvictionPolicy::kOldest) continue;
    // The few that came in have pushed out others that were used as little as they.
    const std::vector<Key> used = Range(0, kRows / 2);
    HeldOf(*table, used, 64);
    const size_t used_before = HeldOf(*table, used, 64);
    Insert(*table, Range(2'000'000, 2 * kRows), 64, Admission::kFrequent);
    EXPECT_GE(HeldOf(*table, used, 64) * 100, used_before * 95);
  }
}

TEST(MemoryTableTest, AFullTableTakesInWhatIsAskedForAgain) {
  constexpr size_t kRows = 20'000;
  const auto table = Open({}, 64, MemoryTierBytesFor(kRows, 64, {}));
  Insert(*table, Range(0, 2 * kRows), 64);
  const std::vector<Key> wanted = Range(1'000'000, 1000);
  EXPECT_LT(Insert(*table, wanted, 64, Admission::kFrequent).inserted, 50u);
  Insert(*table, wanted, 64, Admission::kFrequent);
  EXPECT_GT(HeldOf(*table, wanted, 64), 900u);
  const std::vector<Key> pending = Range(2'000'000, 1000);
  EXPECT_EQ(Insert(*table, pending, 64, Admission::kAlways).inserted, 1000u);
}

// A table that was full and has lost its rows takes in every row again.
TEST(MemoryTableTest, ATableWithRoomTakesInEveryRow) {
  constexpr size_t kRows = 20'000;
  const auto table = Open({}, 64, MemoryTierBytesFor(kRows, 64, {}));
  for (const bool by_clearing : {true, false}) {
    EXPECT_EQ(Insert(*table, Range(0, kRows), 64, Admission::kFrequent).inserted, kRows);
    Insert(*table, Range(kRows, kRows), 64, Admission::kAlways);
    const std::vector<Key> cold = Range(by_clearing ? 5'000'000 : 6'000'000, 1000);
    EXPECT_GT(Insert(*table, cold, 64, Admission::kFrequent).not_admitted, 900u);
    if (by_clearing) {
      ASSERT_TRUE(table->Clear().ok());
    } else {
      ASSERT_TRUE(table->Erase(Range(0, 2 * kRows)).ok());
      ASSERT_TRUE(table->Erase(cold).ok());
    }
  }
  EXPECT_EQ(Insert(*table, Range(0, kRows), 64, Admission::kFrequent).inserted, kRows);
}

TEST(MemoryTableTest, WhatMayOnlyTakeFreePlacesEvictsNothing) {
  constexpr size_t kRows = 20'000;
  const auto table = Open({}, 64, MemoryTierBytesFor(kRows, 64, {}));
  const InsertCounts counts = Insert(*table, Range(0, 2 * kRows), 64, Admission::kIfRoom);
  EXPECT_GE(counts.inserted, kRows);
  EXPECT_EQ(counts.inserted + counts.dropped, 2 * kRows);
  EXPECT_EQ(table->Statistics().evictions, 0u);
  EXPECT_EQ(table->Statistics().entries, counts.inserted);
}

// Eviction begins at evict_from and goes down to evict_to, and no insertion evicts more than its
// share.
TEST(MemoryTableTest, EvictsInBoundedSteps) {
  const MemoryTierOptions options{.evict_from = 0.9, .evict_to = 0.5};
  const auto table = Open(options, 64, MemoryTierBytesFor(20'000, 64, options));
  uint64_t lowest_after_full = UINT64_MAX, highest = 0;
  uint64_t evictions = 0;
  for (Key key = 0; key < 60'000; ++key) {
    Insert(*table, {key}, 64);
    const LevelStatistics statistics = table->Statistics();
    ASSERT_LE(statistics.evictions - evictions, Partition::kStepVictims + 1);
    evictions = statistics.evictions;
    highest = std::max(highest, statistics.entries);
    if (evictions > 0) lowest_after_full = std::min(lowest_after_full, statistics.entries);
    ASSERT_EQ(statistics.dropped, 0u);
  }
  const double slots = static_cast<double>(highest) / 0.9;
  EXPECT_NEAR(static_cast<double>(lowest_after_full), 0.5 * slots, 0.01 * slots);
}

TEST(MemoryTableTest, AbsentEntriesTakeABoundedShare) {
  const auto table = Open({}, 64, MemoryTierBytesFor(10'000, 64, {}));
  const std::vector<Key> keys = Range(0, 50'000);
  for (size_t i = 0; i < keys.size(); i += 1000) {
    ContractRows rows(kTable, Range(static_cast<Key>(i), 1000), 64, 0);
    for (size_t j = 0; j < 1000; ++j) rows.SetAbsent(j);
    ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
  }
  const LevelStatistics statistics = table->Statistics();
  EXPECT_GT(statistics.absent_entries, 500u);
  EXPECT_LE(statistics.absent_entries * 18, statistics.bytes_max / 10);
  // Absent entries take no row's place.
  EXPECT_EQ(Insert(*table, Range(100'000, 10'000), 64).inserted, 10'000u);
}

// Catches a guard that is not released: its epoch would keep every slot from being reused.
TEST(MemoryTableTest, UpdatesGoOnForEverInASmallTable) {
  const auto table = Open({}, 64, MemoryTierBytesFor(100, 64, {}));
  Insert(*table, Range(0, 100), 64);
  for (Version version = 2; version < 2000; ++version) {
    ContractRows rows(kTable, Range(0, 100), 64, version);
    const auto replaced = table->Update(rows.batch());
    ASSERT_TRUE(replaced.ok());
    ASSERT_EQ(*replaced, 100u);
    const ContractFetch fetch(*table, {5}, 64);
    ASSERT_TRUE(fetch.IsRowOf(0, kTable, version));
  }
}

TEST(MemoryTableTest, SaysHowManyBytesWouldDo) {
  const auto tier = MakeMemoryTier({});
  const auto refused = tier->OpenTable(ContractSpec(64), 1, 1000);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(refused.status().message());
  const size_t at = message.find("at least ");
  ASSERT_NE(at, std::string::npos) << message;
  const uint64_t enough = std::strtoull(message.c_str() + at + 9, nullptr, 10);
  EXPECT_FALSE(tier->OpenTable(ContractSpec(64), 1, enough - 1).ok());
  EXPECT_TRUE(tier->OpenTable(ContractSpec(64), 1, enough).ok());
}

TEST(MemoryTableTest, RefusesAFetchWhenAllReadersAreOut) {
  EpochDomain domain(2);
  ReaderPool pool(domain, 2);
  const ReaderPool::Lease first = pool.Acquire();
  {
    const ReaderPool::Lease second = pool.Acquire();
    EXPECT_TRUE(first && second);
    EXPECT_FALSE(pool.Acquire());
  }
  EXPECT_TRUE(pool.Acquire());
}

TEST(MemoryTableTest, ReportsThatTheSystemHasNoRoom) {
  const auto block = MakeSystemPageAllocator(true)->Allocate(size_t{1} << 60);
  EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
}

// Catches a table that lets the exception of a failed allocation escape.
TEST(MemoryTableTest, ReportsThatTheHeapHasNoRoom) {
  size_t failures = 0;
  for (size_t number = 1;; ++number) {
    const auto tier = MakeMemoryTier({});
    const TableSpec spec = ContractSpec(64);
    allocation_to_fail = allocation_count + number;
    const auto table = tier->OpenTable(spec, 1, uint64_t{4} << 20);
    allocation_to_fail = 0;
    if (table.ok()) break;
    ASSERT_EQ(table.status().code(), absl::StatusCode::kResourceExhausted);
    ++failures;
  }
  EXPECT_GE(failures, 3u);
}

// Catches a margin that leaves a small table without any row, which the partition treated as a bug.
TEST(MemoryTableTest, TheSmallestMarginLeavesARow) {
  const MemoryTierOptions options{.evict_from = 0.01, .evict_to = 0.01};
  const auto table = Open(options, 16384, 1'300'000);
  EXPECT_EQ(Insert(*table, Range(0, 100), 16384).dropped, 0u);
  EXPECT_EQ(table->Statistics().entries, 1u);
}

TEST(MemoryTableDeathTest, ABatchWhoseSizesDisagreeIsABug) {
  const auto table = Open({}, 64, 8 << 20);
  std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(128);
  std::vector<FetchOutcome> outcomes(1);
  EXPECT_DEATH(
      static_cast<void>(table->Fetch(
          {.keys = keys, .rows = {rows.data(), 2, 64, 64}, .outcomes = outcomes}, kNoDeadline)),
      "outcomes");
  EXPECT_DEATH(
      static_cast<void>(table->Insert({.keys = keys, .rows = {rows.data(), 1, 64, 64}}, 0)),
      "row_count");
  EXPECT_DEATH(
      static_cast<void>(table->Insert({.keys = keys, .rows = {rows.data(), 2, 32, 32}}, 0)),
      "row_bytes");
}

// Pins at once, or refuses, or says that a device hangs.
class TestPinner final : public HostMemoryPinner {
 public:
  void Pin(PinnedRegion& region) override {
    ++asked;
    memory = region.memory;
    asked_for = &region;
    if (!refuses) region.readable = true;
  }
  bool Unpin(PinnedRegion& region) override {
    EXPECT_EQ(region.memory.data(), memory.data());
    ++returned;
    return !hangs;
  }

  bool refuses = false;
  bool hangs = false;
  size_t asked = 0;
  size_t returned = 0;
  std::span<std::byte> memory;
  const PinnedRegion* asked_for = nullptr;  // valid as long as its table
};

// What a device finds of a key: the row's address; null = none.
const std::byte* DirectRowOf(const DirectRows& direct, Key key) {
  const DirectPlace place = DirectPlaceOf(direct, key);
  const auto* const lines = static_cast<const IndexLine*>(static_cast<const void*>(direct.lines)) +
                            size_t{place.partition} * direct.line_count;
  for (const uint32_t number : {place.first, place.second}) {
    const LineProbe probe = ProbeLine(lines[number], key);
    if (probe.slot == kNoSlot || probe.slot == kAbsentSlot) continue;
    return direct.rows +
           (size_t{place.partition} * direct.slot_count + probe.slot - 1) * direct.stride_bytes;
  }
  return nullptr;
}

TEST(MemoryTableTest, DevicesFindTheRowsOnceHalfOfThemAreThere) {
  constexpr size_t kRows = 100'000;  // several partitions
  constexpr size_t kRowBytes = 48;
  TestPinner pinner;
  const MemoryTierOptions options = {.huge_pages = false, .pinner = &pinner};
  auto table = Open(options, kRowBytes, MemoryTierBytesFor(kRows, kRowBytes, options));
  auto* const direct = dynamic_cast<DirectReadable*>(table.get());
  ASSERT_NE(direct, nullptr);
  Insert(*table, Range(0, kRows / 3), kRowBytes);
  EXPECT_EQ(pinner.asked, 0u) << "its memory may never be needed";
  EXPECT_FALSE(direct->BeginDirectReads().has_value());
  Insert(*table, Range(0, kRows), kRowBytes);
  Insert(*table, Range(0, kRows), kRowBytes);
  EXPECT_EQ(pinner.asked, 1u);
  const std::optional<size_t> reads = direct->BeginDirectReads();
  ASSERT_TRUE(reads.has_value());
  EXPECT_GT(direct->direct_rows().partition_count, 1u);
  for (const Key key : Range(0, kRows)) {
    const std::byte* const row = DirectRowOf(direct->direct_rows(), key);
    ASSERT_NE(row, nullptr) << key;
    ASSERT_TRUE(StampedRow::Matches(kTable, key, 1, {row, kRowBytes})) << key;
  }
  EXPECT_EQ(DirectRowOf(direct->direct_rows(), -5), nullptr);
  direct->EndDirectReads(*reads);
  EXPECT_EQ(direct->BeginDirectReads(), reads) << "the place is free again";
  direct->EndDirectReads(*reads);
  table.reset();
  EXPECT_EQ(pinner.returned, 1u);
}

// Catches: a slot that is used again while a device may read it.
TEST(MemoryTableTest, NoRowIsOverwrittenWhileADeviceReads) {
  constexpr size_t kRows = 1000;
  constexpr size_t kRowBytes = 64;
  TestPinner pinner;
  const MemoryTierOptions options = {.huge_pages = false, .pinner = &pinner};
  auto table = Open(options, kRowBytes, MemoryTierBytesFor(kRows, kRowBytes, options));
  auto* const direct = dynamic_cast<DirectReadable*>(table.get());
  Insert(*table, Range(0, kRows), kRowBytes);
  const std::optional<size_t> reads = direct->BeginDirectReads();
  ASSERT_TRUE(reads.has_value());
  const std::byte* const row = DirectRowOf(direct->direct_rows(), 7);
  ASSERT_NE(row, nullptr);
  for (Version version = 2; version < 200; ++version) {
    ContractRows rows(kTable, Range(0, kRows), kRowBytes, version);
    ASSERT_TRUE(table->Update(rows.batch()).ok());
    ASSERT_TRUE(StampedRow::Matches(kTable, 7, 1, {row, kRowBytes})) << version;
  }
  direct->EndDirectReads(*reads);
  Insert(*table, Range(0, kRows), kRowBytes);
  for (Version version = 200; version < 300; ++version) {
    ContractRows rows(kTable, Range(0, kRows), kRowBytes, version);
    EXPECT_EQ(*table->Update(rows.batch()), kRows) << "slots are free again";
  }
}

TEST(MemoryTableTest, DevicesDoNotReadWhatIsNotPinned) {
  constexpr size_t kRows = 1000;
  const auto is_readable = [&](const MemoryTierOptions& options, size_t row_bytes) {
    auto table = Open(options, row_bytes, MemoryTierBytesFor(kRows, row_bytes, options));
    Insert(*table, Range(0, kRows), row_bytes);
    auto* const direct = dynamic_cast<DirectReadable*>(table.get());
    const std::optional<size_t> reads = direct->BeginDirectReads();
    if (reads.has_value()) direct->EndDirectReads(*reads);
    return reads.has_value();
  };
  TestPinner pinner;
  EXPECT_TRUE(is_readable({.huge_pages = false, .pinner = &pinner}, 64));
  EXPECT_FALSE(is_readable({.huge_pages = false}, 64)) << "nobody pins";
  EXPECT_FALSE(is_readable({.huge_pages = false, .pinner = &pinner}, 60))
      << "rows that are no units of 16 bytes";
  EXPECT_EQ(pinner.asked, 1u);
  pinner.refuses = true;
  EXPECT_FALSE(is_readable({.huge_pages = false, .pinner = &pinner}, 64));
  EXPECT_EQ(pinner.returned, 2u);
}

TEST(MemoryTableTest, ATableThatWillBeFreedIsNotToBePinned) {
  TestPinner pinner;
  const MemoryTierOptions options = {.huge_pages = false, .pinner = &pinner};
  auto table = Open(options, 64, MemoryTierBytesFor(1000, 64, options));
  Insert(*table, Range(0, 1000), 64);
  ASSERT_EQ(pinner.asked, 1u);
  EXPECT_TRUE(pinner.asked_for->wanted);
  dynamic_cast<DirectReadable*>(table.get())->StopPinning();
  EXPECT_FALSE(pinner.asked_for->wanted);
}

TEST(MemoryTableTest, MemoryThatAHangingDeviceMayReadStaysMapped) {
  TestPinner pinner;
  pinner.hangs = true;
  const MemoryTierOptions options = {.huge_pages = false, .pinner = &pinner};
  auto table = Open(options, 64, MemoryTierBytesFor(1000, 64, options));
  Insert(*table, Range(0, 1000), 64);
  table.reset();
  std::vector<unsigned char> resident(pinner.memory.size() / 4096);
  ASSERT_EQ(mincore(pinner.memory.data(), pinner.memory.size(), resident.data()), 0)
      << "the pages are gone";
  ASSERT_EQ(munmap(pinner.memory.data(), pinner.memory.size()), 0);
}

}  // namespace
}  // namespace hps
