// A small node on a GPU: sources of rows with their appliers, promoters, dumpers, and readers with
// their own streams. Every row that is read is checked: complete, of its own key and table, and
// never older than the reader has seen it. Keys that are never erased nor inserted again are never
// reported as missing, unless they were evicted, which is checked at the end. HPS_TEST_ROWS sets
// the number of rows to read.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/cuda_resources.h"
#include "gpu/test_gpu.h"
#include "l1_gpu/gpu_cache.h"
#include "l1_gpu/test_row_check.h"
#include "testing/contracts/device_cache_contract_fixture.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

// The test ends by then, however many rows it has read.
constexpr Duration kReadingMax = std::chrono::seconds(120);

struct Shape {
  size_t row_bytes;
  uint64_t key_range;  // keys are 0 to key_range - 1
  uint64_t row_count;  // that the table is sized for
  size_t change_keys_max;

  // Narrower rows don't carry their version: it stays 1, whatever is written.
  bool has_versions() const { return row_bytes >= 16; }
};
// Three shapes: rows of one memory request each that are nearly all held; rows of several requests
// with constant eviction and moves; wide rows of few keys that are overwritten constantly.
constexpr std::array<Shape, 3> kShapes = {{{32, uint64_t{1} << 19, uint64_t{1} << 19, 4096},
                                           {144, uint64_t{1} << 18, uint64_t{1} << 17, 2048},
                                           {1024, 4096, 4096, 4096}}};
