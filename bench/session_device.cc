#include "bench/session_device.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/executor.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/redis/unused_redis.h"
#include "bench/report.h"
#include "l2_memory/memory_tier.h"
#include "query/session_factory.h"
#include "serving/l2_pinner.h"
#include "testing/fakes/plain_tier.h"
#include "tier/device_cache_factory.h"

namespace hps::bench {
namespace {

constexpr uint32_t kDim = 128;
constexpr size_t kRowBytes = kDim * sizeof(float);
constexpr size_t kRowWords = kRowBytes / sizeof(uint64_t);
constexpr size_t kMissEvery = 10;  // keys that are multiples of it are in level 2 only
constexpr size_t kKeySets = 8;     // in rotation, so that no call finds rows of the last one cached
constexpr size_t kFillKeys = 4096;
constexpr double kPinUsMax = 60e6;

// Word `word` of a key's row.
uint64_t RowWord(Key key, size_t word) {
  return static_cast<uint64_t>(key) + word * 0x9e3779b97f4a7c15;
}

// One table: all rows in memory, nine tenths of them in the cache of each device, and no others
// can get in: the fence refuses every promotion, so that each call misses what it is meant to. One
// session for each device.
class Model {
 public:
  // With `pins`, the devices can read level 2 by themselves. With `has_redis`, level 2 has a part
  // on Redis behind the memory, which is empty and never asked.
  static absl::StatusOr<std::unique_ptr<Model>> Create(std::span<DeviceCache* const> caches,
                                                       size_t row_count, bool pins,
                                                       bool has_redis = false) {
    auto model = std::unique_ptr<Model>(new Model);
    if (has_redis) {
      HPS_ASSIGN_OR_RETURN(model->redis_, MakeUnusedRedis());
    }
    HPS_ASSIGN_OR_RETURN(model->pin_, WorkerPool::Create({.name = "pin"}));
    if (pins) {
      model->pinner_ = std::make_unique<L2Pinner>(
          std::vector<DeviceCache*>(caches.begin(), caches.end()), UINT64_MAX, *model->pin_);
    }
    model->l2_options_.pinner = model->pinner_.get();
    model->tier_ = MakeMemoryTier(model->l2_options_);
    model->thread_count_ = std::max(1U, std::thread::hardware_concurrency());
    HPS_ASSIGN_OR_RETURN(
        model->fetch_, WorkerPool::Create({.name = "fetch", .thread_count = model->thread_count_}));
    HPS_ASSIGN_OR_RETURN(model->promote_, WorkerPool::Create({.name = "promote"}));
    SessionFactory::Options options;
    options.fetch_executor = model->fetch_.get();
    options.promote_executor = model->promote_.get();
    options.caches.assign(caches.begin(), caches.end());
    HPS_ASSIGN_OR_RETURN(model->factory_, SessionFactory::Create(options));
    model->state_ =
        std::make_unique<LiveModel>("m", model->factory_->epoch_domain(), *model->promote_);
    HPS_RETURN_IF_ERROR(model->MakeTable(caches, row_count));
    if (pins) HPS_RETURN_IF_ERROR(model->AwaitPinned());
    HPS_RETURN_IF_ERROR(model->state_->Publish({model->table_}));
    for (DeviceCache* const cache : caches) {
      HPS_ASSIGN_OR_RETURN(
          auto session, model->factory_->NewSession(*model->state_, {.device = cache->device()}));
      model->sessions_.push_back(std::move(session));
    }
    HPS_RETURN_IF_ERROR(model->Close());
    return model;
  }
  ~Model() {
    sessions_.clear();
    fetch_.reset();
    promote_.reset();
  }

  LookupSession& session(size_t cache) { return *sessions_[cache]; }
  const DeviceCacheTable* l1(size_t cache) const { return table_->l1(cache); }
  size_t thread_count() const { return thread_count_; }

 private:
  Model() = default;

