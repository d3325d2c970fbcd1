// What level 1 does on a GPU, kernel by kernel, against copies of the same rows by known places.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/l1/l1_device.h"
#include "bench/l1/l1_hit_rate.h"
#include "bench/measure.h"
#include "bench/scenario.h"
#include "gpu/cuda_status.h"
#include "tier/device_cache.h"

namespace hps::bench {
namespace {

struct Sizes {
  uint64_t slots = 0;
  uint32_t keys_max = 0;
  std::vector<uint32_t> calls;  // keys of a call
  size_t runs = 0;
};

Sizes SizesOf(const Options& options) {
  if (options.quick) return {64 << 10, 8192, {4096, 8192}, 5};
  return {16 << 20, 1 << 20, {4096, 26'624, 131'072, 1 << 20}, 40};
}

constexpr uint32_t kSmallCallKeys = 4096;

using Results = std::vector<Result>;

Result Named(const std::string& name, uint32_t row_bytes, uint32_t keys) {
  Result result{.name = name};
  result.params = {{"dim", absl::StrCat(row_bytes / 4)}, {"keys", absl::StrCat(keys)}};
  return result;
}

// Compares by time: less is better.
void AddTime(Result result, double figure_us, double bound_us, const std::string& target,
             Results& results) {
  result.unit = "us";
  result.figure = figure_us;
  result.bound = bound_us;
  result.ratio = figure_us / bound_us;
  result.target = target;
  results.push_back(std::move(result));
}

// Compares by speed: more is better.
void AddSpeed(Result result, double figure_us, double bound_us, const std::string& target,
              Results& results) {
  const double keys = std::stod(result.params["keys"]);
  result.unit = "keys/s";
  result.figure = keys / figure_us * 1e6;
  result.bound = keys / bound_us * 1e6;
  result.ratio = bound_us / figure_us;
  result.target = target;
  results.push_back(std::move(result));
}

// The best of the shapes, each figure for itself.
template <typename Launch>
absl::StatusOr<CallTimes> BestOf(cudaStream_t stream, int shapes, size_t runs,
                                 const Launch& launch) {
  CallTimes best;
  for (int shape = 0; shape < shapes; ++shape) {
    HPS_ASSIGN_OR_RETURN(const CallTimes times,
                         TimeCalls(stream, runs, [&](size_t i) { return launch(shape, i); }));
    const bool first = shape == 0;
    best.one_us = first ? times.one_us : std::min(best.one_us, times.one_us);
    best.back_to_back_us =
        first ? times.back_to_back_us : std::min(best.back_to_back_us, times.back_to_back_us);
  }
  return best;
}

absl::StatusOr<CallTimes> TimeGather(DeviceTables& tables, uint32_t keys, size_t runs) {
  return BestOf(tables.stream(), kGatherShapes, runs,
                [&](int shape, size_t i) { return tables.Gather(shape, i, keys); });
}

absl::StatusOr<CallTimes> TimeQuery(DeviceTables& tables, uint32_t keys, size_t runs) {
  return TimeCalls(tables.stream(), runs, [&](size_t i) { return tables.Query(i, keys); });
}

std::string QueryTarget(uint32_t row_bytes, uint32_t keys) {
  if (keys < 131'072) return "";
  if (row_bytes == 128) return ">= 0.76";
  return keys < 1 << 20 ? ">= 0.90" : ">= 0.92";
}

// Calls that are launched together as one graph, as a caller may who bypasses the host for them.
absl::Status MeasureGraph(DeviceTables& tables, uint32_t row_bytes, const Sizes& sizes,
                          Results& results) {
  constexpr size_t kCalls = 20;
  const uint32_t keys = std::min(kSmallCallKeys, sizes.keys_max);
  const auto time = [&](const auto& launch) -> absl::StatusOr<double> {
    HPS_ASSIGN_OR_RETURN(const CallTimes times,
                         TimeGraph(tables.stream(), sizes.runs, kCalls, launch));
    return times.one_us / kCalls;
  };
  double bound_us = 0;
  for (int shape = 0; shape < kGatherShapes; ++shape) {
    HPS_ASSIGN_OR_RETURN(const double us,
                         time([&](size_t i) { return tables.Gather(shape, i, keys); }));
    bound_us = shape == 0 ? us : std::min(bound_us, us);
  }
  HPS_ASSIGN_OR_RETURN(const double query_us,
                       time([&](size_t i) { return tables.Query(i, keys); }));
  Result result = Named("query", row_bytes, keys);
  result.params["calls"] = absl::StrCat("graph of ", kCalls);
  result.params["bound"] = "gather";
  result.runs = sizes.runs;
  // The target is a time, not a ratio.
  result.params["target_us"] = "<= 3";
  AddTime(std::move(result), query_us, bound_us, "", results);
  return absl::OkStatus();
}

// All keys held, each once.
absl::Status MeasureQueries(DeviceTables& tables, uint32_t row_bytes, const Sizes& sizes,
                            Results& results) {
  for (uint32_t keys : sizes.calls) {
    HPS_ASSIGN_OR_RETURN(const CallTimes bound, TimeGather(tables, keys, sizes.runs));
    HPS_ASSIGN_OR_RETURN(const CallTimes query, TimeQuery(tables, keys, sizes.runs));
    for (bool one : {true, false}) {
      Result result = Named("query", row_bytes, keys);
      result.params["calls"] = one ? "one at a time" : "back to back";
      result.params["bound"] = "gather";
      result.runs = sizes.runs;
      const double figure_us = one ? query.one_us : query.back_to_back_us;
      const double bound_us = one ? bound.one_us : bound.back_to_back_us;
      if (keys <= kSmallCallKeys) {
        const std::string target = row_bytes != 512 ? "" : one ? "<= 1.15" : "<= 1.05";
        AddTime(std::move(result), figure_us, bound_us, target, results);
      } else {
        AddSpeed(std::move(result), figure_us, bound_us, one ? QueryTarget(row_bytes, keys) : "",
                 results);
      }
    }
  }
  HPS_RETURN_IF_ERROR(MeasureGraph(tables, row_bytes, sizes, results));
  return tables.CheckRows();
}

// A power law, duplicates included, against the gather of the same rows.
absl::Status MeasureSkewed(DeviceTables& tables, uint32_t row_bytes, const Sizes& sizes,
                           Results& results) {
  HPS_RETURN_IF_ERROR(tables.DrawKeys({.alpha = 1.2}));
  for (uint32_t keys : sizes.calls) {
    if (keys < 131'072 && keys != sizes.keys_max) continue;
    HPS_ASSIGN_OR_RETURN(const CallTimes bound, TimeGather(tables, keys, sizes.runs));
    HPS_ASSIGN_OR_RETURN(const CallTimes query, TimeQuery(tables, keys, sizes.runs));
    Result result = Named("query_skewed", row_bytes, keys);
    result.params["alpha"] = "1.2";
    result.params["bound"] = "gather";
    result.runs = sizes.runs;
    AddSpeed(std::move(result), query.one_us, bound.one_us, ">= 0.85", results);
  }
  HPS_RETURN_IF_ERROR(tables.CheckRows());
  return tables.DrawKeys({});
}

// The same number of keys in 26 tables of a 26th of the rows each.
absl::Status MeasureManyTables(DeviceTables& one_table, uint32_t row_bytes, const Sizes& sizes,
                               Results& results) {
  constexpr uint32_t kTables = 26;
  HPS_ASSIGN_OR_RETURN(const auto many, DeviceTables::Create({.row_bytes = row_bytes,
                                                              .slots = sizes.slots,
                                                              .table_count = kTables,
                                                              .keys_max = sizes.keys_max}));
  for (uint32_t keys : {kSmallCallKeys, std::min<uint32_t>(131'072, sizes.keys_max)}) {
    HPS_ASSIGN_OR_RETURN(const CallTimes one, TimeQuery(one_table, keys, sizes.runs));
    HPS_ASSIGN_OR_RETURN(const CallTimes all, TimeQuery(*many, keys, sizes.runs));
    Result result = Named("query_26_tables", row_bytes, keys);
    result.params["bound"] = "the same keys in one table";
    result.runs = sizes.runs;
    AddTime(std::move(result), all.one_us, one.one_us, "<= 1.15", results);
  }
  return absl::OkStatus();
}

// Single calls while another stream updates all the time, with as many blocks as the cache's own
// writes have.
absl::Status MeasureBesideUpdates(DeviceTables& tables, uint32_t row_bytes, const Sizes& sizes,
                                  Results& results) {
  const uint32_t keys = std::min<uint32_t>(131'072, sizes.keys_max);
  const size_t runs = 10 * sizes.runs;
  HPS_ASSIGN_OR_RETURN(const CallTimes alone, TimeQuery(tables, keys, runs));
  HPS_ASSIGN_OR_RETURN(const CudaStream writer, MakeStream(StreamPriority::kLow));
  // Updates for longer than the queries take, launched before, so that no other thread of the host
  // keeps the queries' launches waiting.
  constexpr size_t kUpdates = 64;
  HPS_ASSIGN_OR_RETURN(const TableCounters before, tables.Counters());
  for (size_t i = 0; i < kUpdates; ++i) {
    HPS_RETURN_IF_ERROR(
        CudaStatus(tables.Update(i, sizes.keys_max, kBackgroundBlocks, writer.get()), "an update"));
  }
  const Stopwatch watch;
  HPS_ASSIGN_OR_RETURN(const CallTimes beside, TimeQuery(tables, keys, runs));
  const bool outlasted = cudaStreamQuery(writer.get()) == cudaErrorNotReady;
  HPS_ASSIGN_OR_RETURN(const TableCounters after, tables.Counters());
  const double rows_per_s = static_cast<double>(after.updates - before.updates) / watch.seconds();
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(writer.get()), "updates"));
  if (!outlasted && sizes.runs >= 40)
    return absl::InternalError("bench l1: the updates ended before the queries beside them");
  Result result = Named("query_p99_beside_updates", row_bytes, keys);
  result.params["bound"] = "p99 without updates";
  result.params["updates"] = absl::StrCat(static_cast<uint64_t>(rows_per_s / 1e6), " M rows/s");
  result.p50 = beside.one_us;
  result.p99 = beside.p99_us;
  result.runs = runs;
  AddTime(std::move(result), beside.p99_us, alone.p99_us, "<= 1.3", results);
  return absl::OkStatus();
}

// The device's part of a refresh as the writer launches it: in pieces, with few blocks, so that
// lookups go on. It needs to keep pace with the transfer of the rows only.
absl::Status MeasureRefreshPieces(DeviceTables& tables, uint32_t row_bytes, const Sizes& sizes,
                                  double bound_us, Results& results) {
  const uint32_t keys = sizes.calls.back();
  const auto piece_keys = static_cast<uint32_t>(UpdateFromKeysMax(row_bytes));
  HPS_ASSIGN_OR_RETURN(
      const CallTimes pieces, TimeCalls(tables.stream(), sizes.runs, [&](size_t i) {
        cudaError_t error = cudaSuccess;
        for (uint32_t first = 0; first < keys && error == cudaSuccess; first += piece_keys) {
          error = tables.Update(i + first, std::min(piece_keys, keys - first), kBackgroundBlocks,
                                tables.stream());
        }
        return error;
      }));
  Result result = Named("update_in_pieces", row_bytes, keys);
  result.params["piece_keys"] = absl::StrCat(piece_keys);
  result.params["bound"] = "scatter";
  result.runs = sizes.runs;
  AddSpeed(std::move(result), pieces.one_us, bound_us, "", results);
  return absl::OkStatus();
}

absl::Status MeasureWrites(DeviceTables& tables, uint32_t row_bytes, const Sizes& sizes,
                           Results& results) {
  for (uint32_t keys : sizes.calls) {
    HPS_ASSIGN_OR_RETURN(const CallTimes bound, BestOf(tables.stream(), kScatterShapes, sizes.runs,
                                                       [&](int shape, size_t i) {
                                                         return tables.Scatter(shape, i, keys);
                                                       }));
    HPS_ASSIGN_OR_RETURN(const CallTimes update,
                         TimeCalls(tables.stream(), sizes.runs, [&](size_t i) {
                           return tables.Update(i, keys, 0, tables.stream());
                         }));
    Result result = Named("update", row_bytes, keys);
    result.params["bound"] = "scatter";
    result.runs = sizes.runs;
    const bool judged = row_bytes == 512 && keys == 1 << 20;
    AddSpeed(std::move(result), update.one_us, bound.one_us, judged ? ">= 0.80" : "", results);
    if (keys == sizes.calls.back())
      HPS_RETURN_IF_ERROR(MeasureRefreshPieces(tables, row_bytes, sizes, bound.one_us, results));
  }
  return absl::OkStatus();
}

// Into a full table, so that each key evicts one.
absl::Status MeasureInsert(DeviceTables& tables, uint32_t row_bytes, const Sizes& sizes,
                           Results& results) {
  for (uint64_t inserted = 0; inserted < sizes.slots / 2; inserted += sizes.keys_max) {
    HPS_RETURN_IF_ERROR(tables.MakeNewKeys(sizes.keys_max));
    HPS_RETURN_IF_ERROR(CudaStatus(tables.InsertNewKeys(sizes.keys_max), "filling up"));
  }
  std::vector<double> times_us;
  HPS_ASSIGN_OR_RETURN(const TableCounters before, tables.Counters());
  for (int run = 0; run < 8; ++run) {
    HPS_RETURN_IF_ERROR(tables.MakeNewKeys(sizes.keys_max));
    HPS_ASSIGN_OR_RETURN(const double us, TimeOnce(tables.stream(), [&] {
                           return tables.InsertNewKeys(sizes.keys_max);
                         }));
    times_us.push_back(us);
  }
  HPS_ASSIGN_OR_RETURN(const TableCounters after, tables.Counters());
  Result result = Named("replace_evicting", row_bytes, sizes.keys_max);
  result.unit = "M keys/s";
  result.figure = sizes.keys_max / Median(times_us);
  result.target = row_bytes == 512 ? ">= 1500" : "";
  result.params["evicted"] =
      absl::StrCat(static_cast<double>(after.evictions - before.evictions) /
                   static_cast<double>(after.insertions - before.insertions));
  result.runs = times_us.size();
  results.push_back(std::move(result));
  return absl::OkStatus();
}

absl::Status MeasureWidth(uint32_t row_bytes, const Sizes& sizes, Results& results) {
  HPS_ASSIGN_OR_RETURN(const auto tables, DeviceTables::Create({.row_bytes = row_bytes,
                                                                .slots = sizes.slots,
                                                                .keys_max = sizes.keys_max}));
  HPS_ASSIGN_OR_RETURN(const double kept, tables->KeptShare());
  Result result{.name = "keys_kept_at_75", .unit = "%", .figure = 100 * kept};
  result.params = {{"dim", absl::StrCat(row_bytes / 4)}};
  result.target = ">= 99.99";
  result.runs = 1;
  results.push_back(std::move(result));
  HPS_RETURN_IF_ERROR(MeasureQueries(*tables, row_bytes, sizes, results));
  HPS_RETURN_IF_ERROR(MeasureSkewed(*tables, row_bytes, sizes, results));
  HPS_RETURN_IF_ERROR(MeasureManyTables(*tables, row_bytes, sizes, results));
  HPS_RETURN_IF_ERROR(MeasureBesideUpdates(*tables, row_bytes, sizes, results));
  HPS_RETURN_IF_ERROR(MeasureWrites(*tables, row_bytes, sizes, results));
  return MeasureInsert(*tables, row_bytes, sizes, results);
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunL1Scenario(const Options& options) {
  HPS_RETURN_IF_ERROR(CheckGpuDevice(options.device));
  const DeviceScope scope(options.device);
  const Sizes sizes = SizesOf(options);
  Results results;
  for (uint32_t row_bytes : {512, 128})
    HPS_RETURN_IF_ERROR(MeasureWidth(row_bytes, sizes, results));
  HPS_ASSIGN_OR_RETURN(Results hit_rates, MeasureHitRates(options));
  std::move(hit_rates.begin(), hit_rates.end(), std::back_inserter(results));
  return results;
}

}  // namespace hps::bench