// The widths with their own kernels, and one that is copied byte by byte.
constexpr std::array<Shape, 5> kShapesOfKernels = {{{512, uint64_t{1} << 16, 60'000, 2048},
                                                    {256, uint64_t{1} << 16, 60'000, 2048},
                                                    {128, uint64_t{1} << 18, 240'000, 2048},
                                                    {64, uint64_t{1} << 17, 120'000, 2048},
                                                    {3, uint64_t{1} << 16, 60'000, 2048}}};

// The kind of concurrent writers. During updates only, readers prove less.
enum class Writing { kAll, kUpdatesAlone };

// Keys that are inserted once, before the first lookup, and never erased.
bool IsKept(Key key) { return key % 4 == 0; }

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
      ASSERT_TRUE(table_.table->InsertIfAbsent(batch.batch(), 0).ok());
      ASSERT_EQ(table_.table->Flush(kNoDeadline), absl::OkStatus());
    }
  }

  // The permanent keys that are not held after the last write. [key_range]
  std::vector<bool> GoneKeys(DeviceCache& cache) const {
    std::vector<bool> gone(shape_.key_range);
    std::vector<std::byte> rows(kGoneKeysPerCall * shape_.row_bytes);
    for (uint64_t first = 0; first < shape_.key_range; first += 4 * kGoneKeysPerCall) {
      std::vector<Key> keys;
      const uint64_t end = std::min(first + 4 * kGoneKeysPerCall, shape_.key_range);
      for (uint64_t key = first; key < end; key += 4) keys.push_back(static_cast<Key>(key));
      const DeviceCacheQuery query = {.table = table_.table.get(),
                                      .keys = keys.data(),
                                      .key_count = keys.size(),
                                      .rows = rows.data(),
                                      .row_bytes = shape_.row_bytes,
                                      .row_stride_bytes = shape_.row_bytes};
      const DeviceCallLease call = *cache.AcquireCall(keys.size());
      EXPECT_EQ(call->Begin({&query, 1}, Stream()), absl::OkStatus());
      const DeviceMisses misses = *call->Misses(kNoDeadline);
      for (Key key : misses.keys[0]) gone[static_cast<size_t>(key)] = true;
    }
    return gone;
  }

  // Even versions are deletions. A change goes to the source between the fence and the publication;
  // the table is refreshed afterwards.
  void Apply(const std::atomic<bool>& stopped, Writing writing) {
    std::mt19937_64 random(11 + shape_.row_bytes);
    while (!stopped) {
      const std::vector<Key> keys = DrawRun(random, 1 + random() % shape_.change_keys_max);
      const ApplyEpoch epoch = epochs_.Begin();
      EXPECT_EQ(table_.table->RaiseWatermarks(keys, epoch, kNoDeadline), absl::OkStatus());
      std::vector<Key> deleted, changed;
      std::vector<Version> changed_versions;
      for (Key key : keys) {
        const Version now = Current(key);
        const bool deletes =
            writing == Writing::kAll && !IsKept(key) && now % 2 == 1 && random() % 64 == 0;
        Version next = deletes ? now + 1 : (now | 1) + 2;
        if (!shape_.has_versions()) next = 1;
        versions_[static_cast<size_t>(key)].store(next);
        (deletes ? deleted : changed).push_back(key);
        if (!deletes) changed_versions.push_back(next);
      }
      epochs_.Publish(epoch);
      StampedBatch batch(table_, changed, changed_versions);
      EXPECT_EQ(table_.table->Update(batch.batch(), kNoDeadline), absl::OkStatus());
      EXPECT_EQ(table_.table->Erase(deleted, kNoDeadline), absl::OkStatus());
      // Otherwise changes fill the writer's staging, and insertions rarely find room.
      if (writing == Writing::kAll) {
        EXPECT_EQ(table_.table->Flush(kNoDeadline), absl::OkStatus());
      }
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
        if (version % 2 == 0 || IsKept(key)) continue;
        keys.push_back(key);
        versions.push_back(version);
      }
      StampedBatch batch(table_, keys, versions);
      const absl::Status replaced = table_.table->InsertIfAbsent(batch.batch(), epoch).status();
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
  static constexpr uint64_t kGoneKeysPerCall = 4096;

  Version Current(Key key) const { return versions_[static_cast<size_t>(key)].load(); }

  // Unique keys from a random start, at an odd distance.
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

// The permanent keys of each source that a reader was told to be missing.
class MissedKeys {
 public:
  explicit MissedKeys(const std::vector<std::unique_ptr<Source>>& sources) {
    for (const auto& source : sources) missed_.emplace_back(source->shape().key_range);
  }
  void Note(size_t source, std::span<const Key> misses) {
    for (Key key : misses) {
      if (IsKept(key)) missed_[source][static_cast<size_t>(key)] = true;
    }
  }
  bool Contains(size_t source, size_t key) const { return missed_[source][key]; }

 private:
  std::vector<std::vector<bool>> missed_;
};

// The forms of a reader's lookups, because the kernels differ.
enum class Asking { kAllTables, kOneTable, kManyQueries };

// One session: its stream, its outputs, and the versions it has seen.
class Reader {
 public:
  // Short launches, so that writes get their turn between them.
  static constexpr size_t kKeysMax = size_t{1} << 16;
  // Per call of kManyQueries: more than one launch takes in its arguments.
  static constexpr size_t kManyQueries = 40;

  Reader(const std::vector<std::unique_ptr<Source>>& sources, Asking asking)
      : sources_(sources),
        asking_(asking),
        // Not above the writer's: readers that fill the device would keep it from writing.
        stream_(*MakeStream(StreamPriority::kLow)),
        done_(*MakeEvent()),
        result_(*MakeDeviceBuffer("result", sizeof(RowCheckResult))),
        ones_(*MakeDeviceBuffer("versions", kKeysMax * sizeof(Version))),
        missed_(sources) {
    EXPECT_EQ(cudaMemset(result_.data(), 0, result_.bytes()), cudaSuccess);
    const std::vector<Version> ones(kKeysMax, 1);
    EXPECT_EQ(cudaMemcpy(ones_.data(), ones.data(), ones_.bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
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
    std::vector<size_t> all(parts_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const size_t at_a_time = asking_ == Asking::kOneTable ? 1 : all.size();
    uint64_t hits = 0;
    do {
      hits = 0;
      for (size_t first = 0; first < all.size(); first += at_a_time)
        hits += ReadSources(cache, random, std::span(all).subspan(first, at_a_time));
    } while (goes_on(hits) && !testing::Test::HasFatalFailure());
  }

  RowCheckResult Result() const {
    RowCheckResult result;
    EXPECT_EQ(cudaMemcpy(&result, result_.data(), sizeof(result), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return result;
  }
  const MissedKeys& missed() const { return missed_; }

 private:
  struct Part {
    DeviceBuffer keys, rows, status, seen;
    size_t key_count = 0;  // of the current call
  };
  static size_t KeysOf(const Source& source) {
    return std::min<size_t>(kKeysMax, source.shape().key_range);
  }

  // One lookup; returns its number of hits.
  uint64_t ReadSources(DeviceCache& cache, std::mt19937_64& random,
                       std::span<const size_t> sources) {
    std::vector<DeviceCacheQuery> queries;
    std::vector<size_t> source_of;
    size_t key_count = 0;
    for (const size_t s : sources) {
      AddQueries(Prepare(s, random), queries);
      source_of.resize(queries.size(), s);
      key_count += parts_[s].key_count;
    }
    auto call = cache.AcquireCall(key_count);
    EXPECT_TRUE(call.ok()) << call.status();
    if (!call.ok()) return 0;
    EXPECT_EQ((*call)->Begin(queries, Stream{stream_.get()}), absl::OkStatus());
    const auto misses = (*call)->Misses(kNoDeadline);
    EXPECT_TRUE(misses.ok()) << misses.status();
    if (!misses.ok()) return 0;
    uint64_t hits = 0;
    for (size_t q = 0; q < queries.size(); ++q) {
      hits += (*call)->counts(q)[KeyStatus::kHitL1];
      missed_.Note(source_of[q], misses->keys[q]);
    }
    for (const size_t s : sources) Check(s);
    // The buffers are used again.
    EXPECT_EQ(cudaEventRecord(done_.get(), stream_.get()), cudaSuccess);
    EXPECT_EQ(WaitFor(done_.get(), kNoDeadline, "checks"), absl::OkStatus());
    return hits;
  }

  // Splits `whole` into as many queries as the reader uses.
  void AddQueries(const DeviceCacheQuery& whole, std::vector<DeviceCacheQuery>& queries) const {
    const size_t count = asking_ == Asking::kManyQueries ? kManyQueries / parts_.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      const size_t first = whole.key_count * i / count;
      DeviceCacheQuery query = whole;
      query.keys += first;
      query.rows += first * whole.row_stride_bytes;
      query.status += first;
      query.key_count = whole.key_count * (i + 1) / count - first;
      queries.push_back(query);
    }
  }

  DeviceCacheQuery Prepare(size_t s, std::mt19937_64& random) {
    const Source& source = *sources_[s];
    Part& part = parts_[s];
    // Small calls have their own kernels.
    part.key_count = random() % 4 == 0 ? std::min<size_t>(KeysOf(source), 3001) : KeysOf(source);
    // The range is a power of two, so an odd step visits no key twice.
    EXPECT_EQ(LaunchMakeKeys({.keys = part.keys.at<Key>(0),
                              .count = part.key_count,
                              .first = random(),
                              .step = random() | 1,
                              .key_range = source.shape().key_range},
                             stream_.get()),
              cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(part.status.data(), 0xee, part.key_count, stream_.get()),
              cudaSuccess);
    return {.table = source.table().table.get(),
            .space = MemorySpace::kDevice,
            .keys = part.keys.at<Key>(0),
            .key_count = part.key_count,
            .rows = part.rows.data(),
            .row_bytes = source.shape().row_bytes,
            .row_stride_bytes = source.shape().row_bytes,
            .status = part.status.at<KeyStatus>(0)};
  }

  void Check(size_t s) {
    const Source& source = *sources_[s];
    const Part& part = parts_[s];
    const bool has_versions = source.shape().has_versions();
    EXPECT_EQ(LaunchRowCheck({.table = source.table().number,
                              .keys = part.keys.at<Key>(0),
                              .key_count = part.key_count,
                              .rows = part.rows.data(),
                              .row_bytes = source.shape().row_bytes,
                              .row_stride_bytes = source.shape().row_bytes,
                              .status = part.status.at<KeyStatus>(0),
                              .expected = has_versions ? nullptr : ones_.at<Version>(0),
                              .seen = has_versions ? part.seen.at<Version>(0) : nullptr,
                              .result = result_.at<RowCheckResult>(0)},
                             stream_.get()),
              cudaSuccess);
  }

  const std::vector<std::unique_ptr<Source>>& sources_;
  const Asking asking_;
  const CudaStream stream_;
  const CudaEvent done_;
  const DeviceBuffer result_;
  const DeviceBuffer ones_;
  std::vector<Part> parts_;
  MissedKeys missed_;
};

// A session with its outputs on the host, one table at a time.
class HostReader {
 public:
  static constexpr size_t kKeysMax = 5000;

  explicit HostReader(const std::vector<std::unique_ptr<Source>>& sources)
      : sources_(sources), missed_(sources) {
    for (const auto& source : sources) seen_.emplace_back(source->shape().key_range);
  }

  void Read(DeviceCache& cache, uint64_t seed, const std::function<bool()>& goes_on) {
    std::mt19937_64 random(seed);
    while (goes_on()) {
      for (size_t s = 0; s < sources_.size(); ++s) ReadSource(cache, random, s);
    }
  }

  const RowCheckResult& Result() const { return result_; }
  const MissedKeys& missed() const { return missed_; }

 private:
  void ReadSource(DeviceCache& cache, std::mt19937_64& random, size_t s) {
    const Shape& shape = sources_[s]->shape();
    std::vector<Key> keys(std::min<uint64_t>(1 + random() % kKeysMax, shape.key_range));
    const uint64_t first = random(), step = random() | 1;
    for (size_t i = 0; i < keys.size(); ++i)
      keys[i] = static_cast<Key>((first + i * step) % shape.key_range);
    std::vector<std::byte> rows(keys.size() * shape.row_bytes);
    std::vector<KeyStatus> statuses(keys.size());
    const DeviceCacheQuery query = {.table = sources_[s]->table().table.get(),
                                    .keys = keys.data(),
                                    .key_count = keys.size(),
                                    .rows = rows.data(),
                                    .row_bytes = shape.row_bytes,
                                    .row_stride_bytes = shape.row_bytes,
                                    .status = statuses.data()};
    auto call = cache.AcquireCall(keys.size());
    ASSERT_TRUE(call.ok()) << call.status();
    ASSERT_EQ((*call)->Begin({&query, 1}, Stream()), absl::OkStatus());
    const auto misses = (*call)->Misses(kNoDeadline);
    ASSERT_TRUE(misses.ok()) << misses.status();
    missed_.Note(s, misses->keys[0]);
    const std::vector<KeyStatus> absent(misses->keys[0].size(), KeyStatus::kAbsent);
    const DeviceRowPiece piece = {.statuses = absent};
    ASSERT_EQ((*call)->Finish({&piece, 1}), absl::OkStatus());
    ASSERT_EQ((*call)->Wait(kNoDeadline), absl::OkStatus());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (statuses[i] == KeyStatus::kHitL1)
        Check(s, keys[i], {rows.data() + i * shape.row_bytes, shape.row_bytes});
    }
  }

  void Check(size_t s, Key key, std::span<const std::byte> row) {
    const uint64_t number = sources_[s]->table().number;
    ++result_.hits;
    if (!sources_[s]->shape().has_versions()) {
      if (!StampedRow::Matches(number, key, 1, row)) ++result_.foreign;
      return;
    }
    const std::optional<Version> version = StampedRow::VersionOf(number, key, row);
    if (!version.has_value()) {
      ++result_.foreign;
      return;
    }
    Version& seen = seen_[s][static_cast<size_t>(key)];
    if (*version < seen) ++result_.back;
    seen = std::max(seen, *version);
  }

  const std::vector<std::unique_ptr<Source>>& sources_;
  std::vector<std::vector<Version>> seen_;
  RowCheckResult result_;
  MissedKeys missed_;
};

class GpuConcurrencyTest : public GpuTest {
 protected:
  static constexpr size_t kReaders = 4;

  void MakeSources(std::span<const Shape> shapes) {
    auto cache = MakeGpuCache({.bytes_max = uint64_t{1} << 30,
                               .calls_max = 2 * kReaders + 2,
                               .call_keys_max = shapes.size() * Reader::kKeysMax});
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    for (const Shape& shape : shapes) {
      auto table =
          cache_->OpenTable(shape.row_bytes, cache_->TableBytes(shape.row_bytes, shape.row_count));
      ASSERT_TRUE(table.ok()) << table.status();
      sources_.push_back(
          std::make_unique<Source>(shape, StampedTable{*std::move(table), sources_.size() + 1}));
      sources_.back()->Fill();
    }
    host_reader_ = std::make_unique<HostReader>(sources_);
  }

  static uint64_t RowsWanted() {
    const char* const wanted = std::getenv("HPS_TEST_ROWS");
    return wanted == nullptr ? 1'000'000'000 : std::strtoull(wanted, nullptr, 10);
  }

  // Runs all readers concurrently with writers, until `rows_wanted` were read on the device.
  void Run(uint64_t rows_wanted, Writing writing) {
    std::atomic<bool> stopped = false;
    std::atomic<uint64_t> rows_read = 0;
    const Deadline latest = DeadlineAfter(RealClock(), kReadingMax);
    const auto goes_on = [&](uint64_t hits) {
      return rows_read.fetch_add(hits) + hits < rows_wanted && RealClock().Now() < latest;
    };
    std::vector<std::thread> writers;
    for (const auto& source : sources_) {
      writers.emplace_back([&] { source->Apply(stopped, writing); });
      if (writing == Writing::kUpdatesAlone) continue;
      writers.emplace_back([&] { source->Promote(stopped, 3); });
      writers.emplace_back([&] { source->Dump(stopped); });
    }
    writers.emplace_back([&] { host_reader_->Read(*cache_, 7, [&] { return !stopped; }); });
    std::vector<std::thread> reading;
    for (size_t i = 0; i < readers_.size(); ++i)
      reading.emplace_back([&, i] { readers_[i]->Read(*cache_, 100 + i, goes_on); });
    for (std::thread& thread : reading) thread.join();
    stopped = true;
    for (std::thread& thread : writers) thread.join();
    EXPECT_GE(rows_read.load(), rows_wanted);
    CheckRows(rows_read);
    for (size_t s = 0; s < sources_.size(); ++s) CheckSource(s, writing);
  }

  void CheckRows(uint64_t rows_read) const {
    RowCheckResult sum;
    for (const auto& reader : readers_) {
      const RowCheckResult result = reader->Result();
      sum.hits += result.hits;
      sum.foreign += result.foreign;
      sum.back += result.back;
    }
    EXPECT_EQ(sum.hits, rows_read);
    EXPECT_EQ(sum.foreign, 0u) << "torn, or another key's";
    EXPECT_EQ(sum.back, 0u) << "older than before";
    const RowCheckResult& on_host = host_reader_->Result();
    EXPECT_GT(on_host.hits, 0u);
    EXPECT_EQ(on_host.foreign, 0u) << "torn, or another key's, on the host";
    EXPECT_EQ(on_host.back, 0u) << "older than before, on the host";
    std::cout << sum.hits << " rows read, and " << on_host.hits << " to the host\n";
  }

  void CheckSource(size_t s, Writing writing) const {
    const Source& source = *sources_[s];
    const Shape& shape = source.shape();
    ASSERT_EQ(source.table().table->Flush(kNoDeadline), absl::OkStatus());
    const std::vector<bool> gone = source.GoneKeys(*cache_);
    uint64_t held = 0, missed = 0;
    for (size_t key = 0; key < gone.size(); key += 4) {
      if (gone[key]) continue;
      ++held;
      const bool was_missed =
          host_reader_->missed().Contains(s, key) ||
          std::any_of(readers_.begin(), readers_.end(),
                      [&](const auto& reader) { return reader->missed().Contains(s, key); });
      if (was_missed) ++missed;
    }
    EXPECT_EQ(missed, 0u) << "keys that were held all the time were reported as missing";
    EXPECT_GT(held, 0u);
    const LevelStatistics statistics = source.table().table->Statistics();
    std::cout << "rows of " << shape.row_bytes << " bytes: " << statistics.updates << " updates, "
              << statistics.insertions << " insertions, " << statistics.evictions << " evictions, "
              << statistics.refused << " refused, " << statistics.entries << " held, " << held
              << " of them all the time\n";
    EXPECT_GT(statistics.updates, 0u);
    if (writing == Writing::kAll) {
      EXPECT_GT(statistics.refused, 0u);
    }
  }

  std::unique_ptr<DeviceCache> cache_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::unique_ptr<HostReader> host_reader_;
};

TEST_F(GpuConcurrencyTest, ReadersSeeWholeRowsThatNeverGoBack) {
  ASSERT_NO_FATAL_FAILURE(MakeSources(kShapes));
  for (size_t i = 0; i < kReaders; ++i)
    readers_.push_back(std::make_unique<Reader>(sources_, Asking::kAllTables));
  Run(RowsWanted(), Writing::kAll);
}

TEST_F(GpuConcurrencyTest, SoDoReadersThroughTheKernelsOfOneWidth) {
  ASSERT_NO_FATAL_FAILURE(MakeSources(kShapesOfKernels));
  for (Asking asking :
       {Asking::kOneTable, Asking::kOneTable, Asking::kManyQueries, Asking::kAllTables}) {
    readers_.push_back(std::make_unique<Reader>(sources_, asking));
  }
  Run(RowsWanted(), Writing::kAll);
}

// Catches readers that accept a torn row because no slab was changed.
TEST_F(GpuConcurrencyTest, SoDoReadersBesideUpdatesAlone) {
  ASSERT_NO_FATAL_FAILURE(MakeSources(kShapesOfKernels));
  for (Asking asking : {Asking::kOneTable, Asking::kOneTable, Asking::kAllTables})
    readers_.push_back(std::make_unique<Reader>(sources_, asking));
  Run(RowsWanted() / 2, Writing::kUpdatesAlone);
}

}  // namespace
}  // namespace hps