  absl::Status MakeTable(std::span<DeviceCache* const> caches, size_t row_count) {
    const TableSpec spec{.name = "m/t", .dim = kDim};
    LiveTable::Parts parts;
    parts.l3 = std::make_unique<PlainDurableTable>(spec);
    const size_t capacity = row_count + row_count / 4;  // no partition is too small for its share
    HPS_ASSIGN_OR_RETURN(
        std::unique_ptr<LossyTable> l2,
        tier_->OpenTable(spec, 1, MemoryTierBytesFor(capacity, kRowBytes, l2_options_)));
    parts.l2.push_back({.table = std::move(l2)});
    HPS_RETURN_IF_ERROR(AddUnusedPart(redis_, spec, &parts));
    table_ = std::make_shared<LiveTable>(std::move(parts));
    for (size_t i = 0; i < caches.size(); ++i) {
      HPS_ASSIGN_OR_RETURN(
          auto l1, caches[i]->OpenTable(kRowBytes, caches[i]->TableBytes(kRowBytes, row_count)));
      table_->AttachL1(i, std::move(l1));
    }
    for (size_t first = 0; first < row_count; first += kFillKeys) {
      HPS_RETURN_IF_ERROR(
          Fill(static_cast<Key>(first), std::min(kFillKeys, row_count - first), caches.size()));
    }
    for (size_t i = 0; i < caches.size(); ++i)
      HPS_RETURN_IF_ERROR(table_->l1(i)->Flush(kNoDeadline));
    return absl::OkStatus();
  }

  absl::Status AwaitPinned() {
    DirectReadable& l2 = *table_->l2_direct();
    for (const Stopwatch watch; watch.us() < kPinUsMax; std::this_thread::yield()) {
      const std::optional<size_t> reads = l2.BeginDirectReads();
      if (!reads.has_value()) continue;
      l2.EndDirectReads(*reads);
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError("bench session: level 2's memory can't be pinned");
  }

  // No row enters a cache any more.
  absl::Status Close() {
    for (size_t i = 0; i < sessions_.size(); ++i) {
      HPS_RETURN_IF_ERROR(table_->l1(i)->RaiseWatermarks(
          missing_, std::numeric_limits<ApplyEpoch>::max(), kNoDeadline));
    }
    return absl::OkStatus();
  }

  absl::Status Fill(Key first, size_t count, size_t cache_count) {
    std::vector<Key> all, cached, missing;
    for (Key key = first; key < first + static_cast<Key>(count); ++key) {
      all.push_back(key);
      (key % kMissEvery == 0 ? missing : cached).push_back(key);
    }
    HPS_RETURN_IF_ERROR(table_->l2()[0].table().Insert(BatchOf(all), 0).status());
    for (size_t i = 0; i < cache_count; ++i) {
      absl::Status inserted = table_->l1(i)->InsertIfAbsent(BatchOf(cached), 0).status();
      if (absl::IsResourceExhausted(inserted)) {  // the writer's staging is full
        HPS_RETURN_IF_ERROR(table_->l1(i)->Flush(kNoDeadline));
        inserted = table_->l1(i)->InsertIfAbsent(BatchOf(cached), 0).status();
      }
      HPS_RETURN_IF_ERROR(inserted);
    }
    // Watermarks are shared by keys: raised for all only after the last of them was let in.
    missing_.insert(missing_.end(), missing.begin(), missing.end());
    return absl::OkStatus();
  }

  RowBatch BatchOf(const std::vector<Key>& keys) {
    rows_.resize(keys.size() * kRowBytes);
    for (size_t i = 0; i < keys.size(); ++i) {
      for (size_t word = 0; word < kRowWords; ++word) {
        StoreLittleEndian(rows_.data() + i * kRowBytes + word * sizeof(uint64_t),
                          RowWord(keys[i], word));
      }
    }
    return {.keys = keys, .rows = {rows_.data(), keys.size(), kRowBytes, kRowBytes}};
  }

  std::unique_ptr<L2Pinner> pinner_;
  std::unique_ptr<Executor> pin_;
  MemoryTierOptions l2_options_{};
  std::unique_ptr<LossyTier> tier_;
  RedisTier redis_;
  size_t thread_count_ = 0;
  std::vector<std::byte> rows_;
  std::vector<Key> missing_;
  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<LiveModel> state_;
  std::shared_ptr<LiveTable> table_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
  std::vector<std::unique_ptr<LookupSession>> sessions_;
};

// The keys of all calls of one kind, on the device.
struct Batch {
  size_t row_count = 0;  // of the table
  size_t key_count = 0;
  bool misses = false;
  bool pinned = false;  // the device may read level 2 by itself
  std::array<std::vector<Key>, kKeySets> keys;
  std::array<const Key*, kKeySets> device_keys{};
  size_t unique_missing = 0;  // of the average call
};

// The calls of one session, that of the model's cache number `number`.
class Measurement {
 public:
  Measurement(DeviceCache& cache, Device& device, Model& model, size_t number)
      : cache_(cache), device_(device), model_(model), number_(number) {}

