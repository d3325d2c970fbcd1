// One table, of which 1 % of the rows are changed. One thread fetches batches of random keys, cold,
// first while nothing else happens and then while the store merges the changes at its default rate.
#include "bench/l3_merge.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scratch.h"
#include "l3_rocksdb/rocks_store.h"
#include "testing/fakes/stamped_row.h"

namespace hps::bench {
namespace {

constexpr uint32_t kDim = 32;
constexpr size_t kRowBytes = size_t{kDim} * 4;
constexpr size_t kBatchKeys = 128;
constexpr size_t kCallKeys = 8192;
constexpr uint64_t kChangedEvery = 100;
constexpr double kMergeSecondsMax = 300;

class MergeBench {
 public:
  MergeBench(std::string directory, uint64_t row_count)
      : directory_(std::move(directory)), row_count_(row_count) {}
  MergeBench(const MergeBench&) = delete;
  MergeBench& operator=(const MergeBench&) = delete;
  ~MergeBench() {
    Close();
    RemoveScratch(directory_);
  }

  absl::Status Prepare();
  absl::Status Change();
  // Both add the microseconds of each batch. Without a merge, there are as many batches as given.
  absl::Status FetchAlone(size_t batch_count, std::vector<double>& us);
  absl::Status FetchBesideAMerge(std::vector<double>& us);

 private:
  absl::Status Open(bool merges);
  void Close() {
    table_.reset();
    store_.reset();
  }
  absl::Status FetchBatch(std::vector<double>& us);

  const std::string directory_;
  const uint64_t row_count_;
  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<DurableTable> table_;
  std::mt19937_64 random_{1};
  Version version_ = 0;
};

absl::Status MergeBench::Open(bool merges) {
  Close();
  RocksStoreOptions options;
  options.config.path = directory_ + "/store";
  options.config.cache_bytes = uint64_t{1} << 20;
  options.config.free_bytes_min = 0;
  options.config.merge_share = merges ? 1.0 / (2 * kChangedEvery) : 0;
  options.merge_keys_min = 1;
  options.direct_reads = true;
  options.role = OwnerRole::kServer;
  options.mode = OpenMode::kCreate;
  HPS_ASSIGN_OR_RETURN(store_, OpenRocksStore(options));
  auto table = store_->OpenTable("bench/table");
  if (table.ok()) table_ = *std::move(table);
  return absl::OkStatus();
}

absl::Status MergeBench::Prepare() {
  HPS_RETURN_IF_ERROR(MakeScratch(directory_));
  HPS_RETURN_IF_ERROR(Open(false));
  const TableSpec spec = {.name = "bench/table", .dim = kDim};
  HPS_ASSIGN_OR_RETURN(const auto import, store_->BeginImport({&spec, 1}));
  std::vector<std::byte> bytes(kCallKeys * kRowBytes);
  for (uint64_t begin = 0; begin < row_count_; begin += kCallKeys) {
    std::vector<Key> keys;
    for (uint64_t i = begin; i < std::min(begin + kCallKeys, row_count_); ++i) {
      keys.push_back(static_cast<Key>(i));
      StampedRow::Write(1, keys.back(), 0, {&bytes[(i - begin) * kRowBytes], kRowBytes});
    }
    HPS_RETURN_IF_ERROR(import->Add(0, 0, keys, {bytes.data(), keys.size(), kRowBytes, kRowBytes}));
  }
  return import->Commit().status();
}

absl::Status MergeBench::Change() {
  HPS_RETURN_IF_ERROR(Open(false));
  ++version_;
  std::vector<Key> keys;
  for (uint64_t i = version_; i < row_count_; i += kChangedEvery)
    keys.push_back(static_cast<Key>(i));
  std::vector<std::byte> bytes(keys.size() * kRowBytes);
  for (size_t i = 0; i < keys.size(); ++i)
    StampedRow::Write(1, keys[i], version_, {&bytes[i * kRowBytes], kRowBytes});
  const std::vector<Version> versions(keys.size(), version_);
  HPS_RETURN_IF_ERROR(table_->Write(
      {.upserts = {keys, {bytes.data(), keys.size(), kRowBytes, kRowBytes}, versions, {}}}));
  HPS_RETURN_IF_ERROR(Open(false));  // writes the log to a table file
  ::sync();                          // so that reads do not wait for these writes
  return absl::OkStatus();
}

absl::Status MergeBench::FetchBatch(std::vector<double>& us) {
  std::vector<Key> keys(kBatchKeys);
  for (Key& key : keys) key = static_cast<Key>(random_() % row_count_);
  std::sort(keys.begin(), keys.end());
  std::vector<std::byte> bytes(kBatchKeys * kRowBytes);
  std::vector<FetchOutcome> outcomes(kBatchKeys);
  const Stopwatch stopwatch;
  const auto counts = table_->Fetch(
      {keys, {bytes.data(), kBatchKeys, kRowBytes, kRowBytes}, outcomes, {}}, kNoDeadline);
  us.push_back(stopwatch.us());
  HPS_RETURN_IF_ERROR(counts.status());
  if (counts->hits == kBatchKeys) return absl::OkStatus();
  return absl::InternalError("bench l3: a row could not be fetched");
}

absl::Status MergeBench::FetchAlone(size_t batch_count, std::vector<double>& us) {
  for (size_t i = 0; i < batch_count; ++i) HPS_RETURN_IF_ERROR(FetchBatch(us));
  return absl::OkStatus();
}

absl::Status MergeBench::FetchBesideAMerge(std::vector<double>& us) {
  HPS_RETURN_IF_ERROR(Open(true));
  const Stopwatch stopwatch;
  while (store_->Statistics().merges == 0) {
    HPS_RETURN_IF_ERROR(FetchBatch(us));
    if (store_->Statistics().merges_failed > 0 || stopwatch.seconds() > kMergeSecondsMax)
      return absl::InternalError("bench l3: a merge has failed");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Result> MeasureMerge(const Options& options) {
  const uint64_t row_count = options.quick ? 20'000 : 1 << 20;
  const size_t batch_count = options.quick ? 20 : 1500;
  const size_t runs = options.quick ? 1 : 3;
  MergeBench bench(options.directory + "/l3-merge", row_count);
  HPS_RETURN_IF_ERROR(bench.Prepare());
  std::vector<double> alone;
  std::vector<double> beside;
  for (size_t run = 0; run < runs; ++run) {
    HPS_RETURN_IF_ERROR(bench.Change());
    HPS_RETURN_IF_ERROR(bench.FetchAlone(batch_count, alone));
    HPS_RETURN_IF_ERROR(bench.FetchBesideAMerge(beside));
  }
  Result result;
  result.name = "fetch_beside_merge";
  result.params = {{"dim", std::to_string(kDim)},
                   {"batch", std::to_string(kBatchKeys)},
                   {"rows", std::to_string(row_count)}};
  result.unit = "us";
  result.figure = Quantile(beside, 0.99);
  result.bound = Quantile(alone, 0.99);
  result.ratio = result.figure / *result.bound;
  result.target = "<= 1.5";
  result.p50 = Median(beside);
  result.p99 = result.figure;
  result.runs = runs;
  result.measured = {{"batches beside merges", static_cast<double>(beside.size())},
                     {"p50 alone", Median(alone)}};
  return result;
}

}  // namespace hps::bench
