// Bulk import of one table from unsorted keys, beside what RocksDB's SstFileWriter makes of the
// same rows when it gets them sorted and encoded from memory, and beside a plain write of as many
// bytes.
//
// Each run imports into a store of its own; the bound writes files of the same kind: the same
// options, values, file size and number of threads. Both end when everything is on the disk.
#include <rocksdb/sst_file_writer.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/scenario.h"
#include "bench/scratch.h"
#include "import/formats/file.h"
#include "import/generate.h"
#include "import/import.h"
#include "import/sorted_run.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/rocks_options.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"

namespace hps::bench {
namespace {

constexpr uint32_t kDim = 16;
constexpr size_t kRowBytes = kDim * sizeof(float);
constexpr size_t kValueBytes = kRowBytes + kRowTailBytes;
constexpr uint64_t kRows = 10'000'000;
constexpr uint64_t kRowsQuick = 200'000;
constexpr int kRuns = 3;
constexpr uint64_t kMemoryBytesTarget = uint64_t{1} << 30;

struct Setting {
  std::string directory;
  uint64_t rows = 0;
  size_t threads = 1;
  uint64_t memory_bytes_max = 0;
};

// The peak of this process's resident memory since ResetPeakMemory; 0 when it can't be read.
uint64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

RocksStoreOptions StoreOptions(const std::string& path) {
  RocksStoreOptions options;
  options.config.path = path;
  options.mode = OpenMode::kCreate;
  return options;
}

struct ImportRun {
  double seconds = 0;
  uint64_t memory_bytes_peak = 0;
  ImportEffort effort;
};

absl::StatusOr<ImportRun> RunOneImport(const Setting& setting) {
  const std::string path = setting.directory + "/store";
  ImportRun run;
  ::sync();  // what earlier runs have written is not this one's to wait for
  ResetPeakMemory();
  const Stopwatch stopwatch;
  {
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableStore> store,
                         OpenRocksStore(StoreOptions(path)));
    HPS_ASSIGN_OR_RETURN(
        const ImportPlan plan,
        PlanImport({.name = "bench/t0", .from = setting.directory + "/tables/t0"}));
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<BulkImport> import,
                         store->BeginImport(plan.specs()));
    const ImportOptions options = {.spill_directory = path,
                                   .memory_bytes_max = setting.memory_bytes_max,
                                   .threads = static_cast<uint32_t>(setting.threads)};
    HPS_ASSIGN_OR_RETURN(const ImportReport report, RunImport(plan, *import, options, &run.effort));
    run.seconds = stopwatch.seconds();
    if (report.tables.at(0).info.row_count != setting.rows)
      return absl::InternalError("the import has lost rows");
  }
  run.memory_bytes_peak = PeakMemoryBytes();
  RemoveScratch(path);
  return run;
}

// The table's keys and stored values, sorted and encoded: what the bound is fed.
struct SortedRows {
  std::vector<Key> keys;
  std::string values;  // kValueBytes each
};

absl::StatusOr<SortedRows> LoadSorted(const Setting& setting) {
  const std::string table = setting.directory + "/tables/t0";
  HPS_ASSIGN_OR_RETURN(const File key_file, File::OpenForReading(table + "/key"));
  HPS_ASSIGN_OR_RETURN(const File row_file, File::OpenForReading(table + "/emb_vector"));
  SortedRows sorted;
  sorted.keys.resize(setting.rows);
  HPS_RETURN_IF_ERROR(key_file.ReadAt(0, std::as_writable_bytes(std::span(sorted.keys))));
  std::vector<SortEntry> entries(setting.rows);
  for (uint64_t i = 0; i < setting.rows; ++i) entries[i] = {ToOrderedKey(sorted.keys[i]), i};
  std::vector<SortEntry> scratch(setting.rows);
  SortEntries(entries, scratch);
  std::string rows(setting.rows * kRowBytes, '\0');
  HPS_RETURN_IF_ERROR(row_file.ReadAt(0, std::as_writable_bytes(std::span(rows))));
  sorted.values.resize(setting.rows * kValueBytes);
  for (uint64_t i = 0; i < setting.rows; ++i) {
    sorted.keys[i] = FromOrderedKey(entries[i].key);
    char* const value = sorted.values.data() + i * kValueBytes;
    std::copy_n(rows.data() + entries[i].position * kRowBytes, kRowBytes, value);
    FinishRow(1, sorted.keys[i], 0, kRowBytes, value + kRowBytes);
  }
  return sorted;
}

