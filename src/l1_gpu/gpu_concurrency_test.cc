// A node in small on a GPU: sources of rows with their appliers, promoters, a dumper, and readers
// with streams of their own. Every row that is read is checked on the device: whole, of its own key
// and table, and never older than the reader has seen it. HPS_TEST_ROWS sets how many rows are
// read.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_gpu.h"
#include "l1_gpu/test_row_check.h"

namespace hps {
namespace {

// The test ends by then, whatever it has read.
constexpr Duration kReadingMax = std::chrono::seconds(120);

struct Shape {
  size_t row_bytes;
  uint64_t key_range;  // keys are 0 to key_range - 1
  uint64_t row_count;  // that the table is made for
  size_t change_keys_max;
};
// Rows of one request each that are nearly all held; rows of several requests under constant
// eviction and moves; wide rows of few keys that are overwritten all the time.
constexpr std::array<Shape, 3> kShapes = {{{32, uint64_t{1} << 19, uint64_t{1} << 19, 4096},
                                           {144, uint64_t{1} << 18, uint64_t{1} << 17, 2048},
                                           {1024, 4096, 4096, 4096}}};

class Source {
 public:
  Source(const Shape& shape, StampedTable table)
      : shape_(shape), table_(std::move(table)), versions_(shape.key_range) {
    for (auto& version : versions_) version.store(1, std::memory_order_relaxed);
  }

  const Shape& shape() const { return shape_; }
  const StampedTable& table() const { return table_; }

  void Fill() {
    for (uint64_t first = 0; first < shape_.key_range; first += 4096) {
      std::vector<Key> keys;
      for (uint64_t key = first; key < std::min(first + 4096, shape_.key_range); ++key)
        keys.push_back(static_cast<Key>(key));
      StampedBatch batch(table_, keys, 1);
      ASSERT_TRUE(table_.table->Replace(batch.batch(), 0).ok());
      ASSERT_EQ(table_.table->Flush(kNoDeadline), absl::OkStatus());
    }
  }

  // Even versions are deletions. A change goes to the source between the fence and the
  // publication; the table is brought up to date afterwards.
  void Apply(const std::atomic<bool>& stopped) {
    std::mt19937_64 random(11 + shape_.row_bytes);
    while (!stopped) {
      const std::vector<Key> keys = DrawRun(random, 1 + random() % shape_.change_keys_max);
      const ApplyEpoch epoch = epochs_.Begin();
      EXPECT_EQ(table_.table->RaiseWatermarks(keys, epoch, kNoDeadline), absl::OkStatus());
      std::vector<Key> deleted, changed;
      std::vector<Version> changed_versions;
      for (Key key : keys) {
        const Version now = Current(key);
        const bool deletes = now % 2 == 1 && random() % 64 == 0;
        const Version next = deletes ? now + 1 : (now | 1) + 2;
        versions_[static_cast<size_t>(key)].store(next);
        (deletes ? deleted : changed).push_back(key);
        if (!deletes) changed_versions.push_back(next);
      }
      epochs_.Publish(epoch);
      StampedBatch batch(table_, changed, changed_versions);
      EXPECT_EQ(table_.table->Update(batch.batch(), kNoDeadline), absl::OkStatus());
      EXPECT_EQ(table_.table->Erase(deleted, kNoDeadline), absl::OkStatus());
    }
  }

  void Promote(const std::atomic<bool>& stopped, uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!stopped) {
      const ApplyEpoch epoch = epochs_.published();
      std::vector<Key> keys;
      std::vector<Version> versions;
      for (Key key : DrawRun(random, 1 + random() % 2048)) {
        const Version version = Current(key);
        if (version % 2 == 0) continue;
        keys.push_back(key);
        versions.push_back(version);
      }
      StampedBatch batch(table_, keys, versions);
      const absl::Status replaced = table_.table->Replace(batch.batch(), epoch).status();
      EXPECT_TRUE(replaced.ok() || absl::IsResourceExhausted(replaced)) << replaced;
      if (!replaced.ok()) std::this_thread::yield();
    }
  }

  void Dump(const std::atomic<bool>& stopped) {
    std::vector<Key> keys(5000);
    while (!stopped) {
      uint64_t cursor = 0;
      for (size_t count = 1; count > 0 && !stopped;) {
        const auto dumped = table_.table->Dump(&cursor, keys, kNoDeadline);
        ASSERT_TRUE(dumped.ok()) << dumped.status();
        count = *dumped;
        for (size_t i = 0; i < count; ++i) {
          ASSERT_TRUE(keys[i] >= 0 && static_cast<uint64_t>(keys[i]) < shape_.key_range)
              << "dumped key " << keys[i] << " was never inserted";
        }
      }
    }
  }

