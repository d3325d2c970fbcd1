// Refresh of level 1: how fast changed rows, or all rows, come from levels 2 and 3 into a device's
// cache, and what lookups on the device notice of it.
//
// The bound with a GPU is one copy of the same bytes, rows and keys, from pinned memory. Without a
// GPU only the host's part is measured (StagingTable): its bound is a copy of the same number of
// rows with known places, by as many threads, into the same staging. Rows in level 3 have that
// level's own reads as their bound, by as many threads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "bench/device.h"
#include "bench/gather.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/update/refresh_world.h"
#include "bench/update/staging_table.h"
#include "tier/device_cache_factory.h"

namespace hps::bench {
namespace {

constexpr size_t kRowBytes = RefreshWorld::kRowBytes;
constexpr size_t kPieceBytes = size_t{128} << 10;  // that the bounds read at a time
constexpr int kRuns = 3;
constexpr auto kTimeout = std::chrono::seconds(60);

struct Sizes {
  uint64_t changed = 0;
  uint64_t rows = 0;  // of the cache
  size_t calls = 0;   // lookups beside a refresh
};

// All cases: a cache of 10 GB.
Sizes SizesOf(const Options& options) {
  if (options.quick) return {20'000, 40'000, 20};
  return {1'000'000, options.full ? 20'000'000U : 2'000'000U, 5000};
}

// What the benchmark refreshes, and the device whose level 1 it is (null: no device).
struct Measured {
  RefreshWorld* world = nullptr;
  Device* device = nullptr;
  Sizes sizes;
};

double BytesOf(uint64_t rows) { return static_cast<double>(rows * (kRowBytes + sizeof(Key))); }

Deadline Soon() { return DeadlineAfter(RealClock(), kTimeout); }

Result Speed(const Measured& measured, const std::string& name, uint64_t rows, double seconds,
             double bound_seconds) {
  Result result =
      MakeResult(name, "GB/s", BytesOf(rows) / seconds / 1e9, BytesOf(rows) / bound_seconds / 1e9);
  result.params = {{"dim", absl::StrCat(RefreshWorld::kDim)},
                   {"rows", absl::StrCat(rows)},
                   {"threads", absl::StrCat(measured.world->refresh_threads())},
                   {"level_1", measured.device == nullptr ? "none: the host's part" : "GPU"}};
  result.runs = kRuns;
  result.measured = {{"ms", seconds * 1e3}};
  return result;
}

// Seconds of one copy of so many rows, with their keys, from pinned memory to the device: in copies
// of at most a gigabyte.
absl::StatusOr<double> PinnedCopySeconds(Device& device, uint64_t rows) {
  constexpr double kBytesMax = 1e9;
  const double bytes = std::min(BytesOf(rows), kBytesMax);
  HPS_ASSIGN_OR_RETURN(const double us, device.CopyUs(static_cast<size_t>(bytes), kRuns));
  return us * 1e-6 * BytesOf(rows) / bytes;
}

// Copies of rows, in a random order, into a staging: what the host does for a refresh at least.
class HostCopies {
 public:
  HostCopies(const Measured& measured, uint64_t rows)
      : threads_(measured.world->refresh_threads()),
        staging_(kRowBytes, 0),
        source_(static_cast<std::byte*>(std::aligned_alloc(64, measured.sizes.rows * kRowBytes)),
                &std::free),
        places_(rows) {
    std::fill_n(source_.get(), measured.sizes.rows * kRowBytes, std::byte{1});
    std::mt19937_64 random(1);
    for (const std::byte*& place : places_)
      place = source_.get() + random() % measured.sizes.rows * kRowBytes;
  }

  // Copies all rows once; returns the seconds.
  double Run(const GatherShape& shape) {
    constexpr size_t kPieceRows = kPieceBytes / kRowBytes;
    std::atomic<size_t> next{0};
    return RunOnThreads(threads_, [&](size_t) {
      for (size_t piece = next++; piece * kPieceRows < places_.size(); piece = next++) {
        const auto some = std::span(places_).subspan(
            piece * kPieceRows, std::min<size_t>(kPieceRows, places_.size() - piece * kPieceRows));
        Gather(some, kRowBytes, staging_.piece(piece), shape);
      }
    });
  }
  GatherShape BestShape() {
    std::vector<std::pair<double, GatherShape>> timed;
    for (const GatherShape& shape : GatherShapes()) timed.emplace_back(Run(shape), shape);
    return std::min_element(timed.begin(), timed.end(),
                            [](const auto& a, const auto& b) { return a.first < b.first; })
        ->second;
  }