// Writes rows [begin, end) as files of the size that the store's have.
absl::Status WriteSstFiles(const SortedRows& rows, uint64_t begin, uint64_t end,
                           const std::string& prefix) {
  const rocksdb::Options options = RocksOptions(StoreOptions("")).for_row_files();
  int file_number = 0;
  while (begin < end) {
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options, nullptr, false);
    HPS_RETURN_IF_ERROR(FromRocksStatus(
        writer.Open(absl::StrCat(prefix, "-", file_number++, ".sst")), "the bound: opening"));
    for (; begin < end && writer.FileSize() < kTableFileBytes; ++begin) {
      char key[kKeyBytes];
      EncodeKey(rows.keys[begin], key);
      const rocksdb::Status put =
          writer.Put({key, kKeyBytes}, {rows.values.data() + begin * kValueBytes, kValueBytes});
      if (!put.ok()) return FromRocksStatus(put, "the bound: adding a row");
    }
    HPS_RETURN_IF_ERROR(FromRocksStatus(writer.Finish(), "the bound: completing a file"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> RunOneBound(const Setting& setting, const SortedRows& rows) {
  const std::string path = setting.directory + "/bound";
  HPS_RETURN_IF_ERROR(MakeScratch(path));
  ::sync();
  std::vector<absl::Status> statuses(setting.threads);
  const double seconds = RunOnThreads(setting.threads, [&](size_t thread) {
    const uint64_t begin = setting.rows * thread / setting.threads;
    const uint64_t end = setting.rows * (thread + 1) / setting.threads;
    statuses[thread] = WriteSstFiles(rows, begin, end, absl::StrCat(path, "/", thread));
  });
  for (const absl::Status& status : statuses) HPS_RETURN_IF_ERROR(status);
  RemoveScratch(path);
  return seconds;
}

// Bytes per second of a plain sequential write that ends when the disk has it.
absl::StatusOr<double> DiskWriteSpeed(const Setting& setting, const SortedRows& rows) {
  const std::string path = setting.directory + "/plain";
  ::sync();
  const Stopwatch stopwatch;
  {
    HPS_ASSIGN_OR_RETURN(const File file, File::CreateNew(path));
    HPS_RETURN_IF_ERROR(file.WriteAt(0, AsBytes(std::string_view(rows.values))));
    HPS_RETURN_IF_ERROR(file.Sync());
  }
  const double seconds = stopwatch.seconds();
  std::filesystem::remove(path);
  return static_cast<double>(rows.values.size()) / seconds;
}

struct Measured {
  std::vector<double> import_seconds;
  std::vector<double> bound_seconds;
  std::vector<double> disk_bytes_per_second;
  ImportRun widest;  // the run with the largest peak of memory
};

absl::StatusOr<Measured> Measure(const Setting& setting, int runs) {
  Measured measured;
  // The round before the first only touches memory that a virtual machine may not have been given
  // yet: whoever came first would pay for it.
  HPS_RETURN_IF_ERROR(RunOneImport(setting).status());
  for (int run = 0; run < runs; ++run) {
    HPS_ASSIGN_OR_RETURN(const ImportRun import, RunOneImport(setting));
    measured.import_seconds.push_back(import.seconds);
    if (import.memory_bytes_peak >= measured.widest.memory_bytes_peak) measured.widest = import;
    // Loaded anew each time, so that the import has the process's memory to itself.
    HPS_ASSIGN_OR_RETURN(const SortedRows rows, LoadSorted(setting));
    HPS_ASSIGN_OR_RETURN(const double bound_seconds, RunOneBound(setting, rows));
    measured.bound_seconds.push_back(bound_seconds);
    HPS_ASSIGN_OR_RETURN(const double disk_speed, DiskWriteSpeed(setting, rows));
    measured.disk_bytes_per_second.push_back(disk_speed);
  }
  return measured;
}

std::vector<Result> ResultsOf(const Setting& setting, Measured measured, uint64_t runs) {
  const std::map<std::string, std::string> params = {
      {"rows", absl::StrCat(setting.rows)},
      {"dim", absl::StrCat(kDim)},
      {"threads", absl::StrCat(setting.threads)},
      {"memory_bytes_max", absl::StrCat(setting.memory_bytes_max)},
      {"spilled_runs", absl::StrCat(measured.widest.effort.spilled_runs)}};
  const auto rows = static_cast<double>(setting.rows);
  const double import_seconds = Median(measured.import_seconds);
  const double import_speed = rows / import_seconds;
  const double bound_speed = rows / Median(measured.bound_seconds);
  const double byte_speed = import_speed * (sizeof(Key) + kValueBytes) / 1e9;
  const double disk_speed = Median(measured.disk_bytes_per_second) / 1e9;
  return {{.name = "import",
           .params = params,
           .unit = "rows/s",
           .figure = import_speed,
           .bound = bound_speed,
           .ratio = import_speed / bound_speed,
           .target = ">= 0.6",
           .runs = runs},
          {.name = "import_disk",
           .params = params,
           .unit = "GB/s",
           .figure = byte_speed,
           .bound = disk_speed,
           .ratio = byte_speed / disk_speed,
           .runs = runs},
          {.name = "import_memory_peak",
           .params = params,
           .unit = "bytes",
           .figure = static_cast<double>(measured.widest.memory_bytes_peak),
           .target = absl::StrCat("<= ", kMemoryBytesTarget),
           .runs = runs}};
}

absl::StatusOr<std::vector<Result>> Run(const Setting& setting, int runs) {
  HPS_RETURN_IF_ERROR(GenerateTables({.out = setting.directory + "/tables",
                                      .tables = 1,
                                      .rows = setting.rows,
                                      .dim = kDim,
                                      .requests = 1}));
  HPS_ASSIGN_OR_RETURN(Measured measured, Measure(setting, runs));
  return ResultsOf(setting, std::move(measured), static_cast<uint64_t>(runs));
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunImportScenario(const Options& options) {
  Setting setting = {.directory = options.directory + "/import",
                     .rows = options.quick ? kRowsQuick : kRows,
                     .threads = std::max(std::thread::hardware_concurrency(), 1U),
                     .memory_bytes_max = ImportOptions().memory_bytes_max};
  // Small enough that the quick run spills, too.
  if (options.quick) setting.memory_bytes_max = uint64_t{4} << 20;
  RemoveScratch(setting.directory);
  absl::StatusOr<std::vector<Result>> results = Run(setting, kRuns);
  RemoveScratch(setting.directory);
  return results;
}

}  // namespace hps::bench
