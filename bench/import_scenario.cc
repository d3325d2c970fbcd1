// Import of one table into page files, beside the disk that it reads from and writes to.
//
// Bound: the slower of reading the files of the table and of writing as many bytes as the page
// files have, until the disk has them. The table's files are not in the system's page cache, also
// before an import. An import does both with one disk, so the speed of both at once is measured,
// too.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/scenario.h"
#include "bench/scratch.h"
#include "import/import.h"
#include "l3_pages/page_file_handle.h"
#include "l3_rocksdb/files/page_store.h"
#include "l3_rocksdb/rocks_store.h"

namespace hps::bench {
namespace {

constexpr uint32_t kDim = 16;
constexpr size_t kRowBytes = kDim * sizeof(float);
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr int kRuns = 3;
constexpr uint64_t kMemoryBytesTarget = uint64_t{1} << 30;

struct Setting {
  std::string directory;
  std::string source;  // "sorted", "fits": not sorted, but fits the memory of the sort, "spills"
  uint64_t rows = 0;
  size_t threads = 1;
  uint64_t memory_bytes_max = 0;

  std::string table() const { return directory + "/table"; }
  std::string plain_file() const { return directory + "/plain"; }
  std::vector<std::string> files() const { return {table() + "/key", table() + "/emb_vector"}; }
  const char* target() const { return source == "spills" ? ">= 0.35" : ">= 0.7"; }
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

absl::Status WriteTable(const Setting& setting) {
  HPS_RETURN_IF_ERROR(MakeScratch(setting.table()));
  std::vector<Key> keys(setting.rows);
  for (uint64_t i = 0; i < setting.rows; ++i) keys[i] = static_cast<Key>(i) * 7;
  if (setting.source != "sorted") std::shuffle(keys.begin(), keys.end(), std::mt19937_64(1));
  HPS_ASSIGN_OR_RETURN(const File key_file, File::CreateNew(setting.files()[0]));
  HPS_RETURN_IF_ERROR(key_file.WriteAt(0, std::as_bytes(std::span(keys))));
  HPS_ASSIGN_OR_RETURN(const File row_file, File::CreateNew(setting.files()[1]));
  std::vector<float> rows;
  uint64_t written = 0;
  for (uint64_t i = 0; i < setting.rows; ++i) {
    for (uint32_t element = 0; element < kDim; ++element)
      rows.push_back(static_cast<float>(keys[i] % 1'000'003 + element));
    if (rows.size() * sizeof(float) < kPieceBytes && i + 1 < setting.rows) continue;
    HPS_RETURN_IF_ERROR(row_file.WriteAt(written, std::as_bytes(std::span(rows))));
    written += rows.size() * sizeof(float);
    rows.clear();
  }
  return absl::OkStatus();
}

// Neither the table's files nor earlier runs' writes are left to the next one.
absl::Status DropCaches(const Setting& setting) {
  ::sync();
  for (const std::string& path : setting.files()) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return absl::NotFoundError(path);
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
  }
  return absl::OkStatus();
}

struct ImportRun {
  double seconds = 0;
  uint64_t page_bytes = 0;  // of the page files
  uint64_t memory_bytes_peak = 0;
  ImportEffort effort;
};

absl::StatusOr<ImportRun> RunOneImport(const Setting& setting) {
  HPS_RETURN_IF_ERROR(DropCaches(setting));
  RocksStoreOptions store_options;
  store_options.config.path = setting.directory + "/store";
  store_options.mode = OpenMode::kCreate;
  const std::string& path = store_options.config.path;
  ImportRun run;
  {
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<DurableStore> store, OpenRocksStore(store_options));
    ResetPeakMemory();
    const Stopwatch stopwatch;
    HPS_ASSIGN_OR_RETURN(const ImportPlan plan,
                         PlanImport({.name = "bench/t0", .from = setting.table()}));
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<BulkImport> import,
                         store->BeginImport(plan.specs()));
    const ImportOptions options = {.spill_directory = path,
                                   .memory_bytes_max = setting.memory_bytes_max,
                                   .threads = static_cast<uint32_t>(setting.threads)};
    HPS_ASSIGN_OR_RETURN(const ImportReport report, RunImport(plan, *import, options, &run.effort));
    run.seconds = stopwatch.seconds();
    if (report.tables.at(0).info.row_count != setting.rows)
      return absl::InternalError("bench import: the import has lost rows");
  }
  run.memory_bytes_peak = PeakMemoryBytes();
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(PagesDirectory(path), error))
    run.page_bytes += file.file_size();
  RemoveScratch(path);
  return run;
}

