// Level 3 fetch against RocksDB's own sorted MultiGet: same database options, same data (key and
// value bytes), same keys, same threads, the values copied out.
//
// "cached": every block is in the block cache. "cold": a block cache of one megabyte and direct
// reads on both sides, so that neither the block cache nor the page cache has the row.
#include <rocksdb/db.h>
#include <rocksdb/sst_file_writer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "bench/l3_merge.h"
#include "bench/l3_page_files.h"
#include "bench/measure.h"
#include "bench/scenario.h"
#include "bench/scratch.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/rocks_options.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"
#include "testing/fakes/stamped_row.h"

namespace hps::bench {
namespace {

constexpr size_t kBatchKeys = 4096;
constexpr size_t kImportKeys = 8192;

struct Case {
  uint32_t dim = 0;
  size_t thread_count = 1;
  bool cold = false;
};

struct Sizes {
  size_t row_count;
  size_t cached_batches;  // of kBatchKeys, per thread and run
  size_t cold_batches;
  size_t runs;
};

// One table in a store of ours, and its rows in a plain RocksDB with the same options.
class Contest {
 public:
  Contest(std::string directory, uint32_t dim, bool cold, const Sizes& sizes)
      : directory_(std::move(directory)), row_bytes_(size_t{dim} * 4), cold_(cold), sizes_(sizes) {
    options_.config.path = directory_ + "/store";
    options_.config.cache_bytes = cold ? uint64_t{1} << 20 : uint64_t{2} << 30;
    options_.config.free_bytes_min = 0;
    options_.direct_reads = cold;
    options_.mode = OpenMode::kCreate;
    spec_.name = "bench/table";
    spec_.dim = dim;
  }
  ~Contest() {
    plain_.reset();
    table_.reset();
    RemoveScratch(directory_);
  }

  absl::Status Prepare();
  // Seconds that `thread_count` threads take for their batches.
  double RunOurs(size_t thread_count, uint64_t seed);
  double RunPlain(size_t thread_count, uint64_t seed);
  size_t batch_count() const { return cold_ ? sizes_.cold_batches : sizes_.cached_batches; }
  bool failed() const { return failed_; }

 private:
  absl::Status Import();
  absl::Status FillPlain();
  std::vector<Key> Batch(std::mt19937_64& random) const;
  void FetchOurs(size_t thread, uint64_t seed);
  void FetchPlain(size_t thread, uint64_t seed);

  const std::string directory_;
  const size_t row_bytes_;
  const bool cold_;
  const Sizes sizes_;
  RocksStoreOptions options_;
  TableSpec spec_;
  std::unique_ptr<DurableTable> table_;
  std::unique_ptr<rocksdb::DB> plain_;
  std::atomic<bool> failed_{false};
};

absl::Status Contest::Import() {
  HPS_ASSIGN_OR_RETURN(auto store, OpenRocksStore(options_));
  HPS_ASSIGN_OR_RETURN(auto import, store->BeginImport({&spec_, 1}));
  std::vector<Key> keys;
  std::vector<std::byte> bytes(kImportKeys * row_bytes_);
  for (size_t begin = 0; begin < sizes_.row_count; begin += kImportKeys) {
    keys.clear();
    for (size_t i = begin; i < std::min(begin + kImportKeys, sizes_.row_count); ++i) {
      keys.push_back(static_cast<Key>(i));
      StampedRow::Write(1, keys.back(), 0, {bytes.data() + (i - begin) * row_bytes_, row_bytes_});
    }
    HPS_RETURN_IF_ERROR(
        import->Add(0, 0, keys, {bytes.data(), keys.size(), row_bytes_, row_bytes_}));
  }
  HPS_RETURN_IF_ERROR(import->Commit().status());
  HPS_ASSIGN_OR_RETURN(table_, store->OpenTable(spec_.name));
  return absl::OkStatus();
}

// The values of our own table, byte for byte, through the same kind of files.
absl::Status Contest::FillPlain() {
  rocksdb::Options rocks = RocksOptions(options_).for_row_files();
  rocks.create_if_missing = true;
  HPS_RETURN_IF_ERROR(MakeScratch(directory_ + "/plain"));
  rocksdb::DB* db = nullptr;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(rocksdb::DB::Open(rocks, directory_ + "/plain", &db), "plain database"));
  plain_.reset(db);
  const std::string file = directory_ + "/plain.sst";
  std::string value(row_bytes_ + kRowTailBytes, '\0');
  char key_bytes[kKeyBytes];
  for (size_t begin = 0; begin < sizes_.row_count;) {
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), rocks);
    HPS_RETURN_IF_ERROR(FromRocksStatus(writer.Open(file), file));
    for (; begin < sizes_.row_count && writer.FileSize() < kTableFileBytes; ++begin) {
      const Key key = static_cast<Key>(begin);
      EncodeKey(key, key_bytes);
      StampedRow::Write(1, key, 0, std::as_writable_bytes(std::span(value)).first(row_bytes_));
      FinishRow(table_->incarnation(), key, 0, row_bytes_, value.data() + row_bytes_);
      HPS_RETURN_IF_ERROR(FromRocksStatus(writer.Put({key_bytes, kKeyBytes}, value), file));
    }
    HPS_RETURN_IF_ERROR(FromRocksStatus(writer.Finish(), file));
    rocksdb::IngestExternalFileOptions ingestion;
    ingestion.move_files = true;
    ingestion.write_global_seqno = false;
    HPS_RETURN_IF_ERROR(FromRocksStatus(plain_->IngestExternalFile({file}, ingestion), file));
  }
  return absl::OkStatus();
}

