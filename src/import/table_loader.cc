#include "import/table_loader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "import/parallel.h"

namespace hps {
namespace {

constexpr size_t kPieceKeys = 4096;  // maximum keys that are read, merged or added at a time
constexpr size_t kPieceKeysBytes = 2 * kPieceKeys * sizeof(Key);  // keys and positions

constexpr size_t kIoBytesMin = 32 << 10;  // one row of maximum width, as float32
constexpr size_t kIoBytesMax = 2 << 20;
constexpr size_t kCursorBytesMin = 64 << 10;  // smaller reads are not sequential
constexpr size_t kCursorBytesMax = 4 << 20;   // larger reads only cost memory

// Bytes of rows in a sorted run. The entries are sorted with this memory as scratch, before it has
// rows.
uint64_t RunBytes(uint64_t row_count, size_t row_bytes) {
  return row_count * std::max(row_bytes, sizeof(SortEntry));
}

constexpr uint64_t kPartRowsMin = 16 << 10;  // about; fewer rows are not worth a further file
constexpr size_t kSamplesPerRun = 64;

uint64_t DivideUp(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

absl::Status Cancelled() { return absl::CancelledError("import: another part has failed"); }

std::vector<OrderedKey> SampleOf(std::span<const SortEntry> sorted) {
  const size_t count = std::min(sorted.size(), kSamplesPerRun);
  std::vector<OrderedKey> samples(count);
  for (size_t i = 0; i < count; ++i) samples[i] = sorted[i * sorted.size() / count].key;
  return samples;
}

// The samples of the run that results from merging `slices`.
std::vector<OrderedKey> MergedSamples(std::span<const RunSlice> slices) {
  std::vector<OrderedKey> all;
  for (const RunSlice& slice : slices)
    all.insert(all.end(), slice.run->samples.begin(), slice.run->samples.end());
  std::sort(all.begin(), all.end());
  const size_t count = std::min(all.size(), kSamplesPerRun);
  for (size_t i = 0; i < count; ++i) all[i] = all[i * all.size() / count];
  all.resize(count);
  return all;
}

}  // namespace

LanePlan PlanLane(uint64_t lane_bytes, size_t row_bytes) {
  HPS_CHECK(lane_bytes >= kImportMemoryBytesMin && row_bytes <= kRowBytesMax);
  LanePlan plan;
  plan.io_bytes = std::clamp<uint64_t>(lane_bytes / 16, kIoBytesMin, kIoBytesMax);
  const uint64_t left = lane_bytes - plan.io_bytes - kPieceKeysBytes;
  plan.run_rows_max = left / (RunBytes(1, row_bytes) + sizeof(SortEntry));
  plan.cursor_bytes = left;
  plan.merged_runs_max = left / kCursorBytesMin;
  HPS_CHECK(plan.run_rows_max >= 1 && plan.merged_runs_max >= 2);
  return plan;
}

TableLoader::TableLoader(const LoadContext& context, const TableSpec& spec,
                         const TableReader& reader, BulkImport& import, size_t table)
    : context_(context),
      spec_(spec),
      reader_(reader),
      import_(import),
      table_(table),
      plan_(PlanLane(context.budget.bytes_max() / context.lane_count, spec.row_bytes())),
      row_count_(reader.shape().row_count),
      row_bytes_(spec.row_bytes()),
      record_bytes_(kRecordHeadBytes + row_bytes_) {}

absl::Status TableLoader::Load() {
  if (row_count_ == 0) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const bool ascending, IsAscending());
  if (ascending) return LoadAscending();
  HPS_RETURN_IF_ERROR(SortRuns());
  HPS_RETURN_IF_ERROR(ReduceRuns());
  return WriteParts();
}

absl::Status TableLoader::Run(const std::string& step, size_t step_count,
                              std::function<absl::Status(size_t, const Failed&)> work) {
  StepPlan plan{.step_count = step_count,
                .lane_count = context_.lane_count,
                .step = std::move(work),
                .tick = [&] {
                  if (context_.progress)
                    context_.progress(step, rows_done_.load(std::memory_order_relaxed));
                }};
  return RunSteps(context_.executor, plan);
}

size_t TableLoader::part_count() const {
  return std::min<uint64_t>(context_.lane_count, 1 + row_count_ / kPartRowsMin);
}

// Reads only keys, and stops at the first one that is out of order.
absl::StatusOr<bool> TableLoader::IsAscending() {
  HPS_ASSIGN_OR_RETURN(auto buffer, BudgetBuffer<Key>::Create(context_.budget, kPieceKeys));
  std::optional<Key> last;
  for (uint64_t begin = 0; begin < row_count_; begin += kPieceKeys) {
    const std::span<Key> keys =
        buffer.elements().first(std::min<uint64_t>(kPieceKeys, row_count_ - begin));
    HPS_RETURN_IF_ERROR(reader_.ReadKeys(begin, keys));
    for (size_t i = 0; i < keys.size(); ++i) {
      if (last.has_value() && keys[i] == *last && repeated_keys() == RepeatedKeys::kRefused)
        return DuplicateKeyError(reader_.keys_path(), keys[i], begin + i - 1, begin + i);
      if (last.has_value() && keys[i] <= *last) return false;
      last = keys[i];
    }
  }
  return true;
}

absl::Status TableLoader::LoadAscending() {
  const uint64_t range_rows = DivideUp(row_count_, part_count());
  return Run("writing", DivideUp(row_count_, range_rows), [&](size_t step, const Failed& failed) {
    const uint64_t begin = step * range_rows;
    const uint64_t end = std::min(begin + range_rows, row_count_);
    return CopyRange(static_cast<uint32_t>(step), begin, end, failed);
  });
}

absl::Status TableLoader::CopyRange(uint32_t part, uint64_t begin, uint64_t end,
                                    const Failed& failed) {
  const size_t piece_rows = std::clamp<size_t>(plan_.io_bytes / row_bytes_, 1, kPieceKeys);
  HPS_ASSIGN_OR_RETURN(auto keys, BudgetBuffer<Key>::Create(context_.budget, piece_rows));
  HPS_ASSIGN_OR_RETURN(auto rows,
                       BudgetBuffer<std::byte>::Create(context_.budget, piece_rows * row_bytes_));
  while (begin < end) {
    if (failed.load(std::memory_order_relaxed)) return Cancelled();
    const size_t count = std::min<uint64_t>(piece_rows, end - begin);
    HPS_RETURN_IF_ERROR(reader_.ReadKeys(begin, keys.elements().first(count)));
    HPS_RETURN_IF_ERROR(ReadRows(begin, rows.elements().first(count * row_bytes_)));
    HPS_RETURN_IF_ERROR(import_.Add(table_, part, keys.elements().first(count),
                                    {.data = rows.elements().data(),
                                     .row_count = count,
                                     .row_bytes = row_bytes_,
                                     .stride_bytes = row_bytes_}));
    begin += count;
    rows_done_.fetch_add(2 * count, std::memory_order_relaxed);
  }
  return import_.FinishPart(table_, part);
}

// One file per lane, because writers of one file would wait for each other. The runs have the
// offsets that they would have in a single file, so they do not overlap; holes take no space.
absl::StatusOr<std::vector<File>> TableLoader::CreateSpillFiles() const {
  std::vector<File> files;
  for (size_t i = 0; i < context_.lane_count; ++i) {
    HPS_ASSIGN_OR_RETURN(File file, File::CreateNameless(context_.spill_directory));
    files.push_back(std::move(file));
  }
  return files;
}

absl::Status TableLoader::SortRuns() {
  const uint64_t lane_rows =
      DivideUp(row_count_, row_count_ < kPartRowsMin ? 1 : context_.lane_count);
  const bool in_memory = lane_rows <= plan_.run_rows_max;
  const uint64_t run_count = DivideUp(row_count_, in_memory ? lane_rows : plan_.run_rows_max);
  if (run_count > kSortedRunsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(reader_.keys_path(), ": ", row_count_, " rows of ", row_bytes_, " bytes need ",
                     run_count, " sorted runs with a memory of ", context_.budget.bytes_max(),
                     " bytes, expected at most ", kSortedRunsMax, "; give the import more memory"));
  }
  const uint64_t run_rows = DivideUp(row_count_, run_count);
  runs_.resize(DivideUp(row_count_, run_rows));
  if (!in_memory) {
    HPS_ASSIGN_OR_RETURN(spill_, CreateSpillFiles());
    spilled_run_count_ = runs_.size();
  }
  return Run("sorting", runs_.size(), [&](size_t step, const Failed& failed) -> absl::Status {
    const uint64_t begin = step * run_rows;
    const uint64_t end = std::min(begin + run_rows, row_count_);
    HPS_ASSIGN_OR_RETURN(SortedRun run, ReadRun(begin, end));
    if (in_memory) {
      runs_[step] = std::move(run);
    } else {
      const RunSlice slice{.run = &run, .begin = 0, .end = run.row_count};
      HPS_ASSIGN_OR_RETURN(runs_[step], SpillMerged({&slice, 1}, spill_[step % spill_.size()],
                                                    begin * record_bytes_, failed));
    }
    rows_done_.fetch_add(end - begin, std::memory_order_relaxed);
    return absl::OkStatus();
  });
}

