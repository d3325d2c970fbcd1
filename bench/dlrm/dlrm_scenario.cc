// What a click model gets from the levels: through the public API, at default settings, all tables
// in one call, new keys in each.
//
// "lookup": samples/s, beside a plain gather of the same rows. "hit_rate": of the highest level,
// beside the best that so many rows could have. Keys follow a power law, or are those of Criteo's
// click log in $HPS_REAL_DATA/criteo-8k. On a device, level 1 holds a share of the rows and
// level 2 all; on the host, level 2 holds the share and level 3 all. "two_devices": the same with
// one session on each of two devices at once, beside one device alone.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "bench/device.h"
#include "bench/dlrm/click_model.h"
#include "bench/dlrm/recorded_clicks.h"
#include "bench/gather.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/scratch.h"
#include "hps/store.h"

namespace hps::bench {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);
constexpr size_t kSettleKeys = 8'000'000;  // asked for between two looks at the hit rate
constexpr double kSettled = 0.002;         // and the growth that ends it
constexpr double kSettleSecondsMax = 60;
constexpr size_t kChecksMax = 4;  // batches whose rows are compared byte by byte

// The tables of the click log are so small that with rows of usual width most of a level's memory
// would be what each table costs besides its rows.
constexpr uint32_t kLogDim = 1024;

// A directory that has real data; its folder criteo-8k has Criteo's click log.
constexpr char kDataVariable[] = "HPS_REAL_DATA";

struct Case {
  size_t table_count = 26;
  double share = 0.1;
  double alpha = 1.05;
  bool is_recorded = false;  // tables and keys of the click log

  std::string Name() const {
    if (is_recorded) return absl::StrFormat("tables=%d share=%g keys=criteo", table_count, share);
    return absl::StrFormat("tables=%d share=%g zipf=%g", table_count, share, alpha);
  }
  std::map<std::string, std::string> Params() const {
    std::map<std::string, std::string> params = {{"tables", absl::StrCat(table_count)},
                                                 {"share", absl::StrCat(share)}};
    if (is_recorded)
      params["keys"] = "criteo";
    else
      params["zipf"] = absl::StrCat(alpha);
    return params;
  }
};

// One beside each axis of the first; with --full, all.
std::vector<Case> Cases(const Options& options) {
  std::vector<Case> cases;
  if (options.full) {
    for (const size_t tables : {size_t{26}, size_t{130}})
      for (const double share : {0.1, 1.0, 0.25, 0.05})
        for (const double alpha : {1.05, 0.9, 1.2})
          cases.push_back({.table_count = tables, .share = share, .alpha = alpha});
    for (const double share : {0.1, 1.0, 0.25, 0.05})
      cases.push_back({.share = share, .is_recorded = true});
  } else if (options.quick) {
    cases = {{}, {.share = 1}, {.is_recorded = true}};
  } else {
    cases = {{},
             {.share = 1},
             {.share = 0.25},
             {.alpha = 1.2},
             {.table_count = 130},
             {.is_recorded = true}};
  }
  std::erase_if(
      cases, [&](const Case& one) { return one.Name().find(options.only) == std::string::npos; });
  return cases;
}

struct Batch {
  std::vector<Key> keys;  // [table, sample]
  std::vector<uint64_t> places;
  const Key* device_keys = nullptr;  // the same on the device
};

