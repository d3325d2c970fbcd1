// What loads, unloads and opens leave behind in memory, and how long they take: a model of 26
// tables, through the public API. Nothing is held between two cycles, so memory that stays is
// memory that the process' allocator did not give back.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scenario.h"
#include "bench/scratch.h"
#include "bench/update/update_world.h"
#include "hps/store.h"

namespace hps::bench {
namespace {

constexpr char kModel[] = "m";
constexpr uint32_t kTables = 26;
constexpr uint32_t kDim = 32;
constexpr auto kWaitMax = std::chrono::seconds(60);

struct Sizes {
  uint64_t rows = 0;  // per table
  size_t loads = 0;
  size_t opens = 0;
};

Config StoreConfigIn(const std::string& directory) {
  Config config;
  config.store.path = directory + "/store";
  config.l1.devices_auto = false;
  config.l2.preload = 1;
  return config;
}

absl::Status ImportModel(const Config& config, uint64_t row_count) {
  std::vector<Key> keys(row_count);
  std::iota(keys.begin(), keys.end(), Key{0});
  const std::vector<std::byte> rows(row_count * kDim * sizeof(float), std::byte{1});
  for (uint32_t table = 0; table < kTables; ++table) {
    ImportRequest request;
    request.name = absl::StrCat(kModel, "/t", table);
    request.memory = {.keys = keys, .rows = rows, .dim = kDim};
    HPS_RETURN_IF_ERROR(ImportTables(config, request).status());
  }
  return absl::OkStatus();
}

// Asks for every row once.
absl::Status LookUpAll(Store& store, uint64_t row_count) {
  HPS_ASSIGN_OR_RETURN(const auto session, store.NewSession(kModel, {}));
  std::vector<Key> keys(row_count);
  std::iota(keys.begin(), keys.end(), Key{0});
  std::vector<std::byte> rows(row_count * kDim * sizeof(float));
  std::vector<KeyStatus> statuses(row_count);
  for (uint32_t table = 0; table < kTables; ++table) {
    const HostTableQuery query = {.table = {table}, .keys = keys, .rows = rows, .status = statuses};
    LookupCounts counts;
    HPS_RETURN_IF_ERROR(session->Lookup({.queries = {&query, 1}}, &counts));
    if (std::any_of(rows.begin(), rows.end(), [](std::byte b) { return b != std::byte{1}; }))
      return absl::InternalError("bench load: a row is wrong");
  }
  return absl::OkStatus();
}

struct Cycles {
  std::vector<double> begin_us;  // of the load, or of the open
  std::vector<double> end_us;    // of the unload, or of the close
  std::vector<uint64_t> resident_bytes;
};

absl::StatusOr<Cycles> LoadCycles(const Config& config, const Sizes& sizes) {
  HPS_ASSIGN_OR_RETURN(const auto store, Store::Open(config, OpenMode::kServe));
  Cycles cycles;
  for (size_t cycle = 0; cycle < sizes.loads; ++cycle) {
    const Stopwatch load;
    HPS_RETURN_IF_ERROR(store->models().Load(kModel));
    cycles.begin_us.push_back(load.us());
    HPS_RETURN_IF_ERROR(LookUpAll(*store, sizes.rows));
    const Stopwatch unload;
    HPS_RETURN_IF_ERROR(store->models().Unload(kModel, kWaitMax));
    cycles.end_us.push_back(unload.us());
    cycles.resident_bytes.push_back(ResidentBytes());
  }
  return cycles;
}

absl::StatusOr<Cycles> OpenCycles(const Config& config, const Sizes& sizes) {
  Cycles cycles;
  for (size_t cycle = 0; cycle < sizes.opens; ++cycle) {
    const Stopwatch open;
    HPS_ASSIGN_OR_RETURN(auto store, Store::Open(config, OpenMode::kReadWrite));
    cycles.begin_us.push_back(open.us());
    HPS_RETURN_IF_ERROR(LookUpAll(*store, sizes.rows));
    const Stopwatch close;
    store.reset();
    cycles.end_us.push_back(close.us());
    cycles.resident_bytes.push_back(ResidentBytes());
  }
  return cycles;
}

void AddCycles(const std::string& name, const std::vector<std::string>& steps, Cycles cycles,
               std::vector<Result>* results) {
  Result memory = MakeResult(absl::StrCat(name, "_memory"), "bytes",
                             static_cast<double>(cycles.resident_bytes.back()),
                             static_cast<double>(cycles.resident_bytes.front()));
  memory.params = {{"cycles", std::to_string(cycles.resident_bytes.size())},
                   {"tables", std::to_string(kTables)}};
  memory.target = "<= 1.1";
  results->push_back(std::move(memory));
  const std::array<std::vector<double>*, 2> times = {&cycles.begin_us, &cycles.end_us};
  for (size_t i = 0; i < times.size(); ++i) {
    Result result = MakeResult(steps[i], "ms", Median(*times[i]) * 1e-3, {});
    result.params = {{"tables", std::to_string(kTables)}};
    result.p50 = Median(*times[i]);
    result.p99 = Quantile(*times[i], 0.99);
    result.runs = times[i]->size();
    results->push_back(std::move(result));
  }
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunLoadScenario(const Options& options) {
  const Sizes sizes = options.quick ? Sizes{.rows = 500, .loads = 3, .opens = 3}
                                    : Sizes{.rows = 20'000, .loads = 100, .opens = 60};
  const std::string directory = options.directory + "/load";
  RemoveScratch(directory);
  HPS_RETURN_IF_ERROR(MakeScratch(directory));
  const Config config = StoreConfigIn(directory);
  std::vector<Result> results;
  const auto measure = [&]() -> absl::Status {
    HPS_RETURN_IF_ERROR(ImportModel(config, sizes.rows));
    HPS_ASSIGN_OR_RETURN(Cycles loads, LoadCycles(config, sizes));
    AddCycles("unload", {"load", "unload"}, std::move(loads), &results);
    HPS_ASSIGN_OR_RETURN(Cycles opens, OpenCycles(config, sizes));
    AddCycles("close", {"open", "close"}, std::move(opens), &results);
    return absl::OkStatus();
  };
  const absl::Status measured = measure();
  RemoveScratch(directory);
  HPS_RETURN_IF_ERROR(measured);
  return results;
}

}  // namespace hps::bench