absl::Status Contest::Prepare() {
  HPS_RETURN_IF_ERROR(Import());
  HPS_RETURN_IF_ERROR(FillPlain());
  if (cold_) return absl::OkStatus();
  // Every block into the cache, on both sides.
  rocksdb::ReadOptions read_options;
  const std::unique_ptr<rocksdb::Iterator> it(plain_->NewIterator(read_options));
  for (it->SeekToFirst(); it->Valid(); it->Next()) KeepAlive(it->value());
  std::vector<Key> keys(kImportKeys);
  std::vector<std::byte> bytes(keys.size() * row_bytes_);
  std::vector<FetchOutcome> outcomes(keys.size());
  for (size_t begin = 0; begin + keys.size() <= sizes_.row_count; begin += keys.size()) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(begin + i);
    HPS_RETURN_IF_ERROR(
        table_
            ->Fetch({keys, {bytes.data(), keys.size(), row_bytes_, row_bytes_}, outcomes},
                    kNoDeadline)
            .status());
  }
  return absl::OkStatus();
}

std::vector<Key> Contest::Batch(std::mt19937_64& random) const {
  std::vector<Key> keys(kBatchKeys);
  for (Key& key : keys) key = static_cast<Key>(random() % sizes_.row_count);
  std::sort(keys.begin(), keys.end());
  return keys;
}

void Contest::FetchOurs(size_t thread, uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + thread);
  std::vector<std::byte> bytes(kBatchKeys * row_bytes_);
  std::vector<FetchOutcome> outcomes(kBatchKeys);
  std::vector<Version> versions(kBatchKeys);
  for (size_t i = 0; i < batch_count(); ++i) {
    const std::vector<Key> keys = Batch(random);
    const auto counts = table_->Fetch(
        {keys, {bytes.data(), kBatchKeys, row_bytes_, row_bytes_}, outcomes, versions},
        kNoDeadline);
    if (!counts.ok() || counts->hits != kBatchKeys) failed_ = true;
  }
}

