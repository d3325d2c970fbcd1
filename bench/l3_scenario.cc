// Fetches of level 3 from a table that was imported into page files, beside the disk's own random
// reads, beside RocksDB's MultiGet of the same rows, and beside such a table of which some rows
// have changed since the import. See bench/l3_sides.h for "cold".
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/l3_merge.h"
#include "bench/l3_sides.h"
#include "bench/measure.h"
#include "bench/scenario.h"
#include "bench/scratch.h"

namespace hps::bench {
namespace {

struct Share {
  uint32_t per_mille;
  const char* name;
  const char* target;  // of the ratio to the unchanged table
};
constexpr Share kShares[] = {{10, "1%", ">= 0.9"}, {200, "20%", ">= 0.5"}};

struct Case {
  size_t batch = 0;
  size_t threads = 1;
  uint64_t keys = 0;        // of a run and thread, and reads of the disk
  uint64_t rocks_keys = 0;  // of a run and thread of RocksDB
  size_t runs = 0;
};

// All sides with the same rows.
struct World {
  World(const std::string& directory, const L3Shape& its_shape)
      : shape(its_shape),
        unchanged(directory + "/unchanged", shape, 0),
        rocks(directory + "/rocksdb", shape) {
    for (const Share& share : kShares)
      changed.push_back(std::make_unique<StoreSide>(
          absl::StrCat(directory, "/changed-", share.per_mille), shape, share.per_mille));
  }

  absl::Status Prepare() {
    HPS_RETURN_IF_ERROR(unchanged.Prepare());
    HPS_RETURN_IF_ERROR(rocks.Prepare(unchanged.incarnation()));
    for (const auto& side : changed) HPS_RETURN_IF_ERROR(side->Prepare());
    HPS_ASSIGN_OR_RETURN(disk, DiskSide::Open(unchanged.page_file()));
    if (shape.cold) return absl::OkStatus();
    HPS_RETURN_IF_ERROR(unchanged.Warm());
    HPS_RETURN_IF_ERROR(rocks.Warm());
    for (const auto& side : changed) HPS_RETURN_IF_ERROR(side->Warm());
    return absl::OkStatus();
  }