absl::StatusOr<SortedRun> TableLoader::ReadRun(uint64_t begin, uint64_t end) {
  SortedRun run{.row_count = end - begin, .first_position = begin};
  HPS_ASSIGN_OR_RETURN(run.entries,
                       BudgetBuffer<SortEntry>::Create(context_.budget, run.row_count));
  HPS_ASSIGN_OR_RETURN(run.rows, BudgetBuffer<std::byte>::Create(
                                     context_.budget, RunBytes(run.row_count, row_bytes_)));
  bool ascending = true;
  HPS_RETURN_IF_ERROR(ReadEntries(begin, run.entries.elements(), &ascending));
  if (!ascending) {
    SortEntries(run.entries.elements(), run.rows.ElementsAs<SortEntry>().first(run.row_count));
  }
  HPS_RETURN_IF_ERROR(ReadRows(begin, run.rows.elements().first(run.row_count * row_bytes_)));
  run.samples = SampleOf(run.entries.elements());
  return run;
}

absl::Status TableLoader::ReadEntries(uint64_t begin, std::span<SortEntry> entries,
                                      bool* ascending) {
  HPS_ASSIGN_OR_RETURN(auto buffer, BudgetBuffer<Key>::Create(context_.budget, kPieceKeys));
  OrderedKey last = 0;
  for (size_t done = 0; done < entries.size();) {
    const std::span<Key> keys =
        buffer.elements().first(std::min(kPieceKeys, entries.size() - done));
    HPS_RETURN_IF_ERROR(reader_.ReadKeys(begin + done, keys));
    for (const Key key : keys) {
      entries[done] = {.key = ToOrderedKey(key), .position = begin + done};
      *ascending &= entries[done].key >= last;
      last = entries[done].key;
      ++done;
    }
  }
  return absl::OkStatus();
}

