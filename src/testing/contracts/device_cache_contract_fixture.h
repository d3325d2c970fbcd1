// The fixture of the device cache's contract suite: memory of the cache's device, and whole lookups
// whose answers are compared on the host.
//
// Include it in tests only. An implementation instantiates the suite with a
// DeviceCacheContractSetup per kind of memory that its lookups may read and write.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "testing/fakes/stamped_row.h"
#include "tier/device_cache.h"

namespace hps {

// Memory for the queries of a lookup. All operations are complete when they return.
class CacheMemory {
 public:
  virtual ~CacheMemory() = default;
  virtual MemorySpace space() const = 0;
  // Aligned to 256 bytes, as a device allocates.
  virtual std::byte* Allocate(size_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;
  virtual void CopyIn(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void CopyOut(std::span<std::byte> to, const std::byte* from) = 0;
};

// Plain host memory; a cache without a device also uses it as device memory.
class PlainCacheMemory final : public CacheMemory {
 public:
  explicit PlainCacheMemory(MemorySpace space) : space_(space) {}
  MemorySpace space() const override { return space_; }
  std::byte* Allocate(size_t bytes) override {
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256}));
  }
  void Free(std::byte* memory) override { ::operator delete (memory, std::align_val_t{256}); }
  void CopyIn(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void CopyOut(std::span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
  }

 private:
  const MemorySpace space_;
};

struct DeviceCacheContractOptions {
  uint64_t bytes_max = 64 << 20;
  size_t calls_max = 8;
  size_t call_keys_max = 64 << 10;
  size_t call_staging_bytes = 1 << 20;
};

struct DeviceCacheContractSetup {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<DeviceCache>>(const DeviceCacheContractOptions&)>
      make_cache;
  std::function<std::unique_ptr<CacheMemory>()> make_memory;
  // The reason why the suite can't run on this machine; empty if it can.
  std::function<std::string()> why_skipped = [] { return std::string(); };

  friend void PrintTo(const DeviceCacheContractSetup& setup, std::ostream* out) {
    *out << setup.name;
  }
};

// A table and the number that its stamped rows carry.
struct StampedTable {
  std::unique_ptr<DeviceCacheTable> table;
  uint64_t number = 0;

  size_t row_bytes() const { return table->row_bytes(); }
};

// Rows for a batch: row i is the stamped row of (table, keys[i], versions[i]). The rows are
// `padding_bytes` apart, and begin at an odd address if requested.
class StampedBatch {
 public:
  StampedBatch(const StampedTable& table, std::vector<Key> keys, std::vector<Version> versions,
               size_t padding_bytes = 0)
      : keys_(std::move(keys)), versions_(std::move(versions)), row_bytes_(table.row_bytes()) {
    stride_bytes_ = row_bytes_ + padding_bytes;
    memory_.resize(keys_.size() * stride_bytes_ + 1);
    for (size_t i = 0; i < keys_.size(); ++i)
      StampedRow::Write(table.number, keys_[i], versions_[i], {rows().row(i), row_bytes_});
  }
  StampedBatch(const StampedTable& table, const std::vector<Key>& keys, Version version)
      : StampedBatch(table, keys, std::vector<Version>(keys.size(), version)) {}

  RowBatch batch() { return {.keys = keys_, .rows = rows()}; }
  const std::vector<Key>& keys() const { return keys_; }

 private:
  HostRows rows() {
    const size_t odd = stride_bytes_ == row_bytes_ ? 0 : 1;
    return {memory_.data() + odd, keys_.size(), row_bytes_, stride_bytes_};
  }

  const std::vector<Key> keys_;
  const std::vector<Version> versions_;
  const size_t row_bytes_;
  size_t stride_bytes_ = 0;
  std::vector<std::byte> memory_;
};

// One query of a lookup and, afterwards, its answer on the host.
struct ContractQuery {
  const StampedTable* table = nullptr;
  std::vector<Key> keys;
  size_t padding_bytes = 0;  // between rows
  size_t offset_bytes = 0;   // of the first row from an aligned address
  bool wants_status = true;
  bool bypassed = false;  // queries without the table
  std::vector<std::byte> default_row{};

