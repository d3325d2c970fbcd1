// Random operations on tables of all widths, compared with a plain map of their sources: every
// answer of a table must be its source's current row. Rows are checked on the device, so that there
// can be many. HPS_TEST_OPERATIONS sets their number (keys read, promoted, changed or erased).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gpu/cuda_resources.h"
#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_row_check.h"
#include "testing/contracts/device_cache_contract_fixture.h"

namespace hps {
namespace {

constexpr Version kNowhere = UINT64_MAX;  // no row matches it
constexpr size_t kKeySpace = 30'000;
constexpr size_t kQueryBytesMax = size_t{32} << 20;

// The special keys first, the others spread over all 64 bits.
Key KeyOf(size_t index) {
  constexpr Key kSpecial[] = {0, -1, INT64_MIN, INT64_MAX, 1, INT64_MIN + 1};
  if (index < std::size(kSpecial)) return kSpecial[index];
  return static_cast<Key>(index * 0x9e3779b97f4a7c15);
}

class History {
 public:
  History(uint64_t seed, StampedTable table) : table_(std::move(table)), random_(seed) {}

  const StampedTable& table() const { return table_; }
  Version Expected(size_t index) const { return source_[index]; }
  uint64_t refused() const { return refused_; }
  uint64_t dropped() const { return dropped_; }

  size_t Draw(size_t count) { return random_() % count; }
  size_t DrawIndex() {
    // A few hot keys meet all operations often; the other keys fill the capacity.
    return Draw(4) == 0 ? Draw(50) : Draw(kKeySpace);
  }
  std::vector<size_t> DrawUnique(size_t count) {
    std::vector<size_t> indices(count);
    for (size_t& index : indices) index = DrawIndex();
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    return indices;
  }

  size_t Fetch() {
    Promotion promotion{.epoch = epochs_.published()};
    for (size_t index : DrawUnique(1 + Draw(BatchMax()))) {
      if (source_[index] == kNowhere) continue;
      promotion.keys.push_back(KeyOf(index));
      promotion.versions.push_back(source_[index]);
    }
    const size_t count = promotion.keys.size();
    fetched_.push_back(std::move(promotion));
    if (fetched_.size() > 8) fetched_.pop_front();
    return count;
  }

  // Inserts one of the fetched batches, the newest or any older one.
  size_t Promote() {
    if (fetched_.empty()) return 0;
    const size_t index = Draw(2) == 0 ? fetched_.size() - 1 : Draw(fetched_.size());
    const Promotion promotion = std::move(fetched_[index]);
    fetched_.erase(fetched_.begin() + static_cast<std::ptrdiff_t>(index));
    StampedBatch batch(table_, promotion.keys, promotion.versions);
    const auto refused = table_.table->InsertIfAbsent(batch.batch(), promotion.epoch);
    if (absl::IsResourceExhausted(refused.status())) {
      ++dropped_;
      return 0;
    }
    EXPECT_TRUE(refused.ok()) << refused.status();
    refused_ += refused.value_or(0);
    return promotion.keys.size();
  }

  size_t Change() {
    const std::vector<size_t> indices = DrawUnique(1 + Draw(BatchMax() / 4 + 1));
    std::vector<Key> keys;
    for (size_t index : indices) keys.push_back(KeyOf(index));
    const bool erases = Draw(4) == 0;
    const ApplyEpoch epoch = epochs_.Begin();
    EXPECT_EQ(table_.table->RaiseWatermarks(keys, epoch, kNoDeadline), absl::OkStatus());
    ++version_;
    for (size_t index : indices) source_[index] = erases ? kNowhere : version_;
    epochs_.Publish(epoch);
    if (erases) {
      EXPECT_EQ(table_.table->Erase(keys, kNoDeadline), absl::OkStatus());
    } else {
      StampedBatch batch(table_, keys, version_);
      EXPECT_EQ(table_.table->Update(batch.batch(), kNoDeadline), absl::OkStatus());
    }
    return indices.size();
  }