// Reads rows, converts them to the table's dtype and counts elements that are not finite. Piece by
// piece, so that a piece is still in the processor's cache when its elements are counted.
absl::Status TableLoader::ReadRows(uint64_t begin, std::span<std::byte> rows) {
  const TableShape& shape = reader_.shape();
  const bool converts = shape.dtype != spec_.dtype;
  const size_t row_count = rows.size() / row_bytes_;
  const size_t piece_rows = std::max<size_t>(plan_.io_bytes / shape.row_bytes(), 1);
  HPS_ASSIGN_OR_RETURN(auto buffer,
                       BudgetBuffer<std::byte>::Create(
                           context_.budget, converts ? piece_rows * shape.row_bytes() : size_t{0}));
  ElementCounts counts;
  for (size_t done = 0; done < row_count;) {
    const size_t count = std::min(piece_rows, row_count - done);
    const std::span<std::byte> to = rows.subspan(done * row_bytes_, count * row_bytes_);
    const std::span<std::byte> piece =
        converts ? buffer.elements().first(count * shape.row_bytes()) : to;
    HPS_RETURN_IF_ERROR(reader_.ReadRows(begin + done, piece));
    counts += converts ? ConvertElements(shape.dtype, piece, spec_.dtype, to)
                       : CountElements(shape.dtype, piece);
    done += count;
  }
  elements_.non_finite.fetch_add(counts.non_finite, std::memory_order_relaxed);
  elements_.overflowed.fetch_add(counts.overflowed, std::memory_order_relaxed);
  return absl::OkStatus();
}

