#include "l1_gpu/gpu_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "gpu/cuda_status.h"
#include "gpu/test_gpu.h"
#include "l1_gpu/test_gpu_cache_memory.h"
#include "l1_gpu/test_row_check.h"
#include "testing/contracts/device_cache_contract.h"

namespace hps {
namespace {

absl::StatusOr<std::unique_ptr<DeviceCache>> MakeFor(const DeviceCacheContractOptions& options) {
  return MakeGpuCache({.device = 0,
                       .bytes_max = options.bytes_max,
                       .calls_max = options.calls_max,
                       .call_keys_max = options.call_keys_max,
                       .call_staging_bytes = options.call_staging_bytes});
}

DeviceCacheContractSetup HostMemorySetup() {
  return {.name = "HostMemory",
          .make_cache = MakeFor,
          .make_memory = [] { return std::make_unique<PlainCacheMemory>(MemorySpace::kHost); },
          .why_skipped = WhyNoGpu};
}

DeviceCacheContractSetup DeviceMemorySetup() {
  return {.name = "DeviceMemory",
          .make_cache = MakeFor,
          .make_memory = [] { return std::make_unique<GpuCacheMemory>(); },
          .why_skipped = WhyNoGpu};
}

INSTANTIATE_TEST_SUITE_P(GpuCache, DeviceCacheContractTest,
                         testing::Values(HostMemorySetup(), DeviceMemorySetup()),
                         [](const auto& instance) { return instance.param.name; });

// Holds with and without a GPU.
TEST(MakeGpuCacheTest, IsUnavailableWhereThereIsNoSuchDevice) {
  for (int device : {-1, GpuDeviceCount()}) {
    const absl::Status status = MakeGpuCache({.device = device, .bytes_max = 1 << 20}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("gpu: "));
  }
}

class GpuCacheTest : public GpuTest {
 protected:
  static constexpr DeviceCacheOptions kSmall = {.bytes_max = 64 << 20,
                                                .calls_max = 2,
                                                .call_keys_max = 10'000,
                                                .call_staging_bytes = 64 << 10};

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    // Memory that the runtime itself keeps permanently is allocated once.
    UseCache(kSmall);
    cache_.reset();
  }

  void UseCache(const DeviceCacheOptions& options) {
    cache_.reset();
    auto cache = MakeGpuCache(options);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }

  std::unique_ptr<DeviceCacheTable> OpenTable(size_t row_bytes, uint64_t row_count) {
    auto table = cache_->OpenTable(row_bytes, cache_->TableBytes(row_bytes, row_count));
    EXPECT_TRUE(table.ok()) << table.status();
    return *std::move(table);
  }