 private:
  Version Current(Key key) const { return versions_[static_cast<size_t>(key)].load(); }

  // Unique keys from anywhere, at an odd distance.
  std::vector<Key> DrawRun(std::mt19937_64& random, size_t count) const {
    std::vector<Key> keys(std::min<uint64_t>(count, shape_.key_range));
    const uint64_t first = random(), step = random() | 1;
    for (size_t i = 0; i < keys.size(); ++i)
      keys[i] = static_cast<Key>((first + i * step) % shape_.key_range);
    return keys;
  }

  const Shape shape_;
  const StampedTable table_;
  ApplyEpochs epochs_;
  std::vector<std::atomic<Version>> versions_;
};

// One session: its stream, its outputs, and what it has seen.
class Reader {
 public:
  // Short launches, so that writes get their turn between them.
  static constexpr size_t kKeysMax = size_t{1} << 16;

  explicit Reader(const std::vector<std::unique_ptr<Source>>& sources)
      : sources_(sources),
        // Not above the writer's: readers that fill the device would keep it from writing.
        stream_(*MakeStream(StreamPriority::kLow)),
        done_(*MakeEvent()),
        result_(*MakeDeviceBuffer("result", sizeof(RowCheckResult))) {
    EXPECT_EQ(cudaMemset(result_.data(), 0, result_.bytes()), cudaSuccess);
    for (const auto& source : sources) {
      const size_t count = KeysOf(*source);
      Part part{.keys = *MakeDeviceBuffer("keys", count * sizeof(Key)),
                .rows = *MakeDeviceBuffer("rows", count * source->shape().row_bytes),
                .status = *MakeDeviceBuffer("status", count),
                .seen = *MakeDeviceBuffer("seen", source->shape().key_range * sizeof(Version))};
      EXPECT_EQ(cudaMemset(part.seen.data(), 0, part.seen.bytes()), cudaSuccess);
      parts_.push_back(std::move(part));
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  void Read(DeviceCache& cache, uint64_t seed, const std::function<bool(uint64_t hits)>& goes_on) {
    std::mt19937_64 random(seed);
    uint64_t hits = 0;
    do {
      hits = 0;
      std::vector<DeviceCacheQuery> queries;
      size_t key_count = 0;
      for (size_t s = 0; s < parts_.size(); ++s) {
        queries.push_back(Prepare(s, random));
        key_count += queries.back().key_count;
      }
      auto call = cache.AcquireCall(key_count);
      ASSERT_TRUE(call.ok()) << call.status();
      ASSERT_EQ((*call)->Begin(queries, Stream{stream_.get()}), absl::OkStatus());
      ASSERT_TRUE((*call)->Misses(kNoDeadline).ok());
      for (size_t s = 0; s < parts_.size(); ++s) {
        hits += (*call)->counts(s)[KeyStatus::kHitL1];
        Check(s);
      }
      // The buffers are used again.
      ASSERT_EQ(cudaEventRecord(done_.get(), stream_.get()), cudaSuccess);
      ASSERT_EQ(WaitFor(done_.get(), kNoDeadline, "checks"), absl::OkStatus());
    } while (goes_on(hits));
  }

  RowCheckResult Result() const {
    RowCheckResult result;
    EXPECT_EQ(cudaMemcpy(&result, result_.data(), sizeof(result), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return result;
  }

 private:
  struct Part {
    DeviceBuffer keys, rows, status, seen;
  };
  static size_t KeysOf(const Source& source) {
    return std::min<size_t>(kKeysMax, source.shape().key_range);
  }

  DeviceCacheQuery Prepare(size_t s, std::mt19937_64& random) {
    const Source& source = *sources_[s];
    const size_t count = KeysOf(source);
    // The range is a power of two, so an odd step visits no key twice.
    EXPECT_EQ(LaunchMakeKeys({.keys = parts_[s].keys.at<Key>(0),
                              .count = count,
                              .first = random(),
                              .step = random() | 1,
                              .key_range = source.shape().key_range},
                             stream_.get()),
              cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(parts_[s].status.data(), 0xee, count, stream_.get()), cudaSuccess);
    return {.table = source.table().table.get(),
            .space = MemorySpace::kDevice,
            .keys = parts_[s].keys.at<Key>(0),
            .key_count = count,
            .rows = parts_[s].rows.data(),
            .row_bytes = source.shape().row_bytes,
            .row_stride_bytes = source.shape().row_bytes,
            .status = parts_[s].status.at<KeyStatus>(0)};
  }

  void Check(size_t s) {
    const Source& source = *sources_[s];
    EXPECT_EQ(LaunchRowCheck({.table = source.table().number,
                              .keys = parts_[s].keys.at<Key>(0),
                              .key_count = KeysOf(source),
                              .rows = parts_[s].rows.data(),
                              .row_bytes = source.shape().row_bytes,
                              .row_stride_bytes = source.shape().row_bytes,
                              .status = parts_[s].status.at<KeyStatus>(0),
                              .seen = parts_[s].seen.at<Version>(0),
                              .result = result_.at<RowCheckResult>(0)},
                             stream_.get()),
              cudaSuccess);
  }

  const std::vector<std::unique_ptr<Source>>& sources_;
  const CudaStream stream_;
  const CudaEvent done_;
  const DeviceBuffer result_;
  std::vector<Part> parts_;
};

using GpuConcurrencyTest = GpuTest;

TEST_F(GpuConcurrencyTest, ReadersSeeWholeRowsThatNeverGoBack) {
  constexpr size_t kReaders = 4;
  const char* const wanted = std::getenv("HPS_TEST_ROWS");
  const uint64_t rows_wanted =
      wanted == nullptr ? 1'000'000'000 : std::strtoull(wanted, nullptr, 10);
  auto cache = MakeGpuCache({.bytes_max = uint64_t{1} << 30,
                             .calls_max = 2 * kReaders,
                             .call_keys_max = kShapes.size() * Reader::kKeysMax});
  ASSERT_TRUE(cache.ok()) << cache.status();
  std::vector<std::unique_ptr<Source>> sources;
  for (const Shape& shape : kShapes) {
    auto table = (*cache)->OpenTable(shape.row_bytes,
                                     (*cache)->TableBytes(shape.row_bytes, shape.row_count));
    ASSERT_TRUE(table.ok()) << table.status();
    sources.push_back(
        std::make_unique<Source>(shape, StampedTable{*std::move(table), sources.size() + 1}));
    sources.back()->Fill();
  }
  std::vector<std::unique_ptr<Reader>> readers;
  for (size_t i = 0; i < kReaders; ++i) readers.push_back(std::make_unique<Reader>(sources));

  std::atomic<bool> stopped = false;
  std::atomic<uint64_t> rows_read = 0;
  const Deadline latest = DeadlineAfter(RealClock(), kReadingMax);
  const auto goes_on = [&](uint64_t hits) {
    return rows_read.fetch_add(hits) + hits < rows_wanted && RealClock().Now() < latest;
  };
  std::vector<std::thread> writers;
  for (const auto& source : sources) {
    writers.emplace_back([&] { source->Apply(stopped); });
    writers.emplace_back([&] { source->Promote(stopped, 3); });
    writers.emplace_back([&] { source->Dump(stopped); });
  }
  std::vector<std::thread> reading;
  for (size_t i = 0; i < kReaders; ++i)
    reading.emplace_back([&, i] { readers[i]->Read(**cache, 100 + i, goes_on); });
  for (std::thread& thread : reading) thread.join();
  stopped = true;
  for (std::thread& thread : writers) thread.join();

  RowCheckResult sum;
  for (const auto& reader : readers) {
    const RowCheckResult result = reader->Result();
    sum.hits += result.hits;
    sum.foreign += result.foreign;
    sum.back += result.back;
  }
  EXPECT_EQ(sum.hits, rows_read.load());
  EXPECT_GE(sum.hits, rows_wanted);
  EXPECT_EQ(sum.foreign, 0u) << "torn, or another key's";
  EXPECT_EQ(sum.back, 0u) << "older than before";
  std::cout << sum.hits << " rows read\n";
  for (const auto& source : sources) {
    ASSERT_EQ(source->table().table->Flush(kNoDeadline), absl::OkStatus());
    const LevelStatistics statistics = source->table().table->Statistics();
    std::cout << "rows of " << source->shape().row_bytes << " bytes: " << statistics.updates
              << " updates, " << statistics.insertions << " insertions, " << statistics.evictions
              << " evictions, " << statistics.refused << " refused, " << statistics.entries
              << " held\n";
    EXPECT_GT(statistics.updates, 0u);
    EXPECT_GT(statistics.refused, 0u);
  }
}

}  // namespace
}  // namespace hps