// A store with all rows of a model, and what it is opened with.
class World {
 public:
  static absl::StatusOr<std::unique_ptr<World>> Create(const std::string& directory,
                                                       const ClickModel::Shape& shape) {
    return Filled(std::unique_ptr<World>(new World(directory, ClickModel(shape), {})));
  }
  // The tables of a click log.
  static absl::StatusOr<std::unique_ptr<World>> Create(const std::string& directory,
                                                       RecordedClicks clicks) {
    ClickModel model(clicks, kLogDim);
    return Filled(
        std::unique_ptr<World>(new World(directory, std::move(model), std::move(clicks))));
  }
  ~World() { RemoveScratch(directory_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  absl::StatusOr<std::unique_ptr<Store>> Open(double share, std::span<const int> devices) const {
    const auto all = static_cast<double>(model.row_count() * model.row_bytes());
    const auto bytes = static_cast<uint64_t>(share < 1 ? share * all : 1.6 * all);
    Config config = BaseConfig();
    config.l2.bytes_max = bytes;
    if (!devices.empty()) {
      config.l1.devices.assign(devices.begin(), devices.end());
      config.l1.bytes_max = bytes;
      config.l1.preload = share < 1 ? 0 : 1;
      config.l2.bytes_max = static_cast<uint64_t>(1.6 * all);
    }
    if (share >= 1 || !devices.empty()) config.l2.preload = 1;
    return Store::Open(config, OpenMode::kReadWrite);
  }

  ClickStream NewStream(double alpha, uint64_t seed) const {
    return clicks_.has_value() ? ClickStream(model, *clicks_) : ClickStream(model, alpha, seed);
  }
  // Larger batches would ask for the same again.
  size_t BatchMax() const { return clicks_.has_value() ? clicks_->sample_count() : SIZE_MAX; }

  const ClickModel model;

 private:
  World(std::string directory, ClickModel tables, std::optional<RecordedClicks> clicks)
      : model(std::move(tables)), directory_(std::move(directory)), clicks_(std::move(clicks)) {}

  static absl::StatusOr<std::unique_ptr<World>> Filled(std::unique_ptr<World> world) {
    RemoveScratch(world->directory_);
    HPS_RETURN_IF_ERROR(MakeScratch(world->directory_));
    for (size_t table = 0; table < world->model.table_count(); ++table)
      HPS_RETURN_IF_ERROR(world->ImportTable(table));
    return world;
  }

  Config BaseConfig() const {
    Config config;
    config.store.path = directory_ + "/store";
    config.l1.devices_auto = false;
    return config;
  }

  absl::Status ImportTable(size_t table) const {
    const uint64_t count = model.rows(table);
    std::vector<Key> keys(count);
    std::vector<std::byte> rows(count * model.row_bytes());
    for (uint64_t i = 0; i < count; ++i) {
      keys[i] = model.KeyOf(table, i + 1);
      model.WriteRow(table, keys[i],
                     std::span(rows).subspan(i * model.row_bytes(), model.row_bytes()));
    }
    ImportRequest request;
    request.name = absl::StrCat(kClickModel, "/", ClickModel::TableName(table));
    request.memory = {.keys = keys, .rows = rows, .dim = model.dim()};
    return ImportTables(BaseConfig(), request).status();
  }

  const std::string directory_;
  const std::optional<RecordedClicks> clicks_;  // empty: keys follow a power law
};

// What a user's thread has: a session, buffers for a batch, and its stream of samples.
class Reader {
 public:
  struct Setting {
    int device = -1;
    size_t batch_max = 0;  // samples
    double alpha = 0;
    uint64_t seed = 0;
  };
  static absl::StatusOr<std::unique_ptr<Reader>> Create(const World& world, Store& store,
                                                        const Setting& setting) {
    auto reader = std::unique_ptr<Reader>(new Reader(world, setting));
    const int device = setting.device;
    HPS_ASSIGN_OR_RETURN(reader->session_, store.NewSession(kClickModel, {.device = device}));
    for (size_t table = 0; table < world.model.table_count(); ++table) {
      HPS_ASSIGN_OR_RETURN(const TableIndex index,
                           reader->session_->FindTable(ClickModel::TableName(table)));
      reader->tables_.push_back(index);
    }
    const size_t bytes = setting.batch_max * world.model.table_count() * world.model.row_bytes();
    if (device >= 0) {
      HPS_ASSIGN_OR_RETURN(reader->device_, OpenDevice(device));
      HPS_ASSIGN_OR_RETURN(std::byte* const rows, reader->device_->Allocate(bytes));
      reader->rows_ = {rows, bytes};
    } else {
      reader->host_rows_.resize(bytes);
      reader->rows_ = {reader->host_rows_.data(), bytes};
    }
    return reader;
  }

  // `count` batches of new samples. The last ones' keys are no longer on the device after it.
  absl::StatusOr<std::vector<Batch>> MakeBatches(size_t batch, size_t count) {
    std::vector<Batch> batches(count);
    const size_t key_count = batch * model_.table_count();
    const size_t bytes = key_count * sizeof(Key);
    if (device_ != nullptr && device_keys_.size() < bytes * count) {
      HPS_ASSIGN_OR_RETURN(std::byte* const memory, device_->Allocate(bytes * count));
      device_keys_ = {memory, bytes * count};
    }
    for (size_t i = 0; i < count; ++i) {
      stream_.Next(batch, &batches[i].keys, &batches[i].places);
      if (device_ == nullptr) continue;
      std::byte* const keys = device_keys_.data() + i * bytes;
      HPS_RETURN_IF_ERROR(device_->CopyIn(keys, AsBytes(std::span<const Key>(batches[i].keys))));
      batches[i].device_keys = static_cast<const Key*>(static_cast<const void*>(keys));
    }
    return batches;
  }

  // Looks all rows of a batch up in one call and waits for them. Returns the microseconds; adds to
  // `counts`.
  absl::StatusOr<double> Ask(const Batch& batch, LookupCounts* counts) {
    const Stopwatch watch;
    LookupCounts once;
    HPS_RETURN_IF_ERROR(device_ != nullptr
                            ? Call<MemorySpace::kDevice>(batch.device_keys, batch, &once)
                            : Call<MemorySpace::kHost>(batch.keys.data(), batch, &once));
    if (device_ != nullptr) HPS_RETURN_IF_ERROR(device_->Synchronize());
    for (size_t i = 0; i < kKeyStatusCount; ++i) counts->by_status[i] += once.by_status[i];
    return watch.us();
  }

  // Compares each byte of the batch that was asked for last. Errors: INTERNAL.
  absl::Status CheckRows(const Batch& batch) {
    const size_t row_bytes = model_.row_bytes();
    std::vector<std::byte> rows(batch.keys.size() * row_bytes);
    if (device_ != nullptr)
      HPS_RETURN_IF_ERROR(device_->CopyOut(rows, rows_.data()));
    else
      std::memcpy(rows.data(), rows_.data(), rows.size());
    const size_t samples = batch.keys.size() / model_.table_count();
    std::vector<std::byte> expected(row_bytes);
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      model_.WriteRow(i / samples, batch.keys[i], expected);
      if (std::memcmp(expected.data(), &rows[i * row_bytes], row_bytes) != 0) {
        return absl::InternalError(absl::StrCat("bench dlrm: table ", i / samples, ", key ",
                                                batch.keys[i], ": another row"));
      }
    }
    return absl::OkStatus();
  }

  // Microseconds of a copy of the batch's rows whose places are known: what no cache can leave out.
  absl::StatusOr<double> GatherUs(const Batch& batch, size_t runs) {
    if (device_ != nullptr)
      return device_->GatherUs(batch.places, model_.row_count(), model_.row_bytes(), runs);
    if (all_rows_.empty()) {
      all_rows_.resize(model_.row_count() * model_.row_bytes() + kAlignment, std::byte{1});
    }
    std::byte* const begin = Aligned(all_rows_.data());
    std::vector<const std::byte*> rows;
    for (const uint64_t place : batch.places) rows.push_back(begin + place * model_.row_bytes());
    std::vector<std::byte> out(rows.size() * model_.row_bytes() + kAlignment);
    double best_us = 0;
    for (const GatherShape& shape : GatherShapes()) {
      const Stopwatch watch;
      Gather(rows, model_.row_bytes(), Aligned(out.data()), shape);
      const double us = watch.us();
      best_us = best_us == 0 ? us : std::min(best_us, us);
    }
    return best_us;
  }

  const ClickStream& stream() const { return stream_; }
  size_t batch_max() const { return batch_max_; }
  bool on_device() const { return device_ != nullptr; }

 private:
  static constexpr size_t kAlignment = 64;

  Reader(const World& world, const Setting& setting)
      : model_(world.model),
        batch_max_(setting.batch_max),
        stream_(world.NewStream(setting.alpha, setting.seed)) {}

  static std::byte* Aligned(std::byte* memory) {
    void* begin = memory;
    size_t space = 2 * kAlignment;
    return static_cast<std::byte*>(std::align(kAlignment, kAlignment, begin, space));
  }

  template <MemorySpace kSpace>
  absl::Status Call(const Key* keys, const Batch& batch, LookupCounts* counts) {
    const size_t samples = batch.keys.size() / tables_.size();
    const size_t bytes = samples * model_.row_bytes();
    std::vector<TableQuery<kSpace>> queries(tables_.size());
    for (size_t table = 0; table < tables_.size(); ++table) {
      queries[table].table = tables_[table];
      queries[table].keys = {keys + table * samples, samples};
      queries[table].rows = {rows_.data() + table * bytes, bytes};
    }
    LookupRequest<kSpace> request{.queries = queries, .timeout = kTimeout};
    if (device_ != nullptr) request.stream = device_->stream();
    return session_->Lookup(request, counts);
  }

  const ClickModel& model_;
  const size_t batch_max_;  // samples for which there are buffers
  ClickStream stream_;
  std::unique_ptr<Device> device_;  // null: the host
  std::unique_ptr<LookupSession> session_;
  std::vector<TableIndex> tables_;
  std::vector<std::byte> host_rows_;
  DeviceSpan<std::byte> rows_;  // or the host's
  DeviceSpan<std::byte> device_keys_;
  std::vector<std::byte> all_rows_;  // for GatherUs
};

// Rows of each table that the highest level holds. REQUIRES: at most one device.
std::vector<uint64_t> RowsHeld(const Store& store, size_t table_count, bool on_device) {
  std::map<std::string, uint64_t> by_name;
  for (const TableStatistics& table : store.Statistics().tables)
    by_name[table.name] = on_device ? table.l1.entries : table.l2.entries;
  std::vector<uint64_t> rows;
  for (size_t table = 0; table < table_count; ++table)
    rows.push_back(by_name[absl::StrCat(kClickModel, "/", ClickModel::TableName(table))]);
  return rows;
}

double HitRate(const LookupCounts& counts, bool on_device) {
  const uint64_t hits = counts[on_device ? KeyStatus::kHitL1 : KeyStatus::kHitL2];
  return static_cast<double>(hits) / static_cast<double>(std::max<uint64_t>(1, counts.total()));
}

// Asks until the hit rate has stopped to grow.
absl::Status Settle(Reader& reader, Store& store, const ClickModel& model) {
  const size_t batch = std::min<size_t>(4096, reader.batch_max());
  const size_t calls = std::max<size_t>(2, kSettleKeys / (batch * model.table_count()));
  const Stopwatch watch;
  double before = -1;
  while (watch.seconds() < kSettleSecondsMax) {
    LookupCounts counts;
    for (size_t call = 0; call < calls && watch.seconds() < kSettleSecondsMax; ++call) {
      HPS_ASSIGN_OR_RETURN(const std::vector<Batch> batches, reader.MakeBatches(batch, 1));
      HPS_RETURN_IF_ERROR(reader.Ask(batches[0], &counts).status());
    }
    HPS_RETURN_IF_ERROR(store.DrainPromotions(kTimeout));
    const double rate = HitRate(counts, reader.on_device());
    if (rate - before < kSettled) break;
    before = rate;
  }
  return absl::OkStatus();
}

struct Figures {
  double samples_per_s = 0;
  std::vector<double> calls_us;
  LookupCounts counts;
};

absl::StatusOr<Figures> AskAll(Reader& reader, std::span<const Batch> batches, size_t samples) {
  Figures figures;
  const Stopwatch watch;
  for (const Batch& batch : batches) {
    HPS_ASSIGN_OR_RETURN(const double us, reader.Ask(batch, &figures.counts));
    figures.calls_us.push_back(us);
  }
  figures.samples_per_s = static_cast<double>(samples * batches.size()) / watch.seconds();
  return figures;
}

struct BatchSize {
  size_t samples = 0;
  size_t runs = 0;
};
std::vector<BatchSize> BatchSizes(const Options& options) {
  if (options.quick) return {{.samples = 256, .runs = 4}};
  const bool device = options.device >= 0;
  return {{.samples = 1024, .runs = device ? 300u : 40u},
          {.samples = 8192, .runs = device ? 60u : 10u},
          {.samples = 65'536, .runs = device ? 24u : 3u}};
}

class Measurement {
 public:
  Measurement(const Options& options, const World& world, const Case& one)
      : options_(options), world_(world), case_(one) {}

  absl::Status Run(std::vector<Result>* results) {
    std::vector<int> devices;
    if (options_.device >= 0) devices.push_back(options_.device);
    HPS_ASSIGN_OR_RETURN(const auto store, world_.Open(case_.share, devices));
    HPS_ASSIGN_OR_RETURN(const auto reader, MakeReader(*store, options_.device));
    HPS_RETURN_IF_ERROR(Settle(*reader, *store, world_.model));
    for (const BatchSize& size : Sizes()) {
      // The first lookups of a size have to get memory.
      HPS_ASSIGN_OR_RETURN(const auto first, reader->MakeBatches(size.samples, size.runs));
      HPS_RETURN_IF_ERROR(AskAll(*reader, first, size.samples).status());
      HPS_ASSIGN_OR_RETURN(const auto batches, reader->MakeBatches(size.samples, size.runs));
      HPS_ASSIGN_OR_RETURN(Figures figures, AskAll(*reader, batches, size.samples));
      HPS_ASSIGN_OR_RETURN(const double gather_us, reader->GatherUs(batches[0], 5));
      const double hit_rate = HitRate(figures.counts, reader->on_device());
      results->push_back(LookupResult(size, std::move(figures), gather_us));
      const std::vector<uint64_t> held =
          RowsHeld(*store, world_.model.table_count(), reader->on_device());
      results->push_back(HitRateResult(size, hit_rate, reader->stream(), held));
      for (size_t i = 0; i < std::min(kChecksMax, batches.size()); ++i) {
        LookupCounts counts;
        HPS_RETURN_IF_ERROR(reader->Ask(batches[i], &counts).status());
        HPS_RETURN_IF_ERROR(reader->CheckRows(batches[i]));
      }
    }
    return absl::OkStatus();
  }

  // One session on each of two devices, first alone, then at once.
  absl::Status RunOnTwo(std::vector<Result>* results) {
    const std::vector<int> devices = {options_.device, options_.device + 1};
    HPS_ASSIGN_OR_RETURN(const auto store, world_.Open(case_.share, devices));
    std::vector<std::unique_ptr<Reader>> readers(2);
    for (size_t i = 0; i < 2; ++i) {
      HPS_ASSIGN_OR_RETURN(readers[i], MakeReader(*store, devices[i]));
      HPS_RETURN_IF_ERROR(Settle(*readers[i], *store, world_.model));
    }
    for (const BatchSize& size : Sizes()) {
      HPS_ASSIGN_OR_RETURN(const double alone, RateOf(std::span(readers).first(1), size));
      HPS_ASSIGN_OR_RETURN(const double both, RateOf(readers, size));
      Result result = MakeResult("two_devices", "samples/s", both, alone);
      result.params = Params(size);
      result.target = ">= 1.8";
      result.runs = size.runs;
      results->push_back(std::move(result));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<BatchSize> Sizes() const {
    std::vector<BatchSize> sizes = BatchSizes(options_);
    std::erase_if(sizes,
                  [this](const BatchSize& size) { return size.samples > world_.BatchMax(); });
    return sizes;
  }

  absl::StatusOr<std::unique_ptr<Reader>> MakeReader(Store& store, int device) const {
    return Reader::Create(world_, store,
                          {.device = device,
                           .batch_max = Sizes().back().samples,
                           .alpha = case_.alpha,
                           .seed = static_cast<uint64_t>(device + 2)});
  }

  // Of all readers together, from their common start to the end of the last one.
  absl::StatusOr<double> RateOf(std::span<const std::unique_ptr<Reader>> readers,
                                const BatchSize& size) {
    std::vector<std::vector<Batch>> batches(readers.size());
    std::vector<absl::Status> statuses(readers.size());
    for (size_t i = 0; i < readers.size(); ++i) {
      HPS_ASSIGN_OR_RETURN(batches[i], readers[i]->MakeBatches(size.samples, size.runs));
    }
    const double seconds = RunOnThreads(readers.size(), [&](size_t i) {
      statuses[i] = AskAll(*readers[i], batches[i], size.samples).status();
    });
    for (const absl::Status& status : statuses) HPS_RETURN_IF_ERROR(status);
    return static_cast<double>(readers.size() * size.samples * size.runs) / seconds;
  }

  std::map<std::string, std::string> Params(const BatchSize& size) const {
    std::map<std::string, std::string> params = case_.Params();
    params.insert({{"batch", absl::StrCat(size.samples)},
                   {"dim", absl::StrCat(world_.model.dim())},
                   {"rows", absl::StrCat(world_.model.row_count())},
                   {"level", options_.device >= 0 ? "1" : "2"}});
    return params;
  }

  Result LookupResult(const BatchSize& size, Figures figures, double gather_us) const {
    Result result = MakeResult("lookup", "samples/s", figures.samples_per_s,
                               static_cast<double>(size.samples) / gather_us * 1e6);
    result.params = Params(size);
    result.p50 = Median(figures.calls_us);
    result.p99 = Quantile(figures.calls_us, 0.99);
    result.runs = size.runs;
    for (size_t i = 0; i < kKeyStatusCount; ++i) {
      result.measured.emplace_back(kKeyStatusNames[i],
                                   static_cast<double>(figures.counts.by_status[i]) /
                                       static_cast<double>(figures.counts.total()));
    }
    return result;
  }

  // `held`: rows of each table. What divides them otherwise could gain the difference of the best
  // and the best as divided.
  Result HitRateResult(const BatchSize& size, double rate, const ClickStream& stream,
                       const std::vector<uint64_t>& held) const {
    const uint64_t held_sum = std::accumulate(held.begin(), held.end(), uint64_t{0});
    const double best = stream.BestHitRate(held_sum);
    Result result = MakeResult("hit_rate", "share", rate, best);
    result.params = Params(size);
    result.params["rows_held"] = absl::StrCat(held_sum);
    result.target = absl::StrFormat(">= %.3f", 1 - 0.02 / best);
    result.runs = size.runs;
    result.measured.emplace_back("best_as_divided", stream.BestHitRate(held));
    return result;
  }

  const Options& options_;
  const World& world_;
  const Case case_;
};

// The world of a case. Errors: NOT_FOUND (there is no click log), and those of the import.
absl::StatusOr<std::unique_ptr<World>> MakeWorld(const Options& options, const Case& one) {
  const std::string directory = options.directory + "/dlrm";
  if (one.is_recorded) {
    const char* const data = std::getenv(kDataVariable);
    if (data == nullptr) return absl::NotFoundError(absl::StrCat(kDataVariable, " is not set"));
    HPS_ASSIGN_OR_RETURN(RecordedClicks clicks, ReadCriteoClicks(absl::StrCat(data, "/criteo-8k")));
    return World::Create(directory, std::move(clicks));
  }
  // As many rows with five times the tables.
  const double scale = options.quick ? 0.002 : options.scale;
  return World::Create(directory, {.table_count = one.table_count,
                                   .scale = scale * 26 / static_cast<double>(one.table_count)});
}

Result NoClickLog(const Case& one, const absl::Status& why) {
  Result result = SkippedResult(
      "hit_rate", "share",
      absl::StrCat("no click log of Criteo in $", kDataVariable, "/criteo-8k: ", why.message()));
  result.params = one.Params();
  return result;
}

bool HaveOneWorld(const Case& a, const Case& b) {
  return a.is_recorded == b.is_recorded && a.table_count == b.table_count;
}

absl::Status CheckHasCases(const Options& options, const std::vector<Case>& cases) {
  if (!cases.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  Options all = options;
  all.only.clear();
  for (const Case& one : Cases(all)) names.push_back(one.Name());
  return absl::InvalidArgumentError(absl::StrCat(
      "no case has '", options.only, "' in its name; there are: ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunDlrmScenario(const Options& options) {
  const std::vector<Case> cases = Cases(options);
  HPS_RETURN_IF_ERROR(CheckHasCases(options, cases));
  const bool two = options.device >= 0 && OpenDevice(options.device + 1).ok();
  std::vector<Result> results;
  std::unique_ptr<World> world;
  const Case* of_world = nullptr;
  for (const Case& one : cases) {
    if (of_world == nullptr || !HaveOneWorld(one, *of_world)) {
      world.reset();
      of_world = nullptr;
      absl::StatusOr<std::unique_ptr<World>> made = MakeWorld(options, one);
      if (one.is_recorded && absl::IsNotFound(made.status())) {
        results.push_back(NoClickLog(one, made.status()));
        continue;
      }
      HPS_RETURN_IF_ERROR(made.status());
      world = *std::move(made);
      of_world = &one;
    }
    Measurement measurement(options, *world, one);
    HPS_RETURN_IF_ERROR(measurement.Run(&results));
    if (two) HPS_RETURN_IF_ERROR(measurement.RunOnTwo(&results));
  }
  return results;
}

}  // namespace hps::bench