  absl::Status Prepare(size_t keys_max) {
    HPS_ASSIGN_OR_RETURN(rows_, device_.Allocate(keys_max * kRowBytes));
    HPS_ASSIGN_OR_RETURN(status_, device_.Allocate(keys_max));
    return absl::OkStatus();
  }

  absl::StatusOr<Batch> MakeBatch(size_t key_count, bool misses, size_t row_count) {
    Batch batch{.row_count = row_count, .key_count = key_count, .misses = misses};
    std::mt19937_64 random(key_count + (misses ? 1 : 0));
    for (size_t set = 0; set < kKeySets; ++set) {
      std::unordered_set<Key> missing;
      for (size_t i = 0; i < key_count; ++i) {
        const auto tenth = static_cast<Key>(random() % (row_count / kMissEvery));
        const bool is_missing = misses && i % kMissEvery == 0;
        const auto within = is_missing ? Key{0} : static_cast<Key>(1 + random() % (kMissEvery - 1));
        const Key key = tenth * Key{kMissEvery} + within;
        batch.keys[set].push_back(key);
        if (is_missing) missing.insert(key);
      }
      batch.unique_missing += missing.size();
      HPS_ASSIGN_OR_RETURN(std::byte* const memory, device_.Allocate(key_count * sizeof(Key)));
      HPS_RETURN_IF_ERROR(device_.CopyIn(memory, AsBytes(std::span<const Key>(batch.keys[set]))));
      batch.device_keys[set] = static_cast<const Key*>(static_cast<const void*>(memory));
    }
    batch.unique_missing /= kKeySets;
    return batch;
  }

  // One call of the session, until its rows are there, in us. Its counts are checked.
  absl::StatusOr<double> TimeCall(const Batch& batch, size_t set) {
    const DeviceTableQuery query{
        .keys = {batch.device_keys[set % kKeySets], batch.key_count},
        .rows = {rows_, batch.key_count * kRowBytes},
        .status = {static_cast<KeyStatus*>(static_cast<void*>(status_)), batch.key_count}};
    const DeviceLookupRequest request{
        .queries = {&query, 1}, .stream = device_.stream(), .stream_is_idle = true};
    LookupCounts counts;
    const Stopwatch watch;
    HPS_RETURN_IF_ERROR(model_.session(number_).Lookup(request, &counts));
    HPS_RETURN_IF_ERROR(device_.Synchronize());
    const double us = watch.us();
    HPS_RETURN_IF_ERROR(CheckCounts(batch, counts));
    return us;
  }

  // The bound: the probe alone, without a session.
  absl::StatusOr<double> TimeProbe(const Batch& batch, size_t set) {
    const DeviceCacheQuery query{.table = model_.l1(number_),
                                 .space = MemorySpace::kDevice,
                                 .keys = batch.device_keys[set % kKeySets],
                                 .key_count = batch.key_count,
                                 .rows = rows_,
                                 .row_bytes = kRowBytes,
                                 .row_stride_bytes = kRowBytes,
                                 .status = static_cast<KeyStatus*>(static_cast<void*>(status_))};
    const Stopwatch watch;
    HPS_ASSIGN_OR_RETURN(const DeviceCallLease call, cache_.AcquireCall(batch.key_count));
    HPS_RETURN_IF_ERROR(call->Begin({&query, 1}, device_.stream()));
    HPS_RETURN_IF_ERROR(call->Misses(kNoDeadline).status());
    return watch.us();
  }