void Contest::FetchPlain(size_t thread, uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + thread);
  std::vector<std::byte> bytes(kBatchKeys * row_bytes_);
  std::vector<char> key_bytes(kFetchPieceKeysMax * kKeyBytes);
  std::array<rocksdb::Slice, kFetchPieceKeysMax> slices;
  std::array<rocksdb::PinnableSlice, kFetchPieceKeysMax> values;
  std::array<rocksdb::Status, kFetchPieceKeysMax> statuses;
  const rocksdb::ReadOptions read_options;
  for (size_t i = 0; i < batch_count(); ++i) {
    const std::vector<Key> keys = Batch(random);
    for (size_t begin = 0; begin < kBatchKeys; begin += kFetchPieceKeysMax) {
      for (size_t k = 0; k < kFetchPieceKeysMax; ++k) {
        char* key = key_bytes.data() + k * kKeyBytes;
        EncodeKey(keys[begin + k], key);
        slices[k] = rocksdb::Slice(key, kKeyBytes);
      }
      plain_->MultiGet(read_options, plain_->DefaultColumnFamily(), kFetchPieceKeysMax,
                       slices.data(), values.data(), statuses.data(), true);
      for (size_t k = 0; k < kFetchPieceKeysMax; ++k) {
        if (!statuses[k].ok()) {
          failed_ = true;
          continue;
        }
        std::memcpy(bytes.data() + (begin + k) * row_bytes_, values[k].data(), row_bytes_);
        values[k].Reset();
      }
    }
    KeepAlive(bytes);
  }
}

double Contest::RunOurs(size_t thread_count, uint64_t seed) {
  return RunOnThreads(thread_count, [&](size_t thread) { FetchOurs(thread, seed); });
}

double Contest::RunPlain(size_t thread_count, uint64_t seed) {
  return RunOnThreads(thread_count, [&](size_t thread) { FetchPlain(thread, seed); });
}

absl::StatusOr<Result> Measure(Contest& contest, const Case& which, const Sizes& sizes) {
  std::vector<double> ours;
  std::vector<double> plain;
  const double key_count =
      static_cast<double>(contest.batch_count() * kBatchKeys * which.thread_count);
  for (uint64_t run = 0; run <= sizes.runs; ++run) {
    // In turns, the first one alternating, so that a change of the machine's speed hits both.
    double own_seconds = 0;
    if (run % 2 == 0) own_seconds = contest.RunOurs(which.thread_count, run);
    const double plain_seconds = contest.RunPlain(which.thread_count, run);
    if (run % 2 != 0) own_seconds = contest.RunOurs(which.thread_count, run);
    if (run == 0) continue;  // warms up
    ours.push_back(key_count / own_seconds);
    plain.push_back(key_count / plain_seconds);
  }
  if (contest.failed()) return absl::InternalError("bench l3: a row could not be fetched");
  Result result;
  result.name = which.cold ? "fetch_cold" : "fetch_cached";
  result.params = {{"dim", std::to_string(which.dim)},
                   {"threads", std::to_string(which.thread_count)},
                   {"batch", std::to_string(kBatchKeys)},
                   {"rows", std::to_string(sizes.row_count)}};
  result.unit = "keys/s";
  result.figure = Median(ours);
  result.bound = Median(plain);
  result.ratio = result.figure / *result.bound;
  result.target = ">= 0.95";
  result.runs = sizes.runs;
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunL3Scenario(const Options& options) {
  const Sizes sizes = options.quick ? Sizes{20'000, 2, 1, 2} : Sizes{1 << 19, 6, 1, 35};
  std::vector<Result> results;
  for (const uint32_t dim : {16u, 32u, 128u}) {
    for (const bool cold : {false, true}) {
      const std::string directory = absl::StrCat(options.directory, "/l3-", dim, cold ? "c" : "w");
      HPS_RETURN_IF_ERROR(MakeScratch(directory));
      Contest contest(directory, dim, cold, sizes);
      HPS_RETURN_IF_ERROR(contest.Prepare());
      for (const size_t thread_count : {size_t{1}, size_t{2}}) {
        HPS_ASSIGN_OR_RETURN(Result result, Measure(contest, {dim, thread_count, cold}, sizes));
        results.push_back(std::move(result));
      }
    }
  }
  HPS_ASSIGN_OR_RETURN(const std::vector<Result> page_files, MeasurePageFiles(options));
  results.insert(results.end(), page_files.begin(), page_files.end());
  HPS_ASSIGN_OR_RETURN(Result merge, MeasureMerge(options));
  results.push_back(std::move(merge));
  return results;
}

}  // namespace hps::bench