// The read buffers of a merge of spilled runs; empty for runs in memory.
absl::StatusOr<BudgetBuffer<std::byte>> TableLoader::CursorBuffers(
    std::span<const RunSlice> slices) const {
  const size_t wanted = slices[0].run->spill == nullptr ? 0 : slices.size() * kCursorBytesMax;
  return BudgetBuffer<std::byte>::Create(context_.budget, std::min(plan_.cursor_bytes, wanted));
}

// Merges runs, in memory or in other spill files, into one run in `file`.
absl::StatusOr<SortedRun> TableLoader::SpillMerged(std::span<const RunSlice> slices,
                                                   const File& file, uint64_t offset,
                                                   const Failed& failed) {
  const size_t piece_rows = std::clamp<size_t>(plan_.io_bytes / record_bytes_, 1, kPieceKeys);
  HPS_ASSIGN_OR_RETURN(auto keys, BudgetBuffer<Key>::Create(context_.budget, piece_rows));
  HPS_ASSIGN_OR_RETURN(auto positions, BudgetBuffer<uint64_t>::Create(context_.budget, piece_rows));
  HPS_ASSIGN_OR_RETURN(
      auto records, BudgetBuffer<std::byte>::Create(context_.budget, piece_rows * record_bytes_));
  HPS_ASSIGN_OR_RETURN(const auto cursors, CursorBuffers(slices));
  SortedRun run{.samples = MergedSamples(slices), .spill = &file, .spill_offset = offset};
  RowMerge merge(slices, row_bytes_, cursors.elements(), reader_.keys_path(), repeated_keys());
  std::byte* const record = records.elements().data();
  while (true) {
    if (failed.load(std::memory_order_relaxed)) return Cancelled();
    HPS_ASSIGN_OR_RETURN(const size_t count, merge.Next(keys.elements(), positions.elements(),
                                                        {.data = record + kRecordHeadBytes,
                                                         .row_count = piece_rows,
                                                         .row_bytes = row_bytes_,
                                                         .stride_bytes = record_bytes_}));
    if (count == 0) return run;
    for (size_t i = 0; i < count; ++i) {
      StoreLittleEndian(
          record + i * record_bytes_,
          SortEntry{.key = ToOrderedKey(keys.elements()[i]), .position = positions.elements()[i]});
    }
    HPS_RETURN_IF_ERROR(file.WriteAt(offset + run.row_count * record_bytes_,
                                     records.elements().first(count * record_bytes_)));
    run.row_count += count;
  }
}

absl::Status TableLoader::ReduceRuns() {
  if (spill_.empty()) return absl::OkStatus();
  while (runs_.size() > plan_.merged_runs_max) HPS_RETURN_IF_ERROR(MergePass());
  return absl::OkStatus();
}

