// `hps bench l2`: the in-process level 2 against the plain gather of the same rows.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "base/macros.h"
#include "bench/gather.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "l2_memory/memory_tier.h"
#include "l2_memory/page_allocator.h"
#include "testing/fakes/stamped_row.h"

namespace hps::bench {
namespace {

struct Sizes {
  size_t rows = 0;
  size_t keys_per_round = 0;  // of one thread
  size_t rounds = 0;
  size_t tail_calls = 0;
};

Sizes SizesFor(const Options& options) {
  if (options.quick)
    return {.rows = 1 << 15, .keys_per_round = 1 << 16, .rounds = 2, .tail_calls = 50};
  return {.rows = 2 << 20, .keys_per_round = 2 << 20, .rounds = 4, .tail_calls = 20'000};
}

// Keys that are no small numbers, as real ones are hashes.
Key KeyOf(size_t row) { return static_cast<Key>(row * 0x9e3779b97f4a7c15); }

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// A table of level 2 with `sizes.rows` rows, and the same rows in a plain array.
class Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Create(size_t row_bytes, const Sizes& sizes);

  LossyTable& table() { return *table_; }
  const std::byte* row(size_t i) const { return rows_->bytes().data() + i * row_bytes_; }
  // One of as many cache lines as the table's index has; its value is 0.
  const uint64_t* line(size_t i) const {
    return static_cast<const uint64_t*>(
        static_cast<const void*>(lines_->bytes().data() + i % line_count_ * 64));
  }
  size_t row_bytes() const { return row_bytes_; }
  size_t row_count() const { return row_count_; }
  double first_fill_seconds() const { return first_fill_seconds_; }
  double fill_seconds() const { return fill_seconds_; }
  size_t resident_bytes() const { return resident_bytes_; }

 private:
  Subject(size_t row_bytes, size_t row_count)
      : row_bytes_(row_bytes), row_count_(row_count), line_count_(row_count * 2 / 7) {}
  absl::StatusOr<double> Fill(const std::vector<Key>& keys);

  const size_t row_bytes_;
  const size_t row_count_;
  const size_t line_count_;
  const std::unique_ptr<PageAllocator> pages_ = MakeSystemPageAllocator(true);
  std::unique_ptr<PageBlock> rows_;
  std::unique_ptr<PageBlock> lines_;
  std::unique_ptr<LossyTier> tier_;
  std::unique_ptr<LossyTable> table_;
  double first_fill_seconds_ = 0;
  double fill_seconds_ = 0;
  size_t resident_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<Subject>> Subject::Create(size_t row_bytes, const Sizes& sizes) {
  std::unique_ptr<Subject> subject(new Subject(row_bytes, sizes.rows));
  HPS_ASSIGN_OR_RETURN(subject->rows_, subject->pages_->Allocate(sizes.rows * row_bytes));
  HPS_ASSIGN_OR_RETURN(subject->lines_, subject->pages_->Allocate(subject->line_count_ * 64));
  std::fill(subject->lines_->bytes().begin(), subject->lines_->bytes().end(), std::byte{0});
  std::byte* const bytes = subject->rows_->bytes().data();
  std::vector<Key> keys(sizes.rows);
  for (size_t i = 0; i < sizes.rows; ++i) {
    keys[i] = KeyOf(i);
    StampedRow::Write(1, keys[i], 0, {bytes + i * row_bytes, row_bytes});
  }
  const MemoryTierOptions options;
  subject->tier_ = MakeMemoryTier(options);
  TableSpec spec;
  spec.name = "bench/table";
  spec.dim = static_cast<uint32_t>(row_bytes / 4);
  const size_t resident_before = ResidentBytes();
  HPS_ASSIGN_OR_RETURN(
      subject->table_,
      subject->tier_->OpenTable(spec, 1, MemoryTierBytesFor(sizes.rows, row_bytes, options)));
  HPS_ASSIGN_OR_RETURN(subject->first_fill_seconds_, subject->Fill(keys));
  subject->resident_bytes_ = ResidentBytes() - resident_before;
  // The first time around most of the time is the system's, which zeroes the pages.
  HPS_RETURN_IF_ERROR(subject->table_->Clear());
  HPS_ASSIGN_OR_RETURN(subject->fill_seconds_, subject->Fill(keys));
  return subject;
}

// Inserts all rows; the seconds that it took.
absl::StatusOr<double> Subject::Fill(const std::vector<Key>& keys) {
  constexpr size_t kBatch = 8192;
  const Stopwatch watch;
  for (size_t begin = 0; begin < keys.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, keys.size() - begin);
    HPS_RETURN_IF_ERROR(table_
                            ->Insert({.keys = std::span(keys).subspan(begin, count),
                                      .rows = {rows_->bytes().data() + begin * row_bytes_, count,
                                               row_bytes_, row_bytes_}},
                                     0)
                            .status());
  }
  return watch.seconds();
}

// What one thread asks for and where it puts it.
class Caller {
 public:
  Caller(const Subject& subject, size_t batch, size_t keys, uint64_t seed)
      : subject_(subject),
        batch_(batch),
        addresses_(keys),
        lines_(keys),
        keys_(keys),
        outcomes_(batch) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < keys; ++i) {
      const size_t row = random() % subject.row_count();
      keys_[i] = KeyOf(row);
      addresses_[i] = subject.row(row);
      lines_[i] = subject.line(random());
    }
    const auto pages = MakeSystemPageAllocator(true);
    auto out = pages->Allocate(batch * subject.row_bytes());
    HPS_CHECK(out.ok());
    out_ = *std::move(out);
  }

