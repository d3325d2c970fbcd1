// "cold": direct reads on all sides, so that the system's page cache has nothing. The disk's bound
// reads random blocks of 4 KiB of the same file, 64 at a time. "cached": all pages are in the cache
// of their reader, or, beside it, in the system's page cache; the store's blocks are in its block
// cache.
#include "bench/l3_page_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scratch.h"
#include "l3_pages/page_file_writer.h"
#include "l3_pages/page_table.h"
#include "l3_rocksdb/rocks_store.h"
#include "testing/fakes/stamped_row.h"

namespace hps::bench {
namespace {

constexpr size_t kCallKeys = 8192;
constexpr Incarnation kIncarnation = 1;
constexpr Key kKeyStep = 7;  // so that neighbours of keys are absent

// Where the fetched pages are.
enum class PagesIn { kDisk, kCache, kSystemCache };

struct Shape {
  uint32_t dim = 0;
  PagesIn pages_in = PagesIn::kDisk;
  uint64_t file_bytes = 0;  // about

  bool cold() const { return pages_in == PagesIn::kDisk; }
  size_t row_bytes() const { return size_t{dim} * 4; }
  uint64_t row_count() const {
    const PageShape shape = PageShape::Of(row_bytes());
    return file_bytes / shape.page_bytes * shape.rows_per_page;
  }
};

// Calls add(keys, rows) with all rows of the table, in order.
template <typename Add>
absl::Status ForEachCall(const Shape& shape, Add add) {
  const size_t row_bytes = shape.row_bytes();
  std::vector<Key> keys;
  std::vector<std::byte> bytes(kCallKeys * row_bytes);
  for (uint64_t begin = 0; begin < shape.row_count(); begin += kCallKeys) {
    keys.clear();
    for (uint64_t i = begin; i < std::min(begin + kCallKeys, shape.row_count()); ++i) {
      const Key key = static_cast<Key>(i) * kKeyStep;
      StampedRow::Write(1, key, 0, {bytes.data() + keys.size() * row_bytes, row_bytes});
      keys.push_back(key);
    }
    HPS_RETURN_IF_ERROR(add(keys, HostRows{bytes.data(), keys.size(), row_bytes, row_bytes}));
  }
  return absl::OkStatus();
}

// The same rows in a page file and in a store.
class PageContest {
 public:
  PageContest(std::string directory, const Shape& shape)
      : directory_(std::move(directory)), shape_(shape) {}
  PageContest(const PageContest&) = delete;
  PageContest& operator=(const PageContest&) = delete;
  ~PageContest() {
    table_.reset();
    RemoveScratch(directory_);
  }

  absl::Status Prepare();
  // Reads everything once, so that it is cached.
  absl::Status Warm();

  // Keys or reads per second.
  double FetchPages(size_t batch, uint64_t key_count, uint64_t seed) {
    return Fetch(*pages_, batch, key_count, seed);
  }
  double FetchStore(size_t batch, uint64_t key_count, uint64_t seed) {
    return Fetch(*table_, batch, key_count, seed);
  }
  double ReadDisk(uint64_t read_count, uint64_t seed);

  const Shape& shape() const { return shape_; }
  bool failed() const { return failed_; }

 private:
  std::string path() const { return directory_ + "/rows"; }
  absl::Status WritePages();
  absl::Status ImportStore();
  template <typename Table>
  double Fetch(Table& table, size_t batch, uint64_t key_count, uint64_t seed);