  static absl::Status CheckCounts(const Batch& batch, const LookupCounts& counts) {
    const uint64_t missing =
        batch.misses ? (batch.key_count + kMissEvery - 1) / kMissEvery : uint64_t{0};
    // At a fill of three quarters the cache may lose a row or two.
    if (counts[KeyStatus::kHitL2] < missing ||
        counts[KeyStatus::kHitL2] > missing + batch.key_count / 500 ||
        counts[KeyStatus::kHitL1] + counts[KeyStatus::kHitL2] != batch.key_count) {
      return absl::InternalError(absl::StrCat(
          "bench session: level 1 gave ", counts[KeyStatus::kHitL1], " and level 2 ",
          counts[KeyStatus::kHitL2], " of ", batch.key_count, " keys; ", missing, " were missing"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRows(const Batch& batch, size_t set) {
    HPS_RETURN_IF_ERROR(TimeCall(batch, set).status());
    std::vector<std::byte> rows(batch.key_count * kRowBytes);
    HPS_RETURN_IF_ERROR(device_.CopyOut(rows, rows_));
    for (size_t i = 0; i < batch.key_count; ++i) {
      const Key key = batch.keys[set][i];
      for (size_t word = 0; word < kRowWords; ++word) {
        if (LoadLittleEndian<uint64_t>(rows.data() + i * kRowBytes + word * sizeof(uint64_t)) !=
            RowWord(key, word))
          return absl::InternalError(absl::StrCat("bench session: key ", key, " got another row"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Measure(const Batch& batch, size_t runs, std::vector<Result>* results) {
    for (size_t set = 0; set < kKeySets; ++set) HPS_RETURN_IF_ERROR(CheckRows(batch, set));
    std::vector<double> calls_us, probes_us;
    const size_t warm_up_runs = runs / 10 + 3;
    for (size_t run = 0; run < warm_up_runs + runs; ++run) {
      // The two take turns; neither gets the keys that the other just had.
      HPS_ASSIGN_OR_RETURN(const double call_us, TimeCall(batch, 2 * run));
      HPS_ASSIGN_OR_RETURN(const double probe_us, TimeProbe(batch, 2 * run + 5));
      if (run < warm_up_runs) continue;
      calls_us.push_back(call_us);
      probes_us.push_back(probe_us);
    }
    const double call_us = Median(calls_us);
    const double probe_us = Median(probes_us);
    Result result{.name = "lookup_on_device",
                  .params = {{"dim", absl::StrCat(kDim)},
                             {"keys", absl::StrCat(batch.key_count)},
                             {"missing", batch.misses ? "10 %" : "none"},
                             {"rows", absl::StrCat(batch.row_count)},
                             {"threads", absl::StrCat(model_.thread_count())}},
                  .unit = "us",
                  .figure = call_us,
                  .bound = probe_us,
                  .p50 = call_us,
                  .p99 = Quantile(calls_us, 0.99),
                  .runs = runs};
    result.params["probe_us"] = absl::StrCat(probe_us);
    if (batch.misses) {
      result.params["level2"] = batch.pinned ? "pinned" : "not pinned";
      const size_t bytes = batch.unique_missing * kRowBytes;
      HPS_ASSIGN_OR_RETURN(const double copy_us, device_.CopyUs(bytes, runs));
      result.params["copy_us"] = absl::StrCat(copy_us);
      result.bound = std::max(probe_us, copy_us);
      // The row is of the large batch; a small one's parts don't overlap.
      if (batch.key_count >= 131'072) result.target = "<= 1.2";
      Result rate{.name = "missing_rows", .params = result.params, .unit = "GB/s", .runs = runs};
      rate.figure = static_cast<double>(bytes) / call_us / 1e3;
      rate.bound = static_cast<double>(bytes) / copy_us / 1e3;
      rate.ratio = rate.figure / *rate.bound;
      if (batch.key_count >= 131'072) rate.target = ">= 0.8";
      results->push_back(std::move(rate));
    }
    result.ratio = result.figure / *result.bound;
    results->push_back(std::move(result));
    return absl::OkStatus();
  }

 private:
  DeviceCache& cache_;
  Device& device_;
  Model& model_;
  const size_t number_;
  std::byte* rows_ = nullptr;
  std::byte* status_ = nullptr;
};

// Keys per second of all measurements at once, each on a thread of its own.
absl::StatusOr<double> KeysPerSecond(std::span<const std::unique_ptr<Measurement>> measurements,
                                     std::span<const Batch> batches, size_t runs) {
  std::vector<absl::Status> statuses(measurements.size());
  const double seconds = RunOnThreads(measurements.size(), [&](size_t i) {
    for (size_t run = 0; run < runs && statuses[i].ok(); ++run)
      statuses[i] = measurements[i]->TimeCall(batches[i], run).status();
  });
  for (const absl::Status& status : statuses) HPS_RETURN_IF_ERROR(status);
  return static_cast<double>(measurements.size() * batches[0].key_count * runs) / seconds;
}

// A cache that has room for `row_count` rows. What a table needs is known by the cache, and the
// cache's budget is given when it is made.
absl::StatusOr<std::unique_ptr<DeviceCache>> MakeCache(int device, size_t row_count) {
  const DeviceCacheFactory& factory = BuiltInDeviceCacheFactory();
  HPS_ASSIGN_OR_RETURN(const auto sizing,
                       factory.Make({.device = device, .bytes_max = 0, .calls_max = 1}));
  return factory.Make({.device = device, .bytes_max = SessionOnDeviceBytes(*sizing, row_count)});
}

// Calls of a session whose level 2 is memory and then Redis, beside one with memory alone; a tenth
// of the keys is missing in level 1.
absl::Status MeasureTwoParts(int device_number, Device& device, const SessionOnDeviceSizes& sizes,
                             std::vector<Result>* results) {
  std::array<std::unique_ptr<DeviceCache>, 2> caches;
  std::array<std::unique_ptr<Model>, 2> models;
  std::vector<Measurement> measurements;
  for (const size_t i : {0, 1}) {
    HPS_ASSIGN_OR_RETURN(caches[i], MakeCache(device_number, sizes.row_count));
    DeviceCache* const cache = caches[i].get();
    auto model = Model::Create({&cache, 1}, sizes.row_count, true, /*has_redis=*/i == 1);
    if (absl::IsUnimplemented(model.status())) {
      results->push_back(
          SkippedResult("lookup_memory_redis", "us", std::string(model.status().message())));
      return absl::OkStatus();
    }
    HPS_ASSIGN_OR_RETURN(models[i], std::move(model));
    measurements.emplace_back(*cache, device, *models[i], 0);
    HPS_RETURN_IF_ERROR(measurements[i].Prepare(std::ranges::max(sizes.batches)));
  }
  for (const size_t key_count : sizes.batches) {
    HPS_ASSIGN_OR_RETURN(const Batch batch,
                         measurements[0].MakeBatch(key_count, true, sizes.row_count));
    std::array<std::vector<double>, 2> us;
    for (Measurement& measurement : measurements)
      HPS_RETURN_IF_ERROR(measurement.CheckRows(batch, 0));
    const size_t warm_up_runs = sizes.runs / 10 + 3;
    for (size_t run = 0; run < warm_up_runs + sizes.runs; ++run) {
      for (const size_t i : {run % 2, 1 - run % 2}) {
        HPS_ASSIGN_OR_RETURN(const double call_us, measurements[i].TimeCall(batch, run));
        if (run >= warm_up_runs) us[i].push_back(call_us);
      }
    }
    Result result = MakeResult("lookup_memory_redis", "us", Median(us[1]), Median(us[0]));
    result.params = {{"dim", absl::StrCat(kDim)},
                     {"keys", absl::StrCat(key_count)},
                     {"missing", "10 %"},
                     {"rows", absl::StrCat(sizes.row_count)}};
    result.target = "<= 1.05";
    result.p50 = result.figure;
    result.p99 = Quantile(us[1], 0.99);
    result.runs = sizes.runs;
    results->push_back(std::move(result));
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t SessionOnDeviceBytes(const DeviceCache& cache, size_t row_count) {
  return cache.TableBytes(kRowBytes, row_count);
}

absl::StatusOr<std::vector<Result>> MeasureSessionOnDevice(DeviceCache& cache, Device& device,
                                                           const SessionOnDeviceSizes& sizes) {
  std::vector<Result> results;
  for (const bool pinned : {true, false}) {
    DeviceCache* const caches[] = {&cache};
    HPS_ASSIGN_OR_RETURN(const auto model, Model::Create(caches, sizes.row_count, pinned));
    Measurement measurement(cache, device, *model, 0);
    HPS_RETURN_IF_ERROR(
        measurement.Prepare(*std::max_element(sizes.batches.begin(), sizes.batches.end())));
    for (const size_t key_count : sizes.batches) {
      for (const bool misses : {false, true}) {
        if (!misses && !pinned) continue;  // the same as before
        HPS_ASSIGN_OR_RETURN(Batch batch,
                             measurement.MakeBatch(key_count, misses, sizes.row_count));
        batch.pinned = pinned;
        HPS_RETURN_IF_ERROR(measurement.Measure(batch, sizes.runs, &results));
      }
    }
  }
  return results;
}

absl::StatusOr<std::vector<Result>> MeasureSessionsOnTwo(std::array<DeviceCache*, 2> caches,
                                                         std::array<Device*, 2> devices,
                                                         const SessionOnDeviceSizes& sizes) {
  HPS_ASSIGN_OR_RETURN(const auto model, Model::Create(caches, sizes.row_count, true));
  std::vector<std::unique_ptr<Measurement>> measurements;
  for (size_t i = 0; i < caches.size(); ++i) {
    measurements.push_back(std::make_unique<Measurement>(*caches[i], *devices[i], *model, i));
    HPS_RETURN_IF_ERROR(measurements.back()->Prepare(
        *std::max_element(sizes.batches.begin(), sizes.batches.end())));
  }
  std::vector<Result> results;
  for (const size_t key_count : sizes.batches) {
    for (const bool misses : {false, true}) {
      std::vector<Batch> batches;
      for (const auto& measurement : measurements) {
        HPS_ASSIGN_OR_RETURN(Batch batch,
                             measurement->MakeBatch(key_count, misses, sizes.row_count));
        for (size_t set = 0; set < kKeySets; ++set)
          HPS_RETURN_IF_ERROR(measurement->CheckRows(batch, set));
        batches.push_back(std::move(batch));
      }
      const std::span all(measurements);
      HPS_ASSIGN_OR_RETURN(const double alone, KeysPerSecond(all.first(1), batches, sizes.runs));
      HPS_ASSIGN_OR_RETURN(const double both, KeysPerSecond(all, batches, sizes.runs));
      results.push_back({.name = "two_devices",
                         .params = {{"dim", absl::StrCat(kDim)},
                                    {"keys", absl::StrCat(key_count)},
                                    {"missing", misses ? "10 %" : "none"},
                                    {"threads", absl::StrCat(model->thread_count())}},
                         .unit = "keys/s",
                         .figure = both,
                         .bound = alone,
                         .ratio = both / alone,
                         .target = misses ? "" : ">= 1.8",
                         .runs = sizes.runs});
    }
  }
  return results;
}

absl::StatusOr<std::vector<Result>> RunSessionOnDevice(const Options& options) {
  const SessionOnDeviceSizes sizes =
      options.quick ? SessionOnDeviceSizes{size_t{64} << 10, {1024, 8192}, 20}
      : options.full
          ? SessionOnDeviceSizes{size_t{64} << 20, {1024, 4096, 16'384}, 500}
          : SessionOnDeviceSizes{size_t{4} << 20, {1024, 4096, 16'384, 32'768, 131'072}, 500};
  HPS_ASSIGN_OR_RETURN(const auto device, OpenDevice(options.device));
  HPS_ASSIGN_OR_RETURN(const auto cache, MakeCache(options.device, sizes.row_count));
  HPS_ASSIGN_OR_RETURN(auto results, MeasureSessionOnDevice(*cache, *device, sizes));
  if (!options.full) HPS_RETURN_IF_ERROR(MeasureTwoParts(options.device, *device, sizes, &results));
  const auto second = OpenDevice(options.device + 1);
  if (!second.ok()) return results;
  HPS_ASSIGN_OR_RETURN(const auto second_cache, MakeCache(options.device + 1, sizes.row_count));
  HPS_ASSIGN_OR_RETURN(const auto of_two,
                       MeasureSessionsOnTwo({cache.get(), second_cache.get()},
                                            {device.get(), second->get()}, sizes));
  results.insert(results.end(), of_two.begin(), of_two.end());
  return results;
}

}  // namespace hps::bench