  // One pass over all keys, batch by batch; the number of keys whose row did not come.
  size_t FetchAll(LossyTable& table, std::vector<double>* call_us) {
    size_t missing = 0;
    for (size_t begin = 0; begin + batch_ <= keys_.size(); begin += batch_) {
      const Stopwatch watch;
      const auto counts = table.Fetch(
          {.keys = std::span(keys_).subspan(begin, batch_),
           .rows = {out_->bytes().data(), batch_, subject_.row_bytes(), subject_.row_bytes()},
           .outcomes = outcomes_},
          kNoDeadline);
      if (call_us != nullptr) call_us->push_back(watch.us());
      missing += counts.ok() ? batch_ - counts->hits : batch_;
    }
    return missing;
  }

  void GatherAll(GatherShape shape) {
    for (size_t begin = 0; begin + batch_ <= keys_.size(); begin += batch_) {
      Gather(std::span(addresses_).subspan(begin, batch_), subject_.row_bytes(),
             out_->bytes().data(), shape);
    }
  }

  void GatherAllThroughLines(GatherShape shape) {
    for (size_t begin = 0; begin + batch_ <= keys_.size(); begin += batch_) {
      GatherThroughLines(std::span(lines_).subspan(begin, batch_),
                         std::span(addresses_).subspan(begin, batch_), subject_.row_bytes(),
                         out_->bytes().data(), shape);
    }
  }

  size_t key_count() const { return keys_.size() / batch_ * batch_; }

 private:
  const Subject& subject_;
  const size_t batch_;
  std::vector<const std::byte*> addresses_;
  std::vector<const uint64_t*> lines_;
  std::vector<Key> keys_;
  std::vector<FetchOutcome> outcomes_;
  std::unique_ptr<PageBlock> out_;
};

struct FetchCase {
  size_t dim = 0;
  size_t batch = 0;
  size_t threads = 0;
};

double MedianOf(std::vector<double> values) { return Median(values); }

using Callers = std::vector<std::unique_ptr<Caller>>;

double GatherSeconds(const Callers& callers, GatherShape shape) {
  return RunOnThreads(callers.size(), [&](size_t t) { callers[t]->GatherAll(shape); });
}