// Merges adjacent runs, as many as fit, into new spill files. Doubles the disk space during the
// pass.
absl::Status TableLoader::MergePass() {
  HPS_ASSIGN_OR_RETURN(std::vector<File> merged, CreateSpillFiles());
  const size_t fan_in = plan_.merged_runs_max;
  std::vector<SortedRun> merged_runs(DivideUp(runs_.size(), fan_in));
  const auto work = [&](size_t step, const Failed& failed) -> absl::Status {
    std::vector<RunSlice> slices;
    for (size_t i = step * fan_in; i < std::min((step + 1) * fan_in, runs_.size()); ++i)
      slices.push_back({.run = &runs_[i], .begin = 0, .end = runs_[i].row_count});
    HPS_ASSIGN_OR_RETURN(merged_runs[step], SpillMerged(slices, merged[step % merged.size()],
                                                        slices[0].run->spill_offset, failed));
    return absl::OkStatus();
  };
  HPS_RETURN_IF_ERROR(Run("merging", merged_runs.size(), work));
  ++merge_pass_count_;
  // Moving a vector does not move its elements, so the runs still point to their files.
  spill_ = std::move(merged);
  runs_ = std::move(merged_runs);
  return absl::OkStatus();
}

// Splits the key range into parts of about equal size, estimated from the samples of all runs.
absl::StatusOr<std::vector<TableLoader::Part>> TableLoader::SplitParts() {
  std::vector<OrderedKey> samples;
  for (const SortedRun& run : runs_)
    samples.insert(samples.end(), run.samples.begin(), run.samples.end());
  std::sort(samples.begin(), samples.end());

  std::vector<uint64_t> begins(runs_.size(), 0);
  std::vector<Part> parts;
  for (size_t part = 1; part <= part_count(); ++part) {
    Part slices;
    for (size_t i = 0; i < runs_.size(); ++i) {
      uint64_t end = runs_[i].row_count;
      if (part < part_count()) {
        const OrderedKey bound = samples[part * samples.size() / part_count()];
        HPS_ASSIGN_OR_RETURN(end, LowerBound(runs_[i], row_bytes_, bound));
      }
      if (begins[i] < end) slices.push_back({.run = &runs_[i], .begin = begins[i], .end = end});
      begins[i] = end;
    }
    if (!slices.empty()) parts.push_back(std::move(slices));
  }
  return parts;
}

absl::Status TableLoader::WriteParts() {
  HPS_ASSIGN_OR_RETURN(const std::vector<Part> parts, SplitParts());
  return Run("writing", parts.size(), [&](size_t step, const Failed& failed) {
    return WritePart(static_cast<uint32_t>(step), parts[step], failed);
  });
}

absl::Status TableLoader::WritePart(uint32_t part, const Part& slices, const Failed& failed) {
  const size_t piece_rows = std::clamp<size_t>(plan_.io_bytes / row_bytes_, 1, kPieceKeys);
  HPS_ASSIGN_OR_RETURN(auto keys, BudgetBuffer<Key>::Create(context_.budget, piece_rows));
  HPS_ASSIGN_OR_RETURN(auto rows,
                       BudgetBuffer<std::byte>::Create(context_.budget, piece_rows * row_bytes_));
  HPS_ASSIGN_OR_RETURN(const auto cursors, CursorBuffers(slices));
  RowMerge merge(slices, row_bytes_, cursors.elements(), reader_.keys_path(), repeated_keys());
  HostRows batch{.data = rows.elements().data(),
                 .row_count = piece_rows,
                 .row_bytes = row_bytes_,
                 .stride_bytes = row_bytes_};
  while (true) {
    if (failed.load(std::memory_order_relaxed)) return Cancelled();
    batch.row_count = piece_rows;
    HPS_ASSIGN_OR_RETURN(const size_t count, merge.Next(keys.elements(), {}, batch));
    if (count == 0) return import_.FinishPart(table_, part);
    batch.row_count = count;
    HPS_RETURN_IF_ERROR(import_.Add(table_, part, keys.elements().first(count), batch));
    rows_done_.fetch_add(count, std::memory_order_relaxed);
  }
}

}  // namespace hps