  // Every dumped key is one of the source's and appears once; their number is that of the held
  // keys.
  void CheckDump() {
    std::vector<Key> all, buffer(1000);
    uint64_t cursor = 0;
    for (;;) {
      const auto count = table_.table->Dump(&cursor, buffer, kNoDeadline);
      ASSERT_TRUE(count.ok()) << count.status();
      if (*count == 0) break;
      all.insert(all.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    std::sort(all.begin(), all.end());
    ASSERT_TRUE(std::adjacent_find(all.begin(), all.end()) == all.end()) << "a key twice";
    ASSERT_EQ(all.size(), table_.table->Statistics().entries);
    std::vector<Key> legal;
    for (size_t index = 0; index < kKeySpace; ++index) {
      if (source_[index] != kNowhere) legal.push_back(KeyOf(index));
    }
    std::sort(legal.begin(), legal.end());
    ASSERT_TRUE(std::includes(legal.begin(), legal.end(), all.begin(), all.end()));
  }

 private:
  struct Promotion {
    std::vector<Key> keys;
    std::vector<Version> versions;
    ApplyEpoch epoch = 0;
  };
  size_t BatchMax() const { return std::min<size_t>(4000, (size_t{1} << 20) / table_.row_bytes()); }

  const StampedTable table_;
  std::mt19937_64 random_;
  ApplyEpochs epochs_;
  std::vector<Version> source_ = std::vector<Version>(kKeySpace, kNowhere);
  std::deque<Promotion> fetched_;
  Version version_ = 0;
  uint64_t refused_ = 0;
  uint64_t dropped_ = 0;
};

// One query of a lookup, its buffers on the device.
class CheckedQuery {
 public:
  CheckedQuery()
      : keys_(*MakeDeviceBuffer("keys", kKeysMax * sizeof(Key))),
        expected_(*MakeDeviceBuffer("versions", kKeysMax * sizeof(Version))),
        status_(*MakeDeviceBuffer("status", kKeysMax)),
        rows_(*MakeDeviceBuffer("rows", kQueryBytesMax + 64)) {}

  static constexpr size_t kKeysMax = 16'384;

  DeviceCacheQuery Prepare(History& history, cudaStream_t stream) {
    constexpr size_t kCounts[] = {0, 1, 31, 32, 33, 1000, 4096, kKeysMax, kKeysMax, kKeysMax};
    history_ = &history;
    const size_t row_bytes = history.table().row_bytes();
    const size_t offset = history.Draw(2) == 0 ? 0 : history.Draw(64);
    stride_ = row_bytes + (history.Draw(3) == 0 ? history.Draw(20) : 0);
    count_ = std::min(kCounts[history.Draw(std::size(kCounts))], kQueryBytesMax / stride_);
    host_keys_.resize(count_);
    host_expected_.resize(count_);
    for (size_t i = 0; i < count_; ++i) {
      const size_t index = history.DrawIndex();
      host_keys_[i] = KeyOf(index);
      host_expected_[i] = history.Expected(index);
    }
    first_row_ = rows_.data() + offset;
    Copy(keys_, host_keys_.data(), count_ * sizeof(Key), stream);
    Copy(expected_, host_expected_.data(), count_ * sizeof(Version), stream);
    EXPECT_EQ(cudaMemsetAsync(status_.data(), 0xee, kKeysMax, stream), cudaSuccess);
    return {.table = history.table().table.get(),
            .space = MemorySpace::kDevice,
            .keys = keys_.at<Key>(0),
            .key_count = count_,
            .rows = first_row_,
            .row_bytes = row_bytes,
            .row_stride_bytes = stride_,
            .status = status_.at<KeyStatus>(0)};
  }

  void Check(RowCheckResult* result, cudaStream_t stream) const {
    const RowCheckArgs args = {.table = history_->table().number,
                               .keys = keys_.at<Key>(0),
                               .key_count = count_,
                               .rows = first_row_,
                               .row_bytes = history_->table().row_bytes(),
                               .row_stride_bytes = stride_,
                               .status = status_.at<KeyStatus>(0),
                               .expected = expected_.at<Version>(0),
                               .result = result};
    EXPECT_EQ(LaunchRowCheck(args, stream), cudaSuccess);
  }

 private:
  static void Copy(const DeviceBuffer& to, const void* from, size_t bytes, cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  }

  DeviceBuffer keys_, expected_, status_, rows_;
  const History* history_ = nullptr;
  std::vector<Key> host_keys_;
  std::vector<Version> host_expected_;
  std::byte* first_row_ = nullptr;
  size_t stride_ = 0;
  size_t count_ = 0;
};

struct Width {
  size_t row_bytes;
  size_t weight;  // its share of the operations, in percent: wide rows take longer
};
constexpr Width kWidths[] = {{1, 18},   {3, 14},   {4, 14},   {64, 14},  {127, 10},
                             {128, 10}, {512, 10}, {1000, 5}, {4096, 3}, {16384, 2}};

class GpuRandomTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto cache = MakeGpuCache({.bytes_max = uint64_t{2} << 30,
                               .calls_max = 2,
                               .call_keys_max = 4 * CheckedQuery::kKeysMax});
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    for (const auto& [row_bytes, weight] : kWidths) {
      StampedTable table{
          *cache_->OpenTable(row_bytes, cache_->TableBytes(row_bytes, kKeySpace / 8)),
          histories_.size() + 1};
      histories_.push_back(std::make_unique<History>(kSeed + row_bytes, std::move(table)));
      by_weight_.insert(by_weight_.end(), weight, histories_.back().get());
    }
    queries_.resize(4);
    stream_ = *MakeStream(StreamPriority::kHigh);
    result_ = *MakeDeviceBuffer("result", sizeof(RowCheckResult));
    ASSERT_EQ(cudaMemset(result_.data(), 0, result_.bytes()), cudaSuccess);
  }