  std::unique_ptr<DeviceCache> cache_;
};

TEST_F(GpuCacheTest, TellsItsDevice) {
  UseCache(kSmall);
  EXPECT_EQ(cache_->device(), 0);
}

TEST_F(GpuCacheTest, SaysWhenTheCallsMemoryCantBeHadAndLeaksNothing) {
  const size_t free_before = FreeDeviceBytes();
  // The first calls fit, the last ones don't: each key takes at least 45 bytes.
  DeviceCacheOptions options = {
      .bytes_max = 1 << 20, .calls_max = 1, .call_keys_max = 1, .call_staging_bytes = 0};
  options.call_staging_bytes = free_before;  // pinned on the host, and as much on the device
  options.calls_max = 3;
  const absl::Status status = MakeGpuCache(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(" bytes of a call's"));
  EXPECT_GE(FreeDeviceBytes(), free_before);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(GpuCacheTest, SaysWhenATablesMemoryCantBeHadAndGivesItsBudgetBack) {
  DeviceCacheOptions options = kSmall;
  options.bytes_max = UINT64_MAX;
  UseCache(options);
  const size_t free_before = FreeDeviceBytes();
  const absl::Status status = cache_->OpenTable(64, free_before + (1 << 20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GE(FreeDeviceBytes(), free_before);
  // The whole budget is still free: a table as large as it fits.
  EXPECT_EQ(cache_->OpenTable(kRowBytesMax, UINT64_MAX).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(cache_->OpenTable(64, 1 << 20).ok());
}

TEST_F(GpuCacheTest, ManyCachesTablesAndCallsLeakNothing) {
  const size_t free_before = FreeDeviceBytes();
  for (int round = 0; round < 20; ++round) {
    UseCache(kSmall);
    std::vector<std::unique_ptr<DeviceCacheTable>> tables;
    for (size_t row_bytes : {1, 64, 1000, 16384}) tables.push_back(OpenTable(row_bytes, 500));
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(cache_->AcquireCall(100).ok());
    tables.clear();
    cache_.reset();
  }
  EXPECT_GE(FreeDeviceBytes(), free_before);
}

// One table may use the whole budget: destroying it frees the memory for the next one.
TEST_F(GpuCacheTest, ATablesMemoryIsFreeAgainWhenItDies) {
  DeviceCacheOptions options = kSmall;
  options.bytes_max = uint64_t{1} << 30;
  UseCache(options);
  const size_t free_before = FreeDeviceBytes();
  for (int round = 0; round < 3; ++round) {
    auto table = cache_->OpenTable(512, options.bytes_max);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_LT(FreeDeviceBytes(), free_before);
    EXPECT_EQ(cache_->OpenTable(512, options.bytes_max / 2).status().code(),
              absl::StatusCode::kResourceExhausted);
    table->reset();
    EXPECT_GE(FreeDeviceBytes(), free_before);
  }
}

// Larger than the writer's staging, so it takes several steps that wait for the device.
TEST_F(GpuCacheTest, AWriteMayBeLargerThanTheStaging) {
  constexpr size_t kRowBytes = 4096;
  constexpr size_t kRows = 3 * kWriterStagingBytes / kRowBytes;
  DeviceCacheOptions options = kSmall;
  options.bytes_max = uint64_t{1} << 30;
  options.call_keys_max = kRows;
  UseCache(options);
  const StampedTable table = {OpenTable(kRowBytes, kRows), 1};
  std::vector<Key> keys(kRows);
  std::iota(keys.begin(), keys.end(), Key{-100});
  StampedBatch inserted(table, keys, 1);
  ASSERT_EQ(*table.table->InsertIfAbsent(inserted.batch(), 0), 0u);
  StampedBatch updated(table, keys, 2);
  ASSERT_EQ(table.table->Update(updated.batch(), kNoDeadline), absl::OkStatus());
  ASSERT_EQ(table.table->Flush(kNoDeadline), absl::OkStatus());
  const uint64_t entries = table.table->Statistics().entries;
  EXPECT_GE(entries, kRows - kRows / 1000);
  EXPECT_EQ(table.table->Statistics().updates, entries);

  std::vector<std::byte> rows(kRows * kRowBytes);
  std::vector<KeyStatus> statuses(kRows);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .keys = keys.data(),
                                  .key_count = kRows,
                                  .rows = rows.data(),
                                  .row_bytes = kRowBytes,
                                  .row_stride_bytes = kRowBytes,
                                  .status = statuses.data()};
  auto call = *cache_->AcquireCall(kRows);
  ASSERT_EQ(call->Begin({&query, 1}, Stream()), absl::OkStatus());
  const DeviceMisses misses = *call->Misses(kNoDeadline);
  const std::vector<KeyStatus> absent(misses.keys[0].size(), KeyStatus::kAbsent);
  const DeviceRowPiece piece = {.statuses = absent};
  ASSERT_EQ(call->Finish({&piece, 1}), absl::OkStatus());
  ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
  EXPECT_EQ(call->counts(0)[KeyStatus::kHitL1], entries);
  for (size_t i = 0; i < kRows; ++i) {
    if (statuses[i] != KeyStatus::kHitL1) continue;
    ASSERT_TRUE(StampedRow::Matches(1, keys[i], 2, {rows.data() + i * kRowBytes, kRowBytes}));
  }
}

// Rows in the caller's memory that exceed half of the double buffer, of the widest size: several
// copies and launches, one of which waits for the first.
TEST_F(GpuCacheTest, AnswersMayBeLargerThanWhatIsSentAtATime) {
  DeviceCacheOptions options = kSmall;
  options.call_staging_bytes = 20 * kRowBytesMax;
  UseCache(options);
  const StampedTable table = {OpenTable(kRowBytesMax, 100), 1};
  std::vector<Key> keys(500);
  std::iota(keys.begin(), keys.end(), Key{0});
  std::vector<std::byte> rows(keys.size() * kRowBytesMax);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .keys = keys.data(),
                                  .key_count = keys.size(),
                                  .rows = rows.data(),
                                  .row_bytes = kRowBytesMax,
                                  .row_stride_bytes = kRowBytesMax};
  auto call = *cache_->AcquireCall(keys.size());
  ASSERT_EQ(call->Begin({&query, 1}, Stream()), absl::OkStatus());
  const DeviceMisses misses = *call->Misses(kNoDeadline);
  ASSERT_EQ(misses.keys[0].size(), keys.size());
  const HostRows staged = call->Staging(0, 20);
  ASSERT_EQ(staged.row_count, 20u);
  std::vector<std::byte> own((keys.size() - 20) * kRowBytesMax);
  const std::vector<KeyStatus> statuses(keys.size(), KeyStatus::kHitL3);
  const DeviceRowPiece pieces[] = {
      {.statuses = std::span(statuses).first(20), .rows = staged},
      {.first = 20,
       .statuses = std::span(statuses).subspan(20),
       .rows = {own.data(), keys.size() - 20, kRowBytesMax, kRowBytesMax}}};
  for (size_t i = 0; i < keys.size(); ++i) {
    std::byte* const to = i < 20 ? staged.row(i) : own.data() + (i - 20) * kRowBytesMax;
    StampedRow::Write(1, misses.keys[0][i], 3, {to, kRowBytesMax});
  }
  ASSERT_EQ(call->Finish(pieces), absl::OkStatus());
  ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(StampedRow::Matches(1, keys[i], 3, {rows.data() + i * kRowBytesMax, kRowBytesMax}));
  }
}

// Rows in the first block and in those that are added; some copied ahead, some read in place.
TEST_F(GpuCacheTest, StagingGrowsForTheCallsThatNeedIt) {
  constexpr size_t kRowBytes = 512;
  constexpr size_t kRows = 10'000;
  constexpr size_t kPieceRows = 100;
  DeviceCacheOptions options = kSmall;
  options.calls_max = 1;
  options.staging_growth_bytes_max = 2 * kRows * kRowBytes;
  UseCache(options);
  const StampedTable table = {OpenTable(kRowBytes, 100), 1};
  std::vector<Key> keys(kRows);
  std::iota(keys.begin(), keys.end(), Key{0});
  std::vector<std::byte> rows(kRows * kRowBytes);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .keys = keys.data(),
                                  .key_count = kRows,
                                  .rows = rows.data(),
                                  .row_bytes = kRowBytes,
                                  .row_stride_bytes = kRowBytes};
  for (const Version version : {3, 4}) {
    auto call = *cache_->AcquireCall(kRows);
    ASSERT_EQ(call->Begin({&query, 1}, Stream()), absl::OkStatus());
    const DeviceMisses misses = *call->Misses(kNoDeadline);
    ASSERT_EQ(misses.keys[0].size(), kRows);
    const std::vector<KeyStatus> statuses(kPieceRows, KeyStatus::kHitL3);
    std::vector<DeviceRowPiece> pieces;
    for (size_t first = 0; first < kRows; first += kPieceRows) {
      const HostRows staged = call->Staging(0, kPieceRows);
      ASSERT_EQ(staged.row_count, kPieceRows) << first;
      for (size_t i = 0; i < kPieceRows; ++i)
        StampedRow::Write(1, misses.keys[0][first + i], version, {staged.row(i), kRowBytes});
      const bool ahead = first / kPieceRows % 2 == 0;
      if (ahead) {
        ASSERT_EQ(call->CopyAhead(staged), absl::OkStatus());
      }
      pieces.push_back({.first = first, .statuses = statuses, .rows = staged, .on_device = ahead});
    }
    ASSERT_EQ(call->Finish(pieces), absl::OkStatus());
    ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
    for (size_t i = 0; i < kRows; ++i) {
      ASSERT_TRUE(
          StampedRow::Matches(1, keys[i], version, {rows.data() + i * kRowBytes, kRowBytes}));
    }
  }
}

// Catches: lookups whose calls are at work for a moment longer, so that each one takes a call that
// has not been used for long, and makes its staging grow.
TEST_F(GpuCacheTest, LookupsTakeTurnsWithAsFewCallsAsWillDo) {
  DeviceCacheOptions options = kSmall;
  options.calls_max = 8;
  UseCache(options);
  const StampedTable table = {OpenTable(16, 100), 1};
  const std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(32);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .keys = keys.data(),
                                  .key_count = 2,
                                  .rows = rows.data(),
                                  .row_bytes = 16,
                                  .row_stride_bytes = 16};
  const CudaStream stream = *MakeStream(StreamPriority::kHigh);
  std::optional<StreamHold> hold;
  std::set<const DeviceCall*> used;
  for (int i = 0; i < 12; ++i) {
    const DeviceCallLease call = *cache_->AcquireCall(2);
    used.insert(call.get());
    hold.reset();  // the call before this one was at work until now
    hold.emplace(stream.get());
    ASSERT_EQ(call->Begin({&query, 1}, Stream{stream.get()}), absl::OkStatus());
  }
  EXPECT_EQ(used.size(), 2U);
}