// The fastest gather through one more line a key, in keys/s.
double FloorRate(const Callers& callers, double keys) {
  double best = 0;
  for (const size_t ahead : {8, 16, 32}) {
    for (const bool far : {false, true}) {
      const GatherShape shape{.ahead = ahead, .far = far};
      std::vector<double> rates;
      for (int round = 0; round < 3; ++round) {
        rates.push_back(keys / RunOnThreads(callers.size(), [&](size_t t) {
                          callers[t]->GatherAllThroughLines(shape);
                        }));
      }
      best = std::max(best, MedianOf(rates));
    }
  }
  return best;
}

// The three fastest shapes, by the best of two passes each.
std::vector<GatherShape> BestShapes(const Callers& callers) {
  std::vector<std::pair<double, GatherShape>> timed;
  for (const GatherShape shape : GatherShapes()) {
    const double first = GatherSeconds(callers, shape);
    timed.emplace_back(std::min(first, GatherSeconds(callers, shape)), shape);
  }
  std::sort(timed.begin(), timed.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GatherShape> best;
  for (size_t i = 0; i < std::min<size_t>(3, timed.size()); ++i) best.push_back(timed[i].second);
  return best;
}

// Fetches and gathers take turns: a slow moment of the machine hits both, and each finds the caches
// full of what the other has read.
absl::StatusOr<std::vector<Result>> MeasureFetch(Subject& subject, const FetchCase& test,
                                                 const Sizes& sizes) {
  Callers callers;
  for (size_t t = 0; t < test.threads; ++t) {
    callers.push_back(std::make_unique<Caller>(
        subject, test.batch, std::max(sizes.keys_per_round, 2 * test.batch), t + 1));
  }
  const double keys = static_cast<double>(callers[0]->key_count() * test.threads);
  const std::vector<GatherShape> shapes = BestShapes(callers);
  std::vector<std::vector<double>> gather_rates(shapes.size());
  std::atomic<size_t> missing = 0;
  std::vector<double> fetch_rates;
  std::vector<std::vector<double>> call_us(test.threads);
  for (size_t round = 0; round < sizes.rounds; ++round) {
    for (size_t s = 0; s < shapes.size(); ++s) {
      fetch_rates.push_back(keys / RunOnThreads(test.threads, [&](size_t t) {
                              missing += callers[t]->FetchAll(subject.table(), &call_us[t]);
                            }));
      gather_rates[s].push_back(keys / GatherSeconds(callers, shapes[s]));
    }
  }
  if (missing != 0) return absl::InternalError("bench l2: held keys were missed");
  double bound = 0;
  for (const std::vector<double>& rates : gather_rates) bound = std::max(bound, MedianOf(rates));
  std::vector<double> calls;
  for (const auto& us : call_us) calls.insert(calls.end(), us.begin(), us.end());
  Result result = MakeResult("fetch", "keys/s", MedianOf(fetch_rates), bound);
  result.params = {{"dim", std::to_string(test.dim)},
                   {"batch", std::to_string(test.batch)},
                   {"threads", std::to_string(test.threads)}};
  result.p50 = Quantile(calls, 0.5);
  result.p99 = Quantile(calls, 0.99);
  result.runs = fetch_rates.size();
  // The same figure against what any exact index can reach on this machine.
  Result floor =
      MakeResult("fetch_against_floor", "keys/s", MedianOf(fetch_rates), FloorRate(callers, keys));
  floor.params = result.params;
  floor.target = ">= 0.85";
  floor.runs = fetch_rates.size();
  return std::vector<Result>{std::move(result), std::move(floor)};
}

std::vector<double> TimeCalls(Subject& subject, Caller& caller, size_t calls) {
  std::vector<double> call_us;
  while (call_us.size() < calls) caller.FetchAll(subject.table(), &call_us);
  return call_us;
}

// One reader alone, then beside a writer that updates random rows as fast as it can.
Result MeasureTail(Subject& subject, size_t dim, const Sizes& sizes) {
  constexpr size_t kBatch = 1024;
  Caller caller(subject, kBatch, sizes.keys_per_round, 1);
  std::vector<double> alone, beside;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> updated = 0;
  double seconds = 0;
  RunOnThreads(1, [&](size_t) {
    TimeCalls(subject, caller, sizes.tail_calls / 10);
    alone = TimeCalls(subject, caller, sizes.tail_calls);
  });
  RunOnThreads(2, [&](size_t thread) {
    if (thread == 0) {
      const Stopwatch watch;
      beside = TimeCalls(subject, caller, sizes.tail_calls);
      seconds = watch.seconds();
      stop = true;
      return;
    }
    constexpr size_t kUpdateBatch = 256;
    std::mt19937_64 random(99);
    std::vector<Key> keys(kUpdateBatch);
    std::vector<Version> versions(kUpdateBatch);
    for (Version version = 1; !stop; ++version) {
      const size_t first = random() % (subject.row_count() - kUpdateBatch);
      for (size_t i = 0; i < kUpdateBatch; ++i)
        keys[i] = KeyOf((first + i * 4099) % subject.row_count());
      std::fill(versions.begin(), versions.end(), version);
      const auto replaced =
          subject.table().Update({.keys = keys,
                                  .rows = {const_cast<std::byte*>(subject.row(first)), kUpdateBatch,
                                           subject.row_bytes(), subject.row_bytes()},
                                  .versions = versions});
      if (!stop) updated += replaced.value_or(0);
    }
  });
  Result result =
      MakeResult("fetch_p99_beside_updates", "us", Quantile(beside, 0.99), Quantile(alone, 0.99));
  result.params = {{"dim", std::to_string(dim)},
                   {"batch", std::to_string(kBatch)},
                   {"updates_per_s",
                    std::to_string(static_cast<uint64_t>(static_cast<double>(updated) / seconds))}};
  result.target = "<= 1.3";
  result.p50 = Quantile(beside, 0.5);
  result.p99 = Quantile(beside, 0.99);
  result.runs = beside.size();
  return result;
}

Result InsertResult(const Subject& subject, size_t dim, bool first) {
  const double bytes = static_cast<double>(subject.row_count() * subject.row_bytes());
  const double seconds = first ? subject.first_fill_seconds() : subject.fill_seconds();
  Result result = MakeResult("insert", "GB/s", bytes / seconds / 1e9, std::nullopt);
  result.params = {
      {"dim", std::to_string(dim)}, {"pages", first ? "untouched" : "touched"}, {"threads", "1"}};
  if (dim == 128 && !first) result.target = ">= 1";
  result.runs = 1;
  return result;
}

Result MemoryResult(Subject& subject, size_t dim) {
  const LevelStatistics statistics = subject.table().Statistics();
  const double rows = static_cast<double>(statistics.entries);
  const double bytes =
      static_cast<double>(std::max<uint64_t>(statistics.bytes_used, subject.resident_bytes()));
  Result result = MakeResult("memory", "bytes/row", bytes / rows,
                             1.10 * static_cast<double>(subject.row_bytes()) + 32);
  result.params = {{"dim", std::to_string(dim)}, {"rows", std::to_string(statistics.entries)}};
  result.target = "<= 1";
  result.runs = 1;
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunL2Scenario(const Options& options) {
  const Sizes sizes = SizesFor(options);
  std::vector<Result> results;
  for (const size_t dim : {16, 32, 128}) {
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject, Subject::Create(dim * 4, sizes));
    results.push_back(MemoryResult(*subject, dim));
    results.push_back(InsertResult(*subject, dim, true));
    results.push_back(InsertResult(*subject, dim, false));
    if (dim == 16) continue;
    for (const size_t threads : {1, 2}) {
      for (const size_t batch : {1024, 8192, 65536}) {
        HPS_ASSIGN_OR_RETURN(std::vector<Result> measured,
                             MeasureFetch(*subject, {dim, batch, threads}, sizes));
        for (Result& result : measured) results.push_back(std::move(result));
      }
    }
    results.push_back(MeasureTail(*subject, dim, sizes));
  }
  return results;
}

}  // namespace hps::bench