  std::vector<std::byte> rows{};      // [n, stride], gaps included
  std::vector<KeyStatus> statuses{};  // [n]
  LookupCounts counts{};
  std::vector<Key> misses{};  // unique, in the order of DeviceMisses
  uint64_t missed_positions = 0;

  size_t row_bytes() const { return table->row_bytes(); }
  size_t stride_bytes() const { return row_bytes() + padding_bytes; }
  std::span<const std::byte> row(size_t i) const {
    return {rows.data() + i * stride_bytes(), row_bytes()};
  }
  bool Holds(size_t i, Version version) const {
    return StampedRow::Matches(table->number, keys[i], version, row(i));
  }
};

// The answer of the levels below: the status of a missing key and, for a hit, its version.
struct BelowAnswer {
  KeyStatus status = KeyStatus::kAbsent;
  Version version = 0;
};
using BelowSource = std::function<BelowAnswer(size_t query, Key key)>;
inline BelowAnswer NothingBelow(size_t, Key) { return {}; }

class DeviceCacheContractTest : public testing::TestWithParam<DeviceCacheContractSetup> {
 protected:
  static constexpr std::byte kPoison{0xa5};

  // Most tests use a cache of the default size.
  void SetUp() override {
    const std::string why_skipped = GetParam().why_skipped();
    if (!why_skipped.empty()) GTEST_SKIP() << why_skipped;
    UseCache({});
  }

  void UseCache(const DeviceCacheContractOptions& options) {
    cache_.reset();
    memory_ = GetParam().make_memory();
    auto cache = GetParam().make_cache(options);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }

  StampedTable OpenTable(size_t row_bytes, uint64_t row_count, uint64_t number = 1) {
    auto table = cache_->OpenTable(row_bytes, cache_->TableBytes(row_bytes, row_count));
    EXPECT_TRUE(table.ok()) << table.status();
    return {*std::move(table), number};
  }

  // The smallest table that the cache makes.
  StampedTable OpenSmallestTable(size_t row_bytes, uint64_t number = 1) {
    return OpenTable(row_bytes, 0, number);
  }

  static void Flush(const StampedTable& table) {
    ASSERT_EQ(table.table->Flush(kNoDeadline), absl::OkStatus());
  }

  // InsertIfAbsent and Flush; returns the number of refused keys.
  static uint64_t InsertIfAbsent(const StampedTable& table, const std::vector<Key>& keys,
                                 Version version, ApplyEpoch epoch = 0,
                                 Admission admission = Admission::kAlways) {
    StampedBatch stamped(table, keys, version);
    RowBatch batch = stamped.batch();
    batch.admission = admission;
    const auto refused = table.table->InsertIfAbsent(batch, epoch);
    EXPECT_TRUE(refused.ok()) << refused.status();
    Flush(table);
    return refused.value_or(0);
  }

  static void Update(const StampedTable& table, const std::vector<Key>& keys, Version version) {
    StampedBatch batch(table, keys, version);
    ASSERT_EQ(table.table->Update(batch.batch(), kNoDeadline), absl::OkStatus());
    Flush(table);
  }

  static void Erase(const StampedTable& table, const std::vector<Key>& keys) {
    ASSERT_EQ(table.table->Erase(keys, kNoDeadline), absl::OkStatus());
    Flush(table);
  }