  const L3Shape shape;
  StoreSide unchanged;
  std::vector<std::unique_ptr<StoreSide>> changed;  // [kShares]
  RocksSide rocks;
  std::unique_ptr<DiskSide> disk;
};

// Keys or reads per second, one of each run.
struct Speeds {
  std::vector<double> disk;
  std::vector<double> unchanged;
  std::vector<double> rocks;
  std::vector<double> changed[std::size(kShares)];
};

// Keys per second of all threads together.
template <typename Side>
absl::StatusOr<double> FetchOnThreads(const Side& side, const L3Shape& shape, const Case& what,
                                      uint64_t key_count, uint64_t seed) {
  std::vector<KeyBatches> batches;
  for (size_t thread = 0; thread < what.threads; ++thread)
    batches.push_back(RandomBatches(shape, what.batch, key_count, seed * 1000 + thread));
  if (what.threads == 1) return side.Fetch(batches[0]);
  std::vector<absl::StatusOr<double>> speeds(what.threads, 0.0);
  RunOnThreads(what.threads, [&](size_t thread) { speeds[thread] = side.Fetch(batches[thread]); });
  double sum = 0;
  for (const absl::StatusOr<double>& speed : speeds) {
    HPS_RETURN_IF_ERROR(speed.status());
    sum += *speed;
  }
  return sum;
}

// In turns, so that a change of the machine's speed hits all sides.
absl::StatusOr<Speeds> MeasureSpeeds(const World& world, const Case& what) {
  Speeds speeds;
  for (uint64_t run = 0; run <= what.runs; ++run) {
    const auto fetch = [&](const auto& side, uint64_t keys, std::vector<double>& into) {
      const absl::StatusOr<double> speed = FetchOnThreads(side, world.shape, what, keys, run);
      if (speed.ok() && run > 0) into.push_back(*speed);  // run 0 warms up
      return speed.status();
    };
    if (world.shape.cold) {
      HPS_ASSIGN_OR_RETURN(const double reads, world.disk->Read(what.keys, run));
      if (run > 0) speeds.disk.push_back(reads);
    }
    HPS_RETURN_IF_ERROR(fetch(world.unchanged, what.keys, speeds.unchanged));
    for (size_t i = 0; i < std::size(kShares); ++i)
      HPS_RETURN_IF_ERROR(fetch(*world.changed[i], what.keys, speeds.changed[i]));
    HPS_RETURN_IF_ERROR(fetch(world.rocks, what.rocks_keys, speeds.rocks));
  }
  return speeds;
}

Result ResultOf(const std::string& name, const World& world, const Case& what) {
  Result result;
  result.name = name;
  result.params = {{"dim", std::to_string(world.shape.dim)},
                   {"batch", std::to_string(what.batch)},
                   {"threads", std::to_string(what.threads)},
                   {"rows", std::to_string(world.shape.row_count())}};
  result.unit = "keys/s";
  result.runs = what.runs;
  return result;
}

Result WithBound(Result result, std::vector<double>& figures, std::vector<double>& bounds,
                 const std::string& target) {
  result.figure = Median(figures);
  result.bound = Median(bounds);
  result.ratio = result.figure / *result.bound;
  result.target = target;
  return result;
}

absl::Status Measure(const World& world, const Case& what, std::vector<Result>& results) {
  HPS_ASSIGN_OR_RETURN(Speeds speeds, MeasureSpeeds(world, what));
  const bool cold = world.shape.cold;
  const std::string name = cold ? "fetch_cold" : "fetch_cached";
  if (cold) {
    results.push_back(WithBound(ResultOf(name + "_disk", world, what), speeds.unchanged,
                                speeds.disk, what.batch >= 4096 ? ">= 0.65" : ""));
  }
  results.push_back(WithBound(ResultOf(name + "_rocksdb", world, what), speeds.unchanged,
                              speeds.rocks, cold ? ">= 4" : ">= 3"));
  for (size_t i = 0; i < std::size(kShares); ++i) {
    Result result = ResultOf(name + "_changed", world, what);
    result.params["changed"] = kShares[i].name;
    results.push_back(
        WithBound(std::move(result), speeds.changed[i], speeds.unchanged, kShares[i].target));
  }
  return absl::OkStatus();
}

absl::StatusOr<Result> MeasureIndex(const World& world) {
  Result result;
  result.name = "index_memory";
  result.params = {{"dim", std::to_string(world.shape.dim)},
                   {"rows", std::to_string(world.shape.row_count())}};
  result.unit = "bytes";
  HPS_ASSIGN_OR_RETURN(result.figure, world.unchanged.MeasureIndexMemory());
  result.bound = static_cast<double>(world.shape.row_count() * world.shape.row_bytes());
  result.ratio = result.figure / *result.bound;
  result.target = "<= 0.0025";
  result.runs = 1;
  return result;
}

absl::Status MeasureCold(const Options& options, uint32_t dim, std::vector<Result>& results) {
  World world(options.directory + "/l3", {dim, true, uint64_t{options.quick ? 4u : 256u} << 20});
  HPS_RETURN_IF_ERROR(world.Prepare());
  for (const size_t batch : {128u, 4096u, 65'536u}) {
    Case what{.batch = batch, .keys = 32'768, .rocks_keys = 4096, .runs = 5};
    if (options.quick) what = {.batch = batch, .keys = 4096, .rocks_keys = 512, .runs = 2};
    HPS_RETURN_IF_ERROR(Measure(world, what, results));
  }
  HPS_ASSIGN_OR_RETURN(Result index, MeasureIndex(world));
  results.push_back(std::move(index));
  return absl::OkStatus();
}

absl::Status MeasureCached(const Options& options, std::vector<Result>& results) {
  World world(options.directory + "/l3", {32, false, uint64_t{options.quick ? 4u : 80u} << 20});
  HPS_RETURN_IF_ERROR(world.Prepare());
  for (const size_t batch : {128u, 4096u, 65'536u}) {
    for (const size_t threads : {1u, 2u}) {
      Case what{.batch = batch, .threads = threads, .keys = 1 << 18, .rocks_keys = 1 << 16};
      what.runs = 15;
      if (options.quick) {
        what.keys = what.rocks_keys = 4096;
        what.runs = 2;
      }
      HPS_RETURN_IF_ERROR(Measure(world, what, results));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunL3Scenario(const Options& options) {
  std::vector<Result> results;
  for (const uint32_t dim : {16u, 32u, 128u})
    HPS_RETURN_IF_ERROR(MeasureCold(options, dim, results));
  HPS_RETURN_IF_ERROR(MeasureCached(options, results));
  RemoveScratch(options.directory + "/l3");
  HPS_ASSIGN_OR_RETURN(Result merge, MeasureMerge(options));
  results.push_back(std::move(merge));
  return results;
}

}  // namespace hps::bench