absl::Status ReadSource(const Setting& setting) {
  std::vector<std::byte> piece(kPieceBytes);
  for (const std::string& path : setting.files()) {
    HPS_ASSIGN_OR_RETURN(const File file, File::OpenForReading(path));
    const uint64_t bytes = file.bytes_at_open();
    for (uint64_t offset = 0; offset < bytes; offset += kPieceBytes) {
      const size_t count = std::min<uint64_t>(kPieceBytes, bytes - offset);
      HPS_RETURN_IF_ERROR(file.ReadAt(offset, std::span(piece).first(count)));
      KeepAlive(piece);
    }
  }
  return absl::OkStatus();
}

absl::Status WritePlain(const Setting& setting, uint64_t bytes, bool direct) {
  const AlignedBytes piece = AllocateAligned(kPieceBytes);
  if (piece == nullptr) return absl::ResourceExhaustedError("bench import: out of memory");
  std::memset(piece.get(), 1, kPieceBytes);
  HPS_ASSIGN_OR_RETURN(const PageFileHandle file,
                       PageFileHandle::CreateNew(setting.plain_file(), direct));
  for (uint64_t offset = 0; offset < bytes; offset += kPieceBytes) {
    const size_t count = std::min<uint64_t>(kPieceBytes, bytes - offset);
    HPS_RETURN_IF_ERROR(file.WriteAt(offset, {piece.get(), count}));
    file.BeginSync(offset, count);
  }
  return file.Sync();
}

// The files are not in the page cache before `work`.
absl::StatusOr<double> SecondsOf(const Setting& setting,
                                 const std::function<absl::Status()>& work) {
  HPS_RETURN_IF_ERROR(DropCaches(setting));
  const Stopwatch stopwatch;
  HPS_RETURN_IF_ERROR(work());
  const double seconds = stopwatch.seconds();
  RemoveScratch(setting.plain_file());
  return seconds;
}

// Through the page cache or past it, whichever is faster.
absl::StatusOr<double> SecondsOfWriting(const Setting& setting, uint64_t bytes) {
  const auto write = [&](bool direct) {
    return SecondsOf(setting, [&, direct] { return WritePlain(setting, bytes, direct); });
  };
  HPS_ASSIGN_OR_RETURN(const double buffered_seconds, write(false));
  HPS_ASSIGN_OR_RETURN(const double direct_seconds, write(true));
  return std::min(buffered_seconds, direct_seconds);
}

absl::StatusOr<double> SecondsOfBoth(const Setting& setting, uint64_t bytes) {
  return SecondsOf(setting, [&] {
    absl::Status status[2];
    RunOnThreads(2, [&](size_t thread) {
      status[thread] = thread == 0 ? ReadSource(setting) : WritePlain(setting, bytes, true);
    });
    status[0].Update(status[1]);
    return status[0];
  });
}

struct Measured {
  std::vector<double> import_seconds;
  std::vector<double> read_seconds;
  std::vector<double> write_seconds;
  std::vector<double> both_seconds;
  ImportRun widest;  // the run with the largest peak of memory
};