 private:
  const size_t threads_;
  const StagingTable staging_;
  const std::unique_ptr<std::byte, decltype(&std::free)> source_;
  std::vector<const std::byte*> places_;
};

double HostCopySeconds(const Measured& measured, uint64_t rows) {
  HostCopies copies(measured, rows);
  std::vector<double> seconds;
  for (const GatherShape& shape : GatherShapes()) seconds.push_back(copies.Run(shape));
  return Quantile(seconds, 0);
}

// What PCIe brings while the host copies rows, though neither waits for the other: both share the
// host's memory. So a refresh, where rows must be copied before they are brought, can't be faster
// than the slower of the two.
absl::Status MeasureSharedMemory(const Measured& measured, std::vector<Result>& results) {
  const uint64_t rows = measured.sizes.changed;
  HPS_ASSIGN_OR_RETURN(const double alone, PinnedCopySeconds(*measured.device, rows));
  HostCopies copies(measured, rows);
  const GatherShape shape = copies.BestShape();
  std::atomic<bool> done{false};
  double copied_rows = 0;
  double copied_seconds = 0;
  std::thread copier([&] {
    for (; !done; copied_rows += static_cast<double>(rows)) copied_seconds += copies.Run(shape);
  });
  std::vector<double> seconds;
  absl::Status status;
  for (int run = 0; run < 10 && status.ok(); ++run) {
    const absl::StatusOr<double> one = PinnedCopySeconds(*measured.device, rows);
    status = one.status();
    if (one.ok()) seconds.push_back(*one);
  }
  done = true;
  copier.join();
  HPS_RETURN_IF_ERROR(status);
  Result result = Speed(measured, "pinned_copy_beside_host_copies", rows, Median(seconds), alone);
  result.measured = {{"host_copies_gb_per_second",
                      copied_rows * static_cast<double>(kRowBytes) / copied_seconds / 1e9}};
  results.push_back(std::move(result));
  return absl::OkStatus();
}

absl::StatusOr<double> CopySeconds(const Measured& measured, uint64_t rows) {
  if (measured.device != nullptr) return PinnedCopySeconds(*measured.device, rows);
  return HostCopySeconds(measured, rows);
}

// Seconds in which level 3 alone reads the rows that changed, in pieces as a refresh has them.
absl::StatusOr<double> Level3Seconds(const Measured& measured) {
  constexpr size_t kPieceRows = kPieceBytes / kRowBytes;
  const std::vector<Key>& keys = measured.world->changed_keys();
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const double seconds = RunOnThreads(measured.world->refresh_threads(), [&](size_t) {
    std::vector<std::byte> rows(kPieceRows * kRowBytes);
    std::vector<FetchOutcome> outcomes(kPieceRows);
    for (size_t first = next.fetch_add(kPieceRows); first < keys.size();
         first = next.fetch_add(kPieceRows)) {
      const size_t count = std::min(kPieceRows, keys.size() - first);
      const FetchBatch batch = {.keys = std::span(keys).subspan(first, count),
                                .rows = {.data = rows.data(),
                                         .row_count = count,
                                         .row_bytes = kRowBytes,
                                         .stride_bytes = kRowBytes},
                                .outcomes = std::span(outcomes).first(count)};
      if (!measured.world->table().l3().Fetch(batch, kNoDeadline).ok()) failed = true;
    }
  });
  if (failed) return absl::InternalError("bench refresh: level 3 did not answer");
  return seconds;
}

// What the device's cache shows of some keys that changed.
absl::Status CheckRows(const Measured& measured, float value) {
  if (measured.device == nullptr) return absl::OkStatus();
  const size_t count = std::min<size_t>(10'000, measured.world->changed_keys().size());
  Device& device = *measured.device;
  HPS_ASSIGN_OR_RETURN(std::byte* const keys, device.Allocate(count * sizeof(Key)));
  HPS_ASSIGN_OR_RETURN(std::byte* const rows, device.Allocate(count * kRowBytes));
  const auto asked = std::span<const Key>(measured.world->changed_keys()).first(count);
  HPS_RETURN_IF_ERROR(device.CopyIn(keys, AsBytes(asked)));
  const DeviceTableQuery query{
      .keys = {static_cast<const Key*>(static_cast<const void*>(keys)), count},
      .rows = {rows, count * kRowBytes}};
  LookupCounts counts;
  HPS_RETURN_IF_ERROR(measured.world->session().Lookup(
      DeviceLookupRequest{.queries = {&query, 1}, .stream = device.stream()}, &counts));
  HPS_RETURN_IF_ERROR(device.Synchronize());
  std::vector<std::byte> out(count * kRowBytes);
  HPS_RETURN_IF_ERROR(device.CopyOut(out, rows));
  for (size_t i = 0; i < count; ++i) {
    float shown = 0;
    std::memcpy(&shown, &out[i * kRowBytes], sizeof(shown));
    if (shown != value) {
      return absl::InternalError(absl::StrCat("bench refresh: key ", asked[i], " shows ", shown,
                                              " after a refresh, expected ", value));
    }
  }
  if (counts[KeyStatus::kHitL1] < count * 99 / 100)
    return absl::InternalError("bench refresh: level 1 does not hold the rows");
  return absl::OkStatus();
}

// Median seconds of a delta refresh. The rows are in level 2, unless `from_level_3`.
absl::StatusOr<double> DeltaSeconds(const Measured& measured, bool from_level_3, float& value) {
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) {
    HPS_RETURN_IF_ERROR(measured.world->Change(++value));
    if (from_level_3) HPS_RETURN_IF_ERROR(measured.world->ClearLevel2());
    const Stopwatch watch;
    HPS_RETURN_IF_ERROR(measured.world->applier().RefreshChanged(Soon()));
    seconds.push_back(watch.seconds());
    HPS_RETURN_IF_ERROR(CheckRows(measured, value));
  }
  return Median(seconds);
}

absl::Status MeasureFull(const Measured& measured, std::vector<Result>& results) {
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) {
    const Stopwatch watch;
    HPS_RETURN_IF_ERROR(measured.world->applier().RefreshAll(Soon()));
    seconds.push_back(watch.seconds());
  }
  const uint64_t rows = measured.world->table().l1(0)->Statistics().entries;
  HPS_ASSIGN_OR_RETURN(const double bound, CopySeconds(measured, rows));
  Result result = Speed(measured, "full_refresh", rows, Median(seconds), bound);
  if (measured.device != nullptr) result.target = ">= 0.7";
  results.push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status MeasureDelta(const Measured& measured, std::vector<Result>& results) {
  float value = 0;
  const uint64_t rows = measured.sizes.changed;
  HPS_ASSIGN_OR_RETURN(const double seconds, DeltaSeconds(measured, false, value));
  HPS_ASSIGN_OR_RETURN(const double bound, CopySeconds(measured, rows));
  Result result = Speed(measured, "delta_refresh", rows, seconds, bound);
  result.params["rows_in"] = "level 2";
  if (measured.device != nullptr) result.target = ">= 0.7";
  results.push_back(std::move(result));
  HPS_ASSIGN_OR_RETURN(const double l3_seconds, DeltaSeconds(measured, true, value));
  HPS_ASSIGN_OR_RETURN(const double l3_bound, Level3Seconds(measured));
  Result from_l3 = Speed(measured, "delta_refresh", rows, l3_seconds, l3_bound);
  from_l3.params["rows_in"] = "level 3";
  results.push_back(std::move(from_l3));
  return absl::OkStatus();
}

// Random lookups of rows that the device holds, with outputs on the device.
class DeviceReader {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceReader>> Create(const Measured& measured,
                                                              size_t key_count) {
    auto reader = std::unique_ptr<DeviceReader>(new DeviceReader(measured));
    HPS_ASSIGN_OR_RETURN(reader->rows_, measured.device->Allocate(key_count * kRowBytes));
    std::mt19937_64 random(2);
    for (size_t set = 0; set < kSets; ++set) {
      std::vector<Key> keys(key_count);
      for (Key& key : keys) key = static_cast<Key>(random() % measured.sizes.rows);
      HPS_ASSIGN_OR_RETURN(std::byte* const memory,
                           measured.device->Allocate(key_count * sizeof(Key)));
      HPS_RETURN_IF_ERROR(measured.device->CopyIn(memory, AsBytes(std::span<const Key>(keys))));
      reader->keys_.push_back({static_cast<const Key*>(static_cast<void*>(memory)), key_count});
    }
    return reader;
  }