TEST_F(GpuCacheTest, DeadlinesEndWaitsAndTheCallComesBackWhenTheDeviceIsDone) {
  DeviceCacheOptions options = kSmall;
  options.calls_max = 1;
  UseCache(options);
  const StampedTable table = {OpenTable(16, 100), 1};
  StampedBatch batch(table, {1, 2}, 1);
  ASSERT_TRUE(table.table->InsertIfAbsent(batch.batch(), 0).ok());
  ASSERT_EQ(table.table->Flush(kNoDeadline), absl::OkStatus());

  // The caller's stream is busy for milliseconds.
  const CudaStream stream = *MakeStream(StreamPriority::kHigh);
  const auto busy = *MakeDeviceBuffer("to be set", size_t{4} << 30);
  const std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(32);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .keys = keys.data(),
                                  .key_count = 2,
                                  .rows = rows.data(),
                                  .row_bytes = 16,
                                  .row_stride_bytes = 16};
  {
    auto call = *cache_->AcquireCall(2);
    for (int i = 0; i < 20; ++i)
      ASSERT_EQ(cudaMemsetAsync(busy.data(), i, busy.bytes(), stream.get()), cudaSuccess);
    ASSERT_EQ(call->Begin({&query, 1}, Stream{stream.get()}), absl::OkStatus());
    EXPECT_EQ(call->Misses(TimePoint::min()).status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(rows, std::vector<std::byte>(32)) << "nothing is written after the return";
  const DeviceCallLease ahead = *cache_->AcquireCallAhead(2);
  EXPECT_EQ(cache_->AcquireCall(2).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  auto call = cache_->AcquireCall(2);
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_EQ((*call)->Begin({&query, 1}, Stream()), absl::OkStatus());
  ASSERT_TRUE((*call)->Misses(kNoDeadline).ok());
  ASSERT_EQ((*call)->Wait(kNoDeadline), absl::OkStatus());
  EXPECT_TRUE(StampedRow::Matches(1, 1, 1, {rows.data(), 16}));
}

// The default stream can be named explicitly, so that a caller that works on it need not wait for
// it.
TEST_F(GpuCacheTest, ALookUpIsOrderedOnTheDefaultStreamByItsName) {
  UseCache(kSmall);
  const StampedTable table = {OpenTable(16, 100), 1};
  StampedBatch batch(table, {1, 2}, 1);
  ASSERT_TRUE(table.table->InsertIfAbsent(batch.batch(), 0).ok());
  ASSERT_EQ(table.table->Flush(kNoDeadline), absl::OkStatus());

  const auto busy = *MakeDeviceBuffer("to be set", size_t{1} << 30);
  const auto keys = *MakeDeviceBuffer("keys", 2 * sizeof(Key));
  const auto rows = *MakeDeviceBuffer("rows", 32);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .space = MemorySpace::kDevice,
                                  .keys = keys.at<Key>(0),
                                  .key_count = 2,
                                  .rows = rows.data(),
                                  .row_bytes = 16,
                                  .row_stride_bytes = 16};
  auto call = *cache_->AcquireCall(2);
  // The keys arrive late.
  ASSERT_EQ(cudaMemsetAsync(busy.data(), 0, busy.bytes(), cudaStreamLegacy), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(keys.data(), batch.keys().data(), 2 * sizeof(Key),
                            cudaMemcpyHostToDevice, cudaStreamLegacy),
            cudaSuccess);
  ASSERT_EQ(call->Begin({&query, 1}, Stream{cudaStreamLegacy}), absl::OkStatus());
  std::array<std::byte, 32> read = {};
  ASSERT_EQ(cudaMemcpyAsync(read.data(), rows.data(), read.size(), cudaMemcpyDeviceToHost,
                            cudaStreamLegacy),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  EXPECT_TRUE(StampedRow::Matches(1, 1, 1, {read.data(), 16}));
  EXPECT_TRUE(StampedRow::Matches(1, 2, 1, {read.data() + 16, 16}));
  const auto misses = call->Misses(kNoDeadline);
  ASSERT_TRUE(misses.ok()) << misses.status();
  EXPECT_TRUE(misses->keys[0].empty());
}

// Catches: a cache or a table that is destroyed before lookups that were returned while the device
// still worked on them, and frees their memory; and an unlimited wait for them.
TEST_F(GpuCacheTest, LeavesItsMemoryToADeviceThatHangs) {
  auto cache = *MakeGpuCache({.bytes_max = 1 << 20, .calls_max = 2, .call_keys_max = 10},
                             kHangTimeoutOfTests);
  StampedTable table = {*cache->OpenTable(16, cache->TableBytes(16, 100)), 1};
  const CudaStream stream = *MakeStream(StreamPriority::kHigh);
  const auto keys = *MakeDeviceBuffer("keys", 2 * sizeof(Key));
  const auto rows = *MakeDeviceBuffer("rows", 32);
  ASSERT_EQ(cudaMemset(keys.data(), 0, keys.bytes()), cudaSuccess);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .space = MemorySpace::kDevice,
                                  .keys = keys.at<Key>(0),
                                  .key_count = 2,
                                  .rows = rows.data(),
                                  .row_bytes = 16,
                                  .row_stride_bytes = 16};
  const StreamHold hold(stream.get());
  {
    auto call = *cache->AcquireCall(2);
    ASSERT_EQ(call->Begin({&query, 1}, Stream{stream.get()}), absl::OkStatus());
    EXPECT_EQ(call->Misses(RealClock().Now()).status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  table.table.reset();
  EXPECT_FALSE(cache->OpenTable(16, uint64_t{1} << 20).ok()) << "its bytes are the device's";
  cache.reset();
}

// In its own process: every operation on a failed device returns INTERNAL with the device's error
// text, and everything can still be destroyed. Returns the exit status.
int UseABrokenDevice() {
  int unexpected = 0;
  const auto expect_internal = [&](const char* what, const absl::Status& status) {
    if (status.code() == absl::StatusCode::kInternal) return;
    std::cerr << what << ": " << status << "\n";
    ++unexpected;
  };
  auto cache = MakeGpuCache({.bytes_max = 64 << 20, .calls_max = 3, .call_keys_max = 1000});
  if (!cache.ok()) return 1;
  const StampedTable table = {*(*cache)->OpenTable(16, (*cache)->TableBytes(16, 100)), 1};
  StampedBatch batch(table, {1, 2}, 1);
  std::vector<std::byte> rows(32);
  const DeviceCacheQuery query = {.table = table.table.get(),
                                  .keys = batch.keys().data(),
                                  .key_count = 2,
                                  .rows = rows.data(),
                                  .row_bytes = 16,
                                  .row_stride_bytes = 16};
  auto under_way = *(*cache)->AcquireCall(2);
  if (!under_way->Begin({&query, 1}, Stream()).ok()) return 1;
  const CudaStream stream = *MakeStream(StreamPriority::kHigh);
  if (LaunchTrap(stream.get()) != cudaSuccess) return 1;
  if (cudaStreamSynchronize(stream.get()) == cudaSuccess) return 1;

  expect_internal("Misses", under_way->Misses(kNoDeadline).status());
  auto call = (*cache)->AcquireCall(2);
  if (!call.ok()) return 1;
  expect_internal("Begin", (*call)->Begin({&query, 1}, Stream()));
  expect_internal("InsertIfAbsent", table.table->InsertIfAbsent(batch.batch(), 0).status());
  expect_internal("Update", table.table->Update(batch.batch(), kNoDeadline));
  expect_internal("Erase", table.table->Erase(batch.keys(), kNoDeadline));
  expect_internal("RaiseWatermarks", table.table->RaiseWatermarks(batch.keys(), 1, kNoDeadline));
  std::vector<Key> keys(100);
  uint64_t cursor = 0;
  expect_internal("Dump", table.table->Dump(&cursor, keys, kNoDeadline).status());
  expect_internal("Clear", table.table->Clear());
  expect_internal("Flush", table.table->Flush(kNoDeadline));
  expect_internal("OpenTable", (*cache)->OpenTable(16, 1 << 20).status());
  if (table.table->Statistics().errors == 0) ++unexpected;
  return unexpected;
}

using GpuCacheDeathTest = GpuCacheTest;

TEST_F(GpuCacheDeathTest, ABrokenDeviceIsAnErrorForEveryOperationAndNeverACrash) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(UseABrokenDevice()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hps