absl::StatusOr<Measured> Measure(const Setting& setting) {
  Measured measured;
  // The round before the first only touches memory that a virtual machine may not have been given
  // yet: the first import would pay for it.
  HPS_RETURN_IF_ERROR(RunOneImport(setting).status());
  for (int run = 0; run < kRuns; ++run) {
    HPS_ASSIGN_OR_RETURN(const double read_seconds,
                         SecondsOf(setting, [&] { return ReadSource(setting); }));
    measured.read_seconds.push_back(read_seconds);
    HPS_ASSIGN_OR_RETURN(const ImportRun import, RunOneImport(setting));
    measured.import_seconds.push_back(import.seconds);
    if (import.memory_bytes_peak >= measured.widest.memory_bytes_peak) measured.widest = import;
    HPS_ASSIGN_OR_RETURN(const double write_seconds, SecondsOfWriting(setting, import.page_bytes));
    measured.write_seconds.push_back(write_seconds);
    HPS_ASSIGN_OR_RETURN(const double both_seconds, SecondsOfBoth(setting, import.page_bytes));
    measured.both_seconds.push_back(both_seconds);
  }
  return measured;
}

std::vector<Result> ResultsOf(const Setting& setting, Measured measured) {
  const std::map<std::string, std::string> params = {
      {"source", setting.source},
      {"rows", absl::StrCat(setting.rows)},
      {"dim", absl::StrCat(kDim)},
      {"threads", absl::StrCat(setting.threads)},
      {"memory_bytes_max", absl::StrCat(setting.memory_bytes_max)},
      {"spilled_runs", absl::StrCat(measured.widest.effort.spilled_runs)}};
  const auto rows = static_cast<double>(setting.rows);
  const double page_gigabytes = static_cast<double>(measured.widest.page_bytes) / 1e9;
  const double source_gigabytes = rows * (sizeof(Key) + kRowBytes) / 1e9;
  const double import_seconds = Median(measured.import_seconds);
  const double read_seconds = Median(measured.read_seconds);
  const double write_seconds = Median(measured.write_seconds);
  const double both_seconds = Median(measured.both_seconds);
  const double bound_seconds = std::max(read_seconds, write_seconds);
  return {{.name = "import",
           .params = params,
           .unit = "GB/s",
           .figure = page_gigabytes / import_seconds,
           .bound = page_gigabytes / bound_seconds,
           .ratio = bound_seconds / import_seconds,
           .target = setting.target(),
           .runs = kRuns,
           .measured = {{"source_read_gb_per_second", source_gigabytes / read_seconds},
                        {"disk_write_gb_per_second", page_gigabytes / write_seconds},
                        {"read_and_write_gb_per_second", page_gigabytes / both_seconds}}},
          {.name = "import_memory_peak",
           .params = params,
           .unit = "bytes",
           .figure = static_cast<double>(measured.widest.memory_bytes_peak),
           .target = absl::StrCat("<= ", kMemoryBytesTarget),
           .runs = kRuns}};
}

absl::StatusOr<std::vector<Result>> Run(const Setting& setting) {
  HPS_RETURN_IF_ERROR(WriteTable(setting));
  HPS_ASSIGN_OR_RETURN(Measured measured, Measure(setting));
  return ResultsOf(setting, std::move(measured));
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunImportScenario(const Options& options) {
  const uint64_t rows = options.quick ? 200'000 : 10'000'000;
  std::vector<Result> results;
  for (const char* const source : {"sorted", "fits", "spills"}) {
    Setting setting = {.directory = options.directory + "/import",
                       .source = source,
                       .rows = rows,
                       .threads = std::max(std::thread::hardware_concurrency(), 1U),
                       .memory_bytes_max = ImportOptions().memory_bytes_max};
    if (setting.source == "fits") setting.rows = rows / 2;
    // Small enough that the quick run spills, too.
    if (setting.source == "spills" && options.quick) setting.memory_bytes_max = uint64_t{4} << 20;
    RemoveScratch(setting.directory);
    absl::StatusOr<std::vector<Result>> found = Run(setting);
    RemoveScratch(setting.directory);
    HPS_RETURN_IF_ERROR(found.status());
    results.insert(results.end(), found->begin(), found->end());
  }
  return results;
}

}  // namespace hps::bench