  // Microseconds of each call.
  absl::StatusOr<std::vector<double>> Run(size_t calls) {
    std::vector<double> times_us;
    for (size_t call = 0; call < calls + kWarmUp; ++call) {
      const auto keys = keys_[call % kSets];
      const DeviceTableQuery query{.keys = keys, .rows = {rows_, keys.size() * kRowBytes}};
      const Stopwatch watch;
      HPS_RETURN_IF_ERROR(measured_.world->session().Lookup(
          DeviceLookupRequest{.queries = {&query, 1}, .stream = measured_.device->stream()},
          nullptr));
      HPS_RETURN_IF_ERROR(measured_.device->Synchronize());
      if (call >= kWarmUp) times_us.push_back(watch.us());
    }
    return times_us;
  }

 private:
  static constexpr size_t kSets = 8;
  static constexpr size_t kWarmUp = 10;
  explicit DeviceReader(const Measured& measured) : measured_(measured) {}

  const Measured measured_;
  std::byte* rows_ = nullptr;
  std::vector<SpanIn<const Key, MemorySpace::kDevice>> keys_;
};

absl::Status MeasureReader(const Measured& measured, size_t key_count,
                           std::vector<Result>& results) {
  HPS_ASSIGN_OR_RETURN(const auto reader, DeviceReader::Create(measured, key_count));
  HPS_ASSIGN_OR_RETURN(auto alone_us, reader->Run(measured.sizes.calls));
  std::atomic<bool> done{false};
  absl::Status refreshed;
  uint64_t rows = measured.world->applier().counts().rows_refreshed;
  const Stopwatch watch;
  std::thread refresher([&] {
    while (!done && refreshed.ok()) refreshed = measured.world->applier().RefreshAll(Soon());
  });
  auto beside_us = reader->Run(measured.sizes.calls);
  done = true;
  const double seconds = watch.seconds();
  rows = measured.world->applier().counts().rows_refreshed - rows;
  refresher.join();
  HPS_RETURN_IF_ERROR(refreshed);
  HPS_RETURN_IF_ERROR(beside_us.status());
  Result result = MakeResult("reader_p99_beside_refresh", "us", Quantile(*beside_us, 0.99),
                             Quantile(alone_us, 0.99));
  result.params = {{"dim", absl::StrCat(RefreshWorld::kDim)},
                   {"keys", absl::StrCat(key_count)},
                   {"bound", "p99 without a refresh"}};
  result.p50 = Median(*beside_us);
  result.p99 = result.figure;
  result.runs = measured.sizes.calls;
  result.measured = {{"p50_without_us", Median(alone_us)},
                     {"refresh_gb_per_second", BytesOf(rows) / seconds / 1e9}};
  results.push_back(std::move(result));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Result>> Measure(const Measured& measured) {
  std::vector<Result> results;
  if (measured.device != nullptr) HPS_RETURN_IF_ERROR(MeasureSharedMemory(measured, results));
  HPS_RETURN_IF_ERROR(MeasureFull(measured, results));
  if (measured.device != nullptr) {
    for (const size_t keys : {4096, 131'072})
      HPS_RETURN_IF_ERROR(MeasureReader(measured, keys, results));
  }
  HPS_RETURN_IF_ERROR(MeasureDelta(measured, results));  // clears level 2 in the end
  return results;
}

absl::StatusOr<std::vector<Result>> MeasureOnDevice(const Options& options,
                                                    RefreshWorld::Setting setting,
                                                    const Sizes& sizes) {
  HPS_ASSIGN_OR_RETURN(const auto device, OpenDevice(options.device));
  const DeviceCacheFactory& factory = BuiltInDeviceCacheFactory();
  HPS_ASSIGN_OR_RETURN(const auto sizing,
                       factory.Make({.device = options.device, .bytes_max = 0, .calls_max = 1}));
  HPS_ASSIGN_OR_RETURN(const auto cache,
                       factory.Make({.device = options.device,
                                     .bytes_max = sizing->TableBytes(kRowBytes, setting.rows)}));
  setting.cache = cache.get();
  HPS_ASSIGN_OR_RETURN(const auto world, RefreshWorld::Create(setting));
  return Measure({.world = world.get(), .device = device.get(), .sizes = sizes});
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunRefreshScenario(const Options& options) {
  const Sizes sizes = SizesOf(options);
  const RefreshWorld::Setting setting = {
      .directory = options.directory + "/refresh", .rows = sizes.rows, .changed = sizes.changed};
  if (options.device >= 0) return MeasureOnDevice(options, setting, sizes);
  HPS_ASSIGN_OR_RETURN(const auto world, RefreshWorld::Create(setting));
  return Measure({.world = world.get(), .sizes = sizes});
}

}  // namespace hps::bench
