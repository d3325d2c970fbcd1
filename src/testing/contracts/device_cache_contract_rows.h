// The part of the device cache's contract suite about the transfer of rows to the device, through
// staging and ahead of their answers, and their conversion there. Included by
// device_cache_contract.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "testing/contracts/device_cache_contract_fixture.h"
#include "types/row_convert.h"

namespace hps {

TEST_P(DeviceCacheContractTest, RowsMayBeStagedWithinBounds) {
  UseCache({.call_staging_bytes = 1000});
  const StampedTable table = OpenTable(16, 100);
  ContractQuery query{.table = &table, .keys = Sequence(0, 200)};
  const QueryBuffers buffers(*memory_, query);
  const DeviceCacheQuery request = buffers.Request(query);
  for (int round = 0; round < 2; ++round) {
    auto call = *cache_->AcquireCall(200);
    ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
    const DeviceMisses misses = *call->Misses(kNoDeadline);
    size_t staged = 0;
    // A request that exceeds the staging takes nothing of what is left.
    for (const size_t wanted : {0, 10, 200, 52, 1}) {
      const HostRows rows = call->Staging(0, wanted);
      EXPECT_EQ(rows.row_count, wanted * 16 <= 1000 - staged * 16 ? wanted : 0u);
      EXPECT_EQ(rows.stride_bytes, 16u);
      for (size_t i = 0; i < rows.row_count; ++i)
        StampedRow::Write(1, misses.keys[0][staged + i], 1, {rows.row(i), 16});
      const std::vector<KeyStatus> statuses(rows.row_count, KeyStatus::kHitL2);
      const DeviceRowPiece piece{.first = staged, .statuses = statuses, .rows = rows};
      ASSERT_EQ(call->Finish({&piece, 1}), absl::OkStatus());
      staged += rows.row_count;
    }
    EXPECT_EQ(staged, 62u);
    const std::vector<KeyStatus> absent(200 - staged, KeyStatus::kAbsent);
    const DeviceRowPiece rest{.first = staged, .statuses = absent};
    ASSERT_EQ(call->Finish({&rest, 1}), absl::OkStatus());
    ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
    buffers.TakeAnswers(query);
    size_t hits = 0;
    for (size_t i = 0; i < query.keys.size(); ++i) {
      if (query.statuses[i] != KeyStatus::kHitL2) continue;
      ASSERT_TRUE(query.Holds(i, 1)) << i;
      ++hits;
    }
    EXPECT_EQ(hits, staged);
  }
}

TEST_P(DeviceCacheContractTest, RowsMayBeCopiedAheadWhileTheProbeRuns) {
  const StampedTable table = OpenTable(16, 100);
  ContractQuery query{.table = &table, .keys = Sequence(0, 999)};
  query.keys.push_back(7);
  const QueryBuffers buffers(*memory_, query);
  const DeviceCacheQuery request = buffers.Request(query);
  auto call = *cache_->AcquireCall(1000);
  ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
  const HostRows rows = call->Staging(0, 999);
  DeviceMissesSoFar known;
  for (size_t brought = 0; !known.probed; brought = known.keys.size()) {
    known = call->Peek(0);
    for (size_t i = brought; i < known.keys.size(); ++i)
      StampedRow::Write(table.number, known.keys[i], 1, {rows.row(i), 16});
    const size_t count = known.keys.size() - brought;
    ASSERT_EQ(call->CopyAhead({rows.row(brought), count, 16, 16}), absl::OkStatus());
  }
  ASSERT_TRUE(std::ranges::equal(call->Misses(kNoDeadline)->keys[0], known.keys));
  const std::vector<KeyStatus> statuses(999, KeyStatus::kHitL2);
  const DeviceRowPiece piece{.statuses = statuses, .rows = rows, .on_device = true};
  ASSERT_EQ(call->Finish({&piece, 1}), absl::OkStatus());
  ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
  buffers.TakeAnswers(query);
  for (size_t i = 0; i < 1000; ++i) ASSERT_TRUE(query.Holds(i, 1)) << i;
  EXPECT_EQ(call->counts(0)[KeyStatus::kHitL2], 1000u);
}

// Catches a device that reads rows as copied ahead before their copy has arrived.
TEST_P(DeviceCacheContractTest, RowsMayBeCopiedAheadInAnyOrder) {
  constexpr size_t kKeys = 600;
  constexpr size_t kParts = 4;
  const StampedTable table = OpenTable(1000, 100);
  for (const bool backwards : {false, true}) {
    SCOPED_TRACE(backwards);
    ContractQuery query{.table = &table, .keys = Sequence(0, kKeys)};
    const QueryBuffers buffers(*memory_, query);
    const DeviceCacheQuery request = buffers.Request(query);
    auto call = *cache_->AcquireCall(kKeys);
    ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
    const std::span<const Key> misses = call->Misses(kNoDeadline)->keys[0];
    ASSERT_EQ(misses.size(), kKeys);
    const HostRows rows = call->Staging(0, kKeys);
    ASSERT_EQ(rows.row_count, kKeys);
    const Version version = backwards ? 2 : 1;  // the last round left wrong rows
    for (size_t i = 0; i < kParts; ++i) {
      const size_t first = (backwards ? kParts - 1 - i : i) * (kKeys / kParts);
      for (size_t r = first; r < first + kKeys / kParts; ++r)
        StampedRow::Write(table.number, misses[r], version, {rows.row(r), 1000});
      ASSERT_EQ(call->CopyAhead({rows.row(first), kKeys / kParts, 1000, 1000}), absl::OkStatus());
    }
    const std::vector<KeyStatus> statuses(kKeys, KeyStatus::kHitL2);
    const DeviceRowPiece piece{.statuses = statuses, .rows = rows, .on_device = true};
    ASSERT_EQ(call->Finish({&piece, 1}), absl::OkStatus());
    ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
    buffers.TakeAnswers(query);
    for (size_t i = 0; i < kKeys; ++i) ASSERT_TRUE(query.Holds(i, version)) << i;
  }
}

// A call that copies rows ahead and is returned early leaves nothing behind for the next lookup.
TEST_P(DeviceCacheContractTest, ACallThatCopiesRowsAheadMayBeReturnedEarly) {
  const StampedTable table = OpenTable(16, 100);
  for (int round = 0; round < 20; ++round) {
    ContractQuery query{.table = &table, .keys = Sequence(0, 1000)};
    const QueryBuffers buffers(*memory_, query);
    const DeviceCacheQuery request = buffers.Request(query);
    auto call = *cache_->AcquireCall(1000);
    ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
    ASSERT_TRUE(call->Misses(kNoDeadline).ok());
    ASSERT_EQ(call->CopyAhead(call->Staging(0, 1000)), absl::OkStatus());
    call.reset();
    EXPECT_EQ(Lookup(table, Sequence(0, 10)).counts[KeyStatus::kAbsent], 10u);
  }
}

TEST_P(DeviceCacheContractTest, RowsAreConvertedInPlace) {
  if (memory_->space() == MemorySpace::kHost) GTEST_SKIP() << "for outputs on the device only";
  for (const size_t row_bytes : {2, 6, 64, 128, 258, 16384}) {
    const StampedTable table = OpenTable(row_bytes, 100);
    InsertIfAbsent(table, Sequence(0, 20), 1);
    for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
      for (const size_t odd : {0, 1}) {
        SCOPED_TRACE(testing::Message() << row_bytes << " " << DtypeName(dtype) << " " << odd);
        ContractQuery query{.table = &table,
                            .keys = Sequence(0, 40),
                            .padding_bytes = row_bytes + 3 * odd,
                            .offset_bytes = odd};
        query.keys.push_back(25);
        const QueryBuffers buffers(*memory_, query);
        DeviceCacheQuery request = buffers.Request(query);
        request.convert_from = dtype;
        auto call = *cache_->AcquireCall(41);
        ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
        const std::span<const Key> misses = call->Misses(kNoDeadline)->keys[0];
        query.misses.assign(misses.begin(), misses.end());
        ASSERT_EQ(query.misses.size(), 20u);
        EXPECT_EQ(call->ConvertToFloat32().code(), absl::StatusCode::kFailedPrecondition);
        Below below(query, 0, [](size_t, Key key) {
          return key < 30 ? BelowAnswer{KeyStatus::kHitL3, 1} : BelowAnswer{};
        });
        const DeviceRowPiece piece = below.Piece(query, 0, 0, 20);
        ASSERT_EQ(call->Finish({&piece, 1}), absl::OkStatus());
        ASSERT_EQ(call->ConvertToFloat32(), absl::OkStatus());
        ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
        buffers.TakeAnswers(query);
        for (size_t i = 0; i < query.keys.size(); ++i) {
          std::vector<std::byte> native(row_bytes), expected(2 * row_bytes);
          if (query.keys[i] < 30) StampedRow::Write(table.number, query.keys[i], 1, native);
          ConvertToFloat32(dtype, native.data(), row_bytes / 2, expected.data());
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                                 query.rows.data() + i * query.stride_bytes()))
              << i;
          for (size_t gap = expected.size(); gap < query.stride_bytes(); ++gap)
            ASSERT_EQ(query.rows[i * query.stride_bytes() + gap], kPoison) << i;
        }
      }
    }
  }
}