  const std::string directory_;
  const Shape shape_;
  PageFileDescription written_;
  std::unique_ptr<PageReader> reader_;
  std::unique_ptr<PageTable> pages_;
  std::unique_ptr<DurableTable> table_;
  bool failed_ = false;
};

absl::Status PageContest::WritePages() {
  HPS_ASSIGN_OR_RETURN(const auto writer,
                       PageFileWriter::Create(path(), kIncarnation, shape_.row_bytes()));
  HPS_RETURN_IF_ERROR(ForEachCall(shape_, [&writer](std::span<const Key> keys, HostRows rows) {
    return writer->Add(keys, rows);
  }));
  HPS_ASSIGN_OR_RETURN(written_, writer->Finish());
  return absl::OkStatus();
}

absl::Status PageContest::ImportStore() {
  RocksStoreOptions options;
  options.config.path = directory_ + "/store";
  options.config.cache_bytes = shape_.cold() ? uint64_t{1} << 20 : uint64_t{2} << 30;
  options.config.free_bytes_min = 0;
  options.direct_reads = shape_.cold();
  options.mode = OpenMode::kCreate;
  TableSpec spec;
  spec.name = "bench/table";
  spec.dim = shape_.dim;
  HPS_ASSIGN_OR_RETURN(const auto store, OpenRocksStore(options));
  HPS_ASSIGN_OR_RETURN(const auto import, store->BeginImport({&spec, 1}));
  HPS_RETURN_IF_ERROR(ForEachCall(shape_, [&import](std::span<const Key> keys, HostRows rows) {
    return import->Add(0, 0, keys, rows);
  }));
  HPS_RETURN_IF_ERROR(import->Commit().status());
  HPS_ASSIGN_OR_RETURN(table_, store->OpenTable(spec.name));
  return absl::OkStatus();
}

absl::Status PageContest::Prepare() {
  HPS_RETURN_IF_ERROR(MakeScratch(directory_));
  HPS_RETURN_IF_ERROR(WritePages());
  HPS_RETURN_IF_ERROR(ImportStore());
  ::sync();  // what was written is not the reads' to wait for
  PageReader::Options reading;
  if (shape_.pages_in == PagesIn::kCache) reading.cache_bytes = 2 * shape_.file_bytes;
  HPS_ASSIGN_OR_RETURN(reader_, PageReader::Create(reading));
  const PageTable::Part part{path(), written_.row_count, written_.first_key, written_.last_key};
  const bool direct = shape_.pages_in != PagesIn::kSystemCache;
  HPS_ASSIGN_OR_RETURN(
      pages_, PageTable::Open({kIncarnation, shape_.row_bytes(), direct, {part}}, *reader_));
  return absl::OkStatus();
}

absl::Status PageContest::Warm() {
  const size_t row_bytes = shape_.row_bytes();
  std::vector<std::byte> bytes(kCallKeys * row_bytes);
  std::vector<FetchOutcome> outcomes(kCallKeys);
  return ForEachCall(shape_, [&](std::span<const Key> keys, HostRows) -> absl::Status {
    const FetchBatch batch{keys,
                           {bytes.data(), keys.size(), row_bytes, row_bytes},
                           std::span(outcomes).first(keys.size())};
    HPS_RETURN_IF_ERROR(pages_->Fetch(batch, kNoDeadline).status());
    return table_->Fetch(batch, kNoDeadline).status();
  });
}

template <typename Table>
double PageContest::Fetch(Table& table, size_t batch, uint64_t key_count, uint64_t seed) {
  const size_t row_bytes = shape_.row_bytes();
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(batch * row_bytes);
  std::vector<FetchOutcome> outcomes(batch);
  std::vector<Version> versions(batch);
  std::vector<std::vector<Key>> batches(std::max<uint64_t>(key_count / batch, 1));
  for (std::vector<Key>& keys : batches) {
    keys.resize(batch);
    for (Key& key : keys) key = static_cast<Key>(random() % shape_.row_count()) * kKeyStep;
    std::sort(keys.begin(), keys.end());
  }
  const Stopwatch stopwatch;
  for (const std::vector<Key>& keys : batches) {
    const auto counts = table.Fetch(
        {keys, {bytes.data(), batch, row_bytes, row_bytes}, outcomes, versions}, kNoDeadline);
    if (!counts.ok() || counts->hits != batch) failed_ = true;
    KeepAlive(bytes);
  }
  return static_cast<double>(batches.size() * batch) / stopwatch.seconds();
}

double PageContest::ReadDisk(uint64_t read_count, uint64_t seed) {
  const auto lease = reader_->Acquire(kNoDeadline);
  const int descriptor = ::open(path().c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (!lease.ok() || descriptor < 0) {
    failed_ = true;
    return 1;
  }
  PageQueue& queue = lease->queue();
  std::mt19937_64 random(seed);
  const uint64_t block_count = pages_->file_bytes() / kPageBlockBytes;
  uint64_t begun = 0;
  const auto begin = [&](size_t slot) {
    queue.Begin({descriptor, random() % block_count * kPageBlockBytes,
                 lease->bytes().subspan(slot * kPageBlockBytes, kPageBlockBytes), slot});
    ++begun;
  };
  const Stopwatch stopwatch;
  for (size_t slot = 0; slot < kPageSlotsMax; ++slot) begin(slot);
  std::array<EndedPageRead, kPageSlotsMax> ended;
  while (queue.in_flight() > 0) {
    const auto count = queue.Await(ended, kNoDeadline);
    if (!count.ok()) failed_ = true;
    for (size_t i = 0; i < count.value_or(0); ++i) {
      if (ended[i].result != static_cast<int>(kPageBlockBytes)) failed_ = true;
      if (begun < read_count) begin(ended[i].slot);
    }
  }
  const double seconds = stopwatch.seconds();
  ::close(descriptor);
  return static_cast<double>(begun) / seconds;
}

struct Sizes {
  uint64_t keys = 0;        // of a run of the page file, and reads of the disk
  uint64_t store_keys = 0;  // of a run of the store
  size_t runs = 0;
};

Result FetchResult(const std::string& name, const PageContest& contest, size_t batch,
                   const Sizes& sizes) {
  Result result;
  result.name = name;
  result.params = {{"dim", std::to_string(contest.shape().dim)},
                   {"batch", std::to_string(batch)},
                   {"rows", std::to_string(contest.shape().row_count())}};
  result.unit = "keys/s";
  result.runs = sizes.runs;
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

std::string NameOf(PagesIn pages_in) {
  switch (pages_in) {
    case PagesIn::kDisk:
      return "page_file_cold";
    case PagesIn::kCache:
      return "page_file_cached";
    case PagesIn::kSystemCache:
      return "page_file_system_cached";
  }
  return "";
}

// Of the ratio to the store.
std::string TargetOf(PagesIn pages_in) {
  if (pages_in == PagesIn::kSystemCache) return "";
  return pages_in == PagesIn::kDisk ? ">= 4" : ">= 3";
}

// In turns, so that a change of the machine's speed hits all sides.
absl::Status Measure(PageContest& contest, size_t batch, const Sizes& sizes,
                     std::vector<Result>& results) {
  std::vector<double> pages;
  std::vector<double> store;
  std::vector<double> disk;
  const bool cold = contest.shape().cold();
  for (uint64_t run = 0; run <= sizes.runs; ++run) {
    const double disk_speed = cold ? contest.ReadDisk(sizes.keys, run) : 1;
    const double page_speed = contest.FetchPages(batch, sizes.keys, run);
    const double store_speed = contest.FetchStore(batch, sizes.store_keys, run);
    if (run == 0) continue;  // warms up
    disk.push_back(disk_speed);
    pages.push_back(page_speed);
    store.push_back(store_speed);
  }
  if (contest.failed()) return absl::InternalError("bench l3: a row could not be fetched");
  const std::string name = NameOf(contest.shape().pages_in);
  if (cold) {
    results.push_back(WithBound(FetchResult(name + "_disk", contest, batch, sizes), pages, disk,
                                batch >= 4096 ? ">= 0.65" : ""));
  }
  results.push_back(WithBound(FetchResult(name + "_store", contest, batch, sizes), pages, store,
                              TargetOf(contest.shape().pages_in)));
  return absl::OkStatus();
}

// Rows from memory to the disk, beside as many bytes written in pieces of the same size.
absl::StatusOr<Result> MeasureWriting(const std::string& directory, const Shape& shape,
                                      size_t runs) {
  HPS_RETURN_IF_ERROR(MakeScratch(directory));
  std::vector<double> pages;
  std::vector<double> plain;
  const std::string path = directory + "/rows";
  const std::vector<std::byte> piece(kPageWriteBytes, std::byte{1});
  const size_t row_bytes = shape.row_bytes();
  std::vector<std::byte> rows(kCallKeys * row_bytes, std::byte{2});
  for (size_t run = 0; run <= runs; ++run) {
    Stopwatch stopwatch;
    HPS_ASSIGN_OR_RETURN(const auto writer, PageFileWriter::Create(path, run, row_bytes));
    std::vector<Key> keys(kCallKeys);
    for (uint64_t first = 0; first + kCallKeys <= shape.row_count(); first += kCallKeys) {
      for (size_t i = 0; i < kCallKeys; ++i) keys[i] = static_cast<Key>(first + i);
      HPS_RETURN_IF_ERROR(writer->Add(keys, {rows.data(), kCallKeys, row_bytes, row_bytes}));
    }
    HPS_ASSIGN_OR_RETURN(const PageFileDescription written, writer->Finish());
    const uint64_t bytes = written.file_bytes();
    const double page_seconds = stopwatch.seconds();
    RemoveScratch(path);
    stopwatch.Restart();
    HPS_ASSIGN_OR_RETURN(const PageFileHandle file, PageFileHandle::CreateNew(path));
    for (uint64_t offset = 0; offset < bytes; offset += piece.size()) {
      HPS_RETURN_IF_ERROR(file.WriteAt(offset, piece));
      file.BeginSync(offset, piece.size());
    }
    HPS_RETURN_IF_ERROR(file.Sync());
    const double plain_seconds = stopwatch.seconds();
    RemoveScratch(path);
    if (run == 0) continue;
    pages.push_back(static_cast<double>(bytes) / page_seconds / 1e9);
    plain.push_back(static_cast<double>(bytes) / plain_seconds / 1e9);
  }
  RemoveScratch(directory);
  Result result;
  result.name = "page_file_write";
  result.params = {{"dim", std::to_string(shape.dim)}, {"rows", std::to_string(shape.row_count())}};
  result.unit = "GB/s";
  result.runs = runs;
  return WithBound(std::move(result), pages, plain, ">= 0.7");
}

}  // namespace

absl::StatusOr<std::vector<Result>> MeasurePageFiles(const Options& options) {
  std::vector<Result> results;
  const uint64_t cold_bytes = options.quick ? uint64_t{4} << 20 : uint64_t{256} << 20;
  const uint64_t cached_bytes = options.quick ? uint64_t{4} << 20 : uint64_t{80} << 20;
  const Sizes cold = options.quick ? Sizes{4096, 512, 2} : Sizes{32'768, 4096, 5};
  const Sizes cached = options.quick ? Sizes{4096, 4096, 2} : Sizes{1 << 19, 1 << 18, 15};
  const std::string directory = options.directory + "/l3-pages";
  for (const uint32_t dim : {16u, 32u, 128u}) {
    PageContest contest(directory, {dim, PagesIn::kDisk, cold_bytes});
    HPS_RETURN_IF_ERROR(contest.Prepare());
    for (const size_t batch : {128u, 4096u, 65'536u})
      HPS_RETURN_IF_ERROR(Measure(contest, batch, cold, results));
  }
  for (const PagesIn pages_in : {PagesIn::kCache, PagesIn::kSystemCache}) {
    PageContest contest(directory, {32, pages_in, cached_bytes});
    HPS_RETURN_IF_ERROR(contest.Prepare());
    HPS_RETURN_IF_ERROR(contest.Warm());
    HPS_RETURN_IF_ERROR(Measure(contest, 4096, cached, results));
  }
  HPS_ASSIGN_OR_RETURN(Result writing, MeasureWriting(directory, {32, PagesIn::kDisk, cold_bytes},
                                                      options.quick ? 2 : 5));
  results.push_back(std::move(writing));
  return results;
}

}  // namespace hps::bench