  History& AnyHistory() { return *by_weight_[random_() % by_weight_.size()]; }

  // Queries one to four tables in one call; misses are answered as absent.
  size_t LookUp() {
    std::vector<DeviceCacheQuery> requests;
    const size_t query_count = 1 + random_() % queries_.size();
    for (size_t q = 0; q < query_count; ++q) {
      History& history = AnyHistory();
      EXPECT_EQ(history.table().table->Flush(kNoDeadline), absl::OkStatus());
      requests.push_back(queries_[q].Prepare(history, stream_.get()));
    }
    size_t key_count = 0;
    for (const DeviceCacheQuery& request : requests) key_count += request.key_count;
    auto call = cache_->AcquireCall(key_count);
    EXPECT_TRUE(call.ok()) << call.status();
    EXPECT_EQ((*call)->Begin(requests, Stream{stream_.get()}), absl::OkStatus());
    const auto misses = (*call)->Misses(kNoDeadline);
    EXPECT_TRUE(misses.ok()) << misses.status();
    const std::vector<KeyStatus> absent(key_count, KeyStatus::kAbsent);
    for (size_t q = 0; q < query_count; ++q) {
      const size_t count = misses->keys[q].size();
      const DeviceRowPiece piece{.query = q, .statuses = std::span(absent).first(count)};
      EXPECT_EQ((*call)->Finish({&piece, 1}), absl::OkStatus());
    }
    EXPECT_EQ((*call)->Wait(kNoDeadline), absl::OkStatus());
    for (size_t q = 0; q < query_count; ++q) {
      const LookupCounts counts = (*call)->counts(q);
      EXPECT_EQ(counts.total(), requests[q].key_count);
      hits_ += counts[KeyStatus::kHitL1];
      queries_[q].Check(result_.at<RowCheckResult>(0), stream_.get());
    }
    return key_count;
  }

  RowCheckResult Result() {
    RowCheckResult result;
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&result, result_.data(), sizeof(result), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return result;
  }

  static constexpr uint64_t kSeed = 20'261'121;
  std::mt19937_64 random_{kSeed};
  std::unique_ptr<DeviceCache> cache_;
  std::vector<std::unique_ptr<History>> histories_;
  std::vector<History*> by_weight_;
  std::vector<CheckedQuery> queries_;
  CudaStream stream_;
  DeviceBuffer result_;
  uint64_t hits_ = 0;
};

TEST_F(GpuRandomTest, RandomOperationsOfAllWidthsAgreeWithAMap) {
  const char* const wanted = std::getenv("HPS_TEST_OPERATIONS");
  const uint64_t operations_wanted =
      wanted == nullptr ? 10'000'000 : std::strtoull(wanted, nullptr, 10);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  uint64_t operations = 0;
  for (uint64_t step = 0; operations < operations_wanted && !HasFailure(); ++step) {
    for (int i = 0; i < 4; ++i) {
      History& history = AnyHistory();
      const uint64_t choice = random_() % 1000;
      if (choice < 400) operations += history.Fetch();
      if (choice >= 200 && choice < 600) operations += history.Promote();
      if (choice >= 600 && choice < 800) operations += history.Change();
      if (choice == 999) {
        ASSERT_EQ(history.table().table->Clear(), absl::OkStatus());
      }
    }
    operations += LookUp();
    if (step % 200 != 0) continue;
    const RowCheckResult result = Result();
    ASSERT_EQ(result.foreign, 0u) << "after " << operations << " operations";
    ASSERT_EQ(result.hits, hits_);
    History& history = AnyHistory();
    ASSERT_EQ(history.table().table->Flush(kNoDeadline), absl::OkStatus());
    history.CheckDump();
  }
  const RowCheckResult result = Result();
  EXPECT_EQ(result.foreign, 0u);
  EXPECT_EQ(result.hits, hits_);
  EXPECT_GE(hits_, operations / 10);  // the history did exercise hits,
  uint64_t evictions = 0, refused = 0, updates = 0, dropped = 0;
  for (const auto& history : histories_) {
    ASSERT_EQ(history->table().table->Flush(kNoDeadline), absl::OkStatus());
    const LevelStatistics statistics = history->table().table->Statistics();
    evictions += statistics.evictions;
    updates += statistics.updates;
    refused += history->refused();
    dropped += history->dropped();
  }
  EXPECT_GT(updates, 0u);  // changes,
  EXPECT_GT(refused, 0u);  // the fence,
  if (operations >= 10'000'000) {
    EXPECT_GT(evictions, 0u);  // and evictions, once the tables are full
  }
  std::cout << operations << " operations, " << hits_ << " hits checked, " << updates
            << " updates, " << evictions << " evictions, " << refused << " refused, " << dropped
            << " batches dropped\n";
}

}  // namespace
}  // namespace hps