// The answer of a missing key counts its duplicates, also if keys have different answers, in
// pieces, and some are answered by a second probe.
TEST_P(DeviceCacheContractTest, DuplicatesCountByTheAnswerOfTheirKey) {
  const StampedTable table = OpenTable(16, 100);
  for (const bool reprobe : {false, true}) {
    ContractQuery query{.table = &table, .keys = Sequence(0, 100)};
    for (Key key = 0; key < 100; ++key)
      query.keys.insert(query.keys.end(), static_cast<size_t>(key % 5), key);
    int pieces = 0;
    Lookup({&query, 1}, {.source =
                             [](size_t, Key key) {
                               return key % 3 == 0   ? BelowAnswer{KeyStatus::kAbsent, 0}
                                      : key % 3 == 1 ? BelowAnswer{KeyStatus::kHitL2, 1}
                                                     : BelowAnswer{KeyStatus::kHitL3, 1};
                             },
                         .piece_keys = 30,
                         .reprobe = [&] { return reprobe && pieces++ % 2 == 0; }});
    EXPECT_EQ(query.missed_positions, query.keys.size());
    EXPECT_EQ(query.counts.total(), query.keys.size());
  }
}

TEST_P(DeviceCacheContractTest, UpdateFromTakesTheRowsThatAreFilledIn) {
  const StampedTable table = OpenTable(100, 100);
  InsertIfAbsent(table, {1, 2, 3}, 5);
  StampedBatch batch(table, {2, 9, 3}, 6);
  const auto fill = [&](size_t count) {
    return [&, count](std::span<Key> keys, HostRows rows) -> absl::StatusOr<size_t> {
      EXPECT_EQ(keys.size(), 7u);
      EXPECT_EQ(rows.row_count, 7u);
      EXPECT_EQ(rows.stride_bytes, 100u);
      for (size_t i = 0; i < count; ++i) {
        keys[i] = batch.batch().keys[i];
        std::memcpy(rows.row(i), batch.batch().rows.row(i), 100);
      }
      return count;
    };
  };
  ASSERT_EQ(table.table->UpdateFrom(7, fill(2), kNoDeadline), absl::OkStatus());
  ASSERT_EQ(table.table->UpdateFrom(7, fill(0), kNoDeadline), absl::OkStatus());
  Flush(table);
  EXPECT_EQ(Held(table, {1, 2, 3, 9}, [](Key key) { return key == 2 ? 6 : 5; }),
            (std::vector<Key>{1, 2, 3}));
  const auto fail = [](std::span<Key>, HostRows) -> absl::StatusOr<size_t> {
    return absl::DataLossError("below");
  };
  EXPECT_EQ(table.table->UpdateFrom(7, fail, kNoDeadline).code(), absl::StatusCode::kDataLoss);
  Flush(table);
  EXPECT_EQ(table.table->Statistics().updates, 1u);
}

// Several pieces of a refresh are filled at a time, and complete in any order.
TEST_P(DeviceCacheContractTest, ManyThreadsMayUpdateFrom) {
  const StampedTable table = OpenTable(64, 20'000);
  const std::vector<Key> keys = Sequence(0, 10'000);
  InsertIfAbsent(table, keys, 1);
  const std::vector<Key> held = Held(table, keys, [](Key) { return 1; });
  std::vector<std::thread> threads;
  for (size_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      for (size_t first = part * 2500; first < (part + 1) * 2500; first += 100) {
        StampedBatch batch(table, Sequence(static_cast<Key>(first), 100), 2);
        const auto fill = [&](std::span<Key> to, HostRows rows) -> absl::StatusOr<size_t> {
          for (size_t i = 0; i < to.size(); ++i) {
            to[i] = batch.batch().keys[i];
            std::memcpy(rows.row(i), batch.batch().rows.row(i), 64);
          }
          return to.size();
        };
        EXPECT_EQ(table.table->UpdateFrom(100, fill, kNoDeadline), absl::OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Flush(table);
  EXPECT_EQ(Held(table, keys, [](Key) { return 2; }), held);
}

}  // namespace hps