  static std::vector<Key> DumpAll(const StampedTable& table, size_t buffer_keys = 1000) {
    std::vector<Key> all;
    std::vector<Key> buffer(buffer_keys);
    uint64_t cursor = 0;
    for (;;) {
      const auto count = table.table->Dump(&cursor, buffer, kNoDeadline);
      EXPECT_TRUE(count.ok()) << count.status();
      if (!count.ok() || *count == 0) return all;
      all.insert(all.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
  }

  // The buffers of one query in the cache's memory.
  class QueryBuffers {
   public:
    QueryBuffers(CacheMemory& memory, const ContractQuery& query) : memory_(memory) {
      const size_t count = query.keys.size();
      rows_bytes_ = query.offset_bytes + count * query.stride_bytes();
      keys_ = memory.Allocate(count * sizeof(Key) + 1);
      rows_ = memory.Allocate(rows_bytes_ + 1);
      status_ = memory.Allocate(count + 1);
      memory.CopyIn(keys_, std::as_bytes(std::span(query.keys)));
      memory.CopyIn(rows_, std::vector<std::byte>(rows_bytes_, kPoison));
      memory.CopyIn(status_, std::vector<std::byte>(count, kPoison));
    }
    ~QueryBuffers() {
      for (std::byte* buffer : {keys_, rows_, status_}) memory_.Free(buffer);
    }
    QueryBuffers(const QueryBuffers&) = delete;
    QueryBuffers& operator=(const QueryBuffers&) = delete;

    DeviceCacheQuery Request(const ContractQuery& query) const {
      return {.table = query.bypassed ? nullptr : query.table->table.get(),
              .space = memory_.space(),
              .keys = static_cast<const Key*>(static_cast<const void*>(keys_)),
              .key_count = query.keys.size(),
              .rows = rows_ + query.offset_bytes,
              .row_bytes = query.row_bytes(),
              .row_stride_bytes = query.stride_bytes(),
              .status = query.wants_status ? static_cast<KeyStatus*>(static_cast<void*>(status_))
                                           : nullptr,
              .default_row = query.default_row};
    }

    void TakeAnswers(ContractQuery& query) const {
      query.rows.resize(query.keys.size() * query.stride_bytes());
      memory_.CopyOut(query.rows, rows_ + query.offset_bytes);
      query.statuses.resize(query.keys.size());
      memory_.CopyOut(std::as_writable_bytes(std::span(query.statuses)), status_);
    }

   private:
    CacheMemory& memory_;
    size_t rows_bytes_ = 0;
    std::byte* keys_ = nullptr;
    std::byte* rows_ = nullptr;
    std::byte* status_ = nullptr;
  };

  // Rows and statuses for the misses of one query, in pieces of at most `piece_keys`.
  struct Below {
    std::vector<KeyStatus> statuses;
    std::vector<std::byte> rows;

    Below(const ContractQuery& query, size_t number, const BelowSource& source)
        : statuses(query.misses.size()), rows(query.misses.size() * query.row_bytes()) {
      for (size_t i = 0; i < query.misses.size(); ++i) {
        const BelowAnswer answer = source(number, query.misses[i]);
        statuses[i] = answer.status;
        StampedRow::Write(query.table->number, query.misses[i], answer.version,
                          {rows.data() + i * query.row_bytes(), query.row_bytes()});
      }
    }

    DeviceRowPiece Piece(const ContractQuery& query, size_t number, size_t first, size_t count) {
      return {.query = number,
              .first = first,
              .statuses = std::span(statuses).subspan(first, count),
              .rows = {rows.data() + first * query.row_bytes(), count, query.row_bytes(),
                       query.row_bytes()}};
    }
  };

  // A whole lookup. Calls `before_finish` between the phases, and answers misses from `source` in
  // pieces of `piece_keys`, the last piece first.
  struct LookupPlan {
    BelowSource source = NothingBelow;
    std::function<void()> before_finish = [] {};
    size_t piece_keys = 1000;
    std::function<bool()> reprobe = [] { return false; };  // evaluated after `source`
  };

  void Lookup(std::span<ContractQuery> queries, const LookupPlan& plan) {
    std::vector<std::unique_ptr<QueryBuffers>> buffers;
    std::vector<DeviceCacheQuery> requests;
    size_t key_count = 0;
    for (const ContractQuery& query : queries) {
      buffers.push_back(std::make_unique<QueryBuffers>(*memory_, query));
      requests.push_back(buffers.back()->Request(query));
      key_count += query.keys.size();
    }
    auto call = cache_->AcquireCall(key_count);
    ASSERT_TRUE(call.ok()) << call.status();
    ASSERT_EQ((*call)->Begin(requests, Stream()), absl::OkStatus());
    const auto misses = (*call)->Misses(kNoDeadline);
    ASSERT_TRUE(misses.ok()) << misses.status();
    ASSERT_EQ(misses->keys.size(), queries.size());
    ASSERT_EQ(misses->positions.size(), queries.size());
    for (size_t q = 0; q < queries.size(); ++q) {
      const std::span<const Key> keys = misses->keys[q];
      queries[q].misses.assign(keys.begin(), keys.end());
      queries[q].missed_positions = misses->positions[q];
    }
    plan.before_finish();
    for (size_t q = 0; q < queries.size(); ++q) FinishQuery(**call, queries[q], q, plan);
    ASSERT_EQ((*call)->Wait(kNoDeadline), absl::OkStatus());
    for (size_t q = 0; q < queries.size(); ++q) {
      buffers[q]->TakeAnswers(queries[q]);
      queries[q].counts = (*call)->counts(q);
      CheckShape(queries[q]);
    }
  }

  ContractQuery Lookup(const StampedTable& table, std::vector<Key> keys,
                       const BelowSource& source = NothingBelow) {
    ContractQuery query{.table = &table, .keys = std::move(keys)};
    Lookup({&query, 1}, {.source = source});
    return query;
  }

  // The keys that the table holds. Every hit must be the stamped row of `version_of(key)`.
  std::vector<Key> Held(const StampedTable& table, const std::vector<Key>& keys,
                        const std::function<Version(Key)>& version_of) {
    const ContractQuery query = Lookup(table, keys);
    std::vector<Key> held;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (query.statuses[i] != KeyStatus::kHitL1) continue;
      EXPECT_TRUE(query.Holds(i, version_of(keys[i]))) << "key " << keys[i];
      held.push_back(keys[i]);
    }
    return held;
  }

  // Invariants of every lookup: misses are unique and are the positions that L1 did not answer;
  // counts match the statuses and add up; gaps between rows are unchanged.
  static void CheckShape(const ContractQuery& query) {
    EXPECT_EQ(query.counts.total(), query.keys.size());
    std::vector<Key> misses = query.misses;
    std::sort(misses.begin(), misses.end());
    EXPECT_TRUE(std::adjacent_find(misses.begin(), misses.end()) == misses.end())
        << "a key is asked twice";
    LookupCounts counts;
    for (size_t i = 0; i < query.keys.size() && query.wants_status; ++i) {
      ++counts[query.statuses[i]];
      const bool missed = std::binary_search(misses.begin(), misses.end(), query.keys[i]);
      EXPECT_TRUE(missed || query.statuses[i] == KeyStatus::kHitL1) << "key " << query.keys[i];
    }
    if (query.wants_status) {
      EXPECT_EQ(counts.by_status, query.counts.by_status);
    }
    for (size_t i = 0; i < query.keys.size(); ++i) {
      for (size_t b = query.row_bytes(); b < query.stride_bytes(); ++b)
        ASSERT_EQ(query.rows[i * query.stride_bytes() + b], kPoison) << "gap after row " << i;
    }
    for (size_t i = 0; i < query.keys.size() && !query.wants_status; ++i)
      ASSERT_EQ(std::byte(query.statuses[i]), kPoison);
  }

  static std::vector<Key> Sequence(Key first, size_t count) {
    std::vector<Key> keys(count);
    for (size_t i = 0; i < count; ++i) keys[i] = first + static_cast<Key>(i);
    return keys;
  }

  std::unique_ptr<CacheMemory> memory_;
  std::unique_ptr<DeviceCache> cache_;

 private:
  static void FinishQuery(DeviceCall& call, const ContractQuery& query, size_t number,
                          const LookupPlan& plan) {
    Below below(query, number, plan.source);
    const size_t piece_count = (query.misses.size() + plan.piece_keys - 1) / plan.piece_keys;
    for (size_t p = piece_count; p-- > 0;) {
      const size_t first = p * plan.piece_keys;
      const size_t count = std::min(plan.piece_keys, query.misses.size() - first);
      DeviceRowPiece piece = below.Piece(query, number, first, count);
      piece.reprobe = plan.reprobe();
      ASSERT_EQ(call.Finish({&piece, 1}), absl::OkStatus());
    }
  }
};

}  // namespace hps
