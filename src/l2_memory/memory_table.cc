#include "l2_memory/memory_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l2_memory/memory_fetch.h"

namespace hps {
namespace {

// Keys of one step of a write. Their lines are fetched together, and one insertion under the fence
// covers them, so that a change never waits for more than this.
constexpr size_t kWriteStepKeys = 64;

// Keys covered by one epoch guard, so that a long batch does not delay the reuse of slots.
constexpr size_t kGuardKeys = 4096;

// Larger batches of rows are stored past the caches: they would not stay there until the caller
// reads them, and would evict reused data.
constexpr size_t kStreamingBytesMin = size_t{1} << 20;

// A batch replaces at most this part of a full table's rows.
constexpr uint64_t kReplacedPart = 16;

// Which rows of a batch may replace rows of a full table: those that the call asked for most often,
// up to a part of the table. Without this limit, a call that asks for more keys than the table
// holds would replace all rows: it uses nearly every held row, so that the stamps of the most
// popular rows and of the least popular ones are the same.
class Replacements {
 public:
  Replacements(const RowBatch& batch, uint64_t rows_max) {
    uint64_t left = std::max<uint64_t>(1, rows_max / kReplacedPart);
    if (batch.admission != Admission::kFrequent || batch.keys.size() <= left) return;
    std::array<uint32_t, UINT8_MAX + 1> rows_of{};  // by how often their keys were asked for
    for (size_t i = 0; i < batch.keys.size(); ++i)
      if (batch.absent.empty() || batch.absent[i] == 0) ++rows_of[TimesAsked(batch, i)];
    const uint64_t rows = std::accumulate(rows_of.begin(), rows_of.end(), uint64_t{0});
    if (rows <= left) return;
    spares_young_ = rows_of[1] < rows;
    least_times_ = UINT8_MAX;
    while (least_times_ > 1 && rows_of[least_times_] <= left) left -= rows_of[least_times_--];
    ties_left_ = left;
  }

  static uint32_t TimesAsked(const RowBatch& batch, size_t i) {
    return batch.times_asked.empty() ? 1 : batch.times_asked[i];
  }

  bool Allows(uint32_t times_asked) const {
    return times_asked > least_times_ || (times_asked == least_times_ && ties_left_ > 0);
  }
  // Whether rows that were used a moment ago are kept: the batch is large, and the call has asked
  // for some of its keys more often than for others.
  bool spares_young() const { return spares_young_; }
  // A row was inserted.
  void Count(uint32_t times_asked) {
    if (times_asked == least_times_ && ties_left_ > 0) --ties_left_;
  }

 private:
  uint32_t least_times_ = 0;  // 0: all rows may
  uint64_t ties_left_ = 0;    // of the rows whose keys were asked for just so often
  bool spares_young_ = false;
};

// Devices read rows in units of 16 bytes.
bool IsReadInUnits(const PartitionShape& shape) {
  return shape.row_bytes % 16 == 0 && shape.stride_bytes % 16 == 0;
}

// The pages are zero and the objects in them are valid when zero, so their lifetime begins without
// touching the pages.
template <typename T>
T* ArrayAt(const PageBlock& block, size_t offset) {
  return static_cast<T*>(static_cast<void*>(block.bytes().data() + offset));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LossyTable>> MemoryTable::Create(const TableLayout& layout,
                                                                uint64_t bytes_max, Parts parts) {
  try {
    HPS_ASSIGN_OR_RETURN(std::unique_ptr<PageBlock> block,
                         parts.pages->Allocate(layout.block_bytes));
    return std::unique_ptr<LossyTable>(
        new MemoryTable(layout, bytes_max, std::move(parts), std::move(block)));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("level 2: out of memory for ", layout.heap_bytes, " bytes besides the rows"));
  }
}

MemoryTable::MemoryTable(const TableLayout& layout, uint64_t bytes_max, Parts parts,
                         std::unique_ptr<PageBlock> block)
    : fetch_(parts.fetch),
      layout_(layout),
      bytes_max_(bytes_max),
      pages_(std::move(parts.pages)),
      block_(std::move(block)),
      pinning_{.pinner = IsReadInUnits(layout.shape) ? parts.pinner : nullptr,
               .region = {.memory = block_->bytes()}},
      direct_rows_(MakeDirectRows()),
      fence_(layout.rows_max()),
      domain_(kFetchesPerTableMax),
      readers_(domain_, kFetchesPerTableMax),
      ticks_(new std::atomic<uint8_t>[layout.partition_count] {}),
      views_(new PartitionView[layout.partition_count]) {
  static_assert(sizeof(MemoryTable) + 512 <= kTableObjectBytes);
  const PartitionShape& shape = layout_.shape;
  partitions_.reserve(layout_.partition_count);
  for (size_t i = 0; i < layout_.partition_count; ++i) {
    const size_t slot = i * shape.slot_count;
    PartitionView& view = views_[i];
    view.lines = ArrayAt<IndexLine>(*block_, i * shape.line_count * sizeof(IndexLine));
    view.line_count = shape.line_count;
    view.tick = &ticks_[i];
    view.rows = ArrayAt<std::byte>(*block_, layout_.rows_offset + slot * shape.stride_bytes);
    view.versions = ArrayAt<std::atomic<Version>>(
        *block_, layout_.versions_offset + slot * sizeof(std::atomic<Version>));
    view.sequences = ArrayAt<std::atomic<uint32_t>>(
        *block_, layout_.sequences_offset + slot * sizeof(std::atomic<uint32_t>));
    auto* const ring =
        ArrayAt<SlotNumber>(*block_, layout_.rings_offset + slot * sizeof(SlotNumber));
    auto* const frequencies =
        ArrayAt<FrequencyWord>(*block_, layout_.frequencies_offset +
                                            i * shape.frequency_word_count * sizeof(FrequencyWord));
    const Partition::Memory memory = {.ring = {ring, shape.slot_count},
                                      .frequencies = {frequencies, shape.frequency_word_count}};
    partitions_.push_back(std::make_unique<Partition>(shape, view, memory, domain_));
  }
}

MemoryTable::~MemoryTable() {
  if (!pinning_.begun.load() || pinning_.pinner->Unpin(pinning_.region)) return;
  LogWarning(absl::StrCat("level 2: ", block_->bytes().size(),
                          " bytes stay allocated, because a device that hangs may read them"));
  block_->Leak();
}

static_assert(sizeof(IndexLine) == kDirectLineBytes && IndexLine::kEntries == kDirectLineEntries);
static_assert(offsetof(IndexLine, keys) == 0 &&
              offsetof(IndexLine, sequence) == kDirectSequenceOffset &&
              offsetof(IndexLine, slots) == kDirectSlotsOffset);
static_assert(kNoSlot == 0 && kAbsentSlot == kDirectAbsentSlot);

DirectRows MemoryTable::MakeDirectRows() const {
  const std::byte* const memory = block_->bytes().data();
  return {.lines = memory,
          .rows = memory + layout_.rows_offset,
          .partition_count = static_cast<uint32_t>(layout_.partition_count),
          .line_count = layout_.shape.line_count,
          .slot_count = layout_.shape.slot_count,
          .stride_bytes = static_cast<uint32_t>(layout_.shape.stride_bytes)};
}

// Counts insertions, of which there are at least as many as rows.
void MemoryTable::PinOnceHalfFull(uint64_t inserted) {
  if (pinning_.pinner == nullptr || pinning_.begun.load(std::memory_order_relaxed)) return;
  const uint64_t sum = pinning_.inserted.fetch_add(inserted, std::memory_order_relaxed) + inserted;
  if (sum < layout_.rows_max() / 2 || pinning_.begun.exchange(true)) return;
  pinning_.pinner->Pin(pinning_.region);
}

std::optional<size_t> MemoryTable::BeginDirectReads() {
  if (!pinning_.region.readable.load(std::memory_order_acquire)) return std::nullopt;
  ReaderPool::Lease lease = readers_.Acquire();
  if (!lease) return std::nullopt;
  lease->reader.Enter();
  return readers_.Keep(std::move(lease));
}

void MemoryTable::EndDirectReads(size_t reads) {
  const ReaderPool::Lease lease = readers_.Resume(reads);
  lease->reader.Leave();
}

absl::StatusOr<FetchCounts> MemoryTable::Fetch(const FetchBatch& batch, Deadline) {
  const size_t count = batch.keys.size();
  HPS_CHECK(batch.outcomes.size() == count && batch.rows.row_count == count &&
            (batch.versions.empty() || batch.versions.size() == count));
  HPS_CHECK(count == 0 || (batch.rows.row_bytes == layout_.shape.row_bytes &&
                           batch.rows.stride_bytes >= batch.rows.row_bytes));
  const ReaderPool::Lease lease = readers_.Acquire();
  if (!lease) return absl::UnavailableError("level 2: too many concurrent fetches in one table");
  const FetchSource source = {.lines = views_[0].lines,
                              .rows = views_[0].rows,
                              .versions = views_[0].versions,
                              .ticks = views_[0].tick,
                              .partition_count = layout_.partition_count,
                              .shape = &layout_.shape};
  const bool streaming =
      batch.rows_go_to_device || count * batch.rows.row_bytes > kStreamingBytesMin;
  FetchCounts counts;
  for (size_t begin = 0; begin < count; begin += kGuardKeys) {
    EpochDomain::Guard guard(lease->reader);
    fetch_(source, batch, {begin, std::min(count, begin + kGuardKeys)}, streaming, counts);
  }
  return counts;
}

// From the last key to the first, so that the last duplicate is inserted and the others find it
// held.
absl::StatusOr<InsertCounts> MemoryTable::Insert(const RowBatch& batch, ApplyEpoch epoch) {
  CheckBatch(batch);
  Replacements replacements(batch, layout_.rows_max());
  InsertCounts counts;
  for (size_t end = batch.keys.size(); end > 0; end -= std::min(end, kWriteStepKeys)) {
    const size_t begin = end - std::min(end, kWriteStepKeys);
    PrefetchLines(batch.keys.subspan(begin, end - begin));
    const Fence::Insertion insertion(fence_, epoch);
    for (size_t i = end; i-- > begin;) {
      const Partition::HashedKey key = Hashed(batch.keys[i]);
      if (!insertion.Admits(key.key)) {
        ++counts.refused;
        continue;
      }
      const bool absent = !batch.absent.empty() && batch.absent[i] != 0;
      const Version version = batch.versions.empty() ? 0 : batch.versions[i];
      const std::byte* const row = absent ? nullptr : batch.rows.row(i);
      const uint32_t times_asked = Replacements::TimesAsked(batch, i);
      const Partition::Demand demand = {.admission = batch.admission,
                                        .times_asked = times_asked,
                                        .may_evict = replacements.Allows(times_asked),
                                        .spare_young = replacements.spares_young()};
      switch (PartitionOf(key).Insert(key, version, row, demand)) {
        case Partition::Inserted::kInserted:
          if (!absent) replacements.Count(times_asked);
          ++counts.inserted;
          break;
        case Partition::Inserted::kHeld:
          ++counts.held;
          break;
        case Partition::Inserted::kDropped:
          ++counts.dropped;
          break;
        case Partition::Inserted::kNotAdmitted:
          ++counts.not_admitted;
          break;
      }
    }
  }
  refused_.fetch_add(counts.refused, std::memory_order_relaxed);
  PinOnceHalfFull(counts.inserted);
  return counts;
}

// From the last key to the first, as in Insert: of duplicates with one version the last one wins.
absl::StatusOr<uint64_t> MemoryTable::Update(const RowBatch& batch) {
  CheckBatch(batch);
  uint64_t replaced = 0;
  for (size_t end = batch.keys.size(); end > 0; end -= std::min(end, kWriteStepKeys)) {
    const size_t begin = end - std::min(end, kWriteStepKeys);
    PrefetchLines(batch.keys.subspan(begin, end - begin));
    for (size_t i = end; i-- > begin;) {
      const Partition::HashedKey key = Hashed(batch.keys[i]);
      const Version version = batch.versions.empty() ? 0 : batch.versions[i];
      if (!batch.absent.empty() && batch.absent[i] != 0) {
        replaced += PartitionOf(key).EraseOlder(key, version);
      } else {
        replaced += PartitionOf(key).Update(key, version, batch.rows.row(i));
      }
    }
  }
  return replaced;
}

absl::StatusOr<uint64_t> MemoryTable::Erase(std::span<const Key> keys) {
  uint64_t erased = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kWriteStepKeys) {
    const auto step = keys.subspan(begin, std::min(kWriteStepKeys, keys.size() - begin));
    PrefetchLines(step);
    for (const Key key : step) erased += PartitionOf(Hashed(key)).Erase(Hashed(key));
  }
  return erased;
}

absl::Status MemoryTable::RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                          Deadline deadline) {
  return fence_.Raise(keys, epoch, deadline);
}

absl::Status MemoryTable::Clear() {
  for (const std::unique_ptr<Partition>& partition : partitions_) partition->Clear();
  return absl::OkStatus();
}

LevelStatistics MemoryTable::Statistics() const {
  LevelStatistics statistics;
  statistics.bytes_max = bytes_max_;
  statistics.refused = refused_.load(std::memory_order_relaxed);
  std::vector<uint64_t> touched_slots;
  bool sketched = false;
  for (const std::unique_ptr<Partition>& partition : partitions_) {
    const PartitionCounts counts = partition->Counts();
    touched_slots.push_back(counts.touched_slots);
    sketched |= counts.sketched > 0;
    statistics.not_admitted += counts.not_admitted;
    statistics.entries += counts.rows;
    statistics.absent_entries += counts.absent;
    statistics.insertions += counts.insertions;
    statistics.updates += counts.updates;
    statistics.evictions += counts.evictions;
    statistics.dropped += counts.dropped;
  }
  // Pinning touches all pages.
  statistics.bytes_used = pinning_.region.readable.load(std::memory_order_acquire)
                              ? layout_.total_bytes()
                              : BytesTouched(touched_slots, sketched);
  return statistics;
}

// The index counts completely, because its lines are touched in random order, and so do the
// sketches once one of them is used. Of the other arrays
// the slots that were ever used count, rounded outwards to the unit of a first touch. Nothing
// counts twice: the arrays are adjacent in the block, and the partitions are adjacent in each
// array.
uint64_t MemoryTable::BytesTouched(std::span<const uint64_t> touched_slots, bool sketched) const {
  struct Array {
    size_t offset;
    size_t width;
  };
  const size_t granule = pages_->touched_bytes();
  uint64_t touched = 0;
  uint64_t counted_to = 0;
  const auto count = [&](uint64_t begin, uint64_t end) {
    begin = std::max(counted_to, begin / granule * granule);
    end = std::min<uint64_t>(RoundUp(end, granule), layout_.block_bytes);
    if (end <= begin) return;
    touched += end - begin;
    counted_to = end;
  };
  count(0, uint64_t{layout_.partition_count} * layout_.shape.line_count * sizeof(IndexLine));
  for (const Array& array : {Array{layout_.rows_offset, layout_.shape.stride_bytes},
                             Array{layout_.versions_offset, sizeof(Version)},
                             Array{layout_.sequences_offset, sizeof(uint32_t)},
                             Array{layout_.rings_offset, sizeof(SlotNumber)}}) {
    for (size_t i = 0; i < touched_slots.size(); ++i) {
      const uint64_t begin = array.offset + uint64_t{i} * layout_.shape.slot_count * array.width;
      if (touched_slots[i] > 0) count(begin, begin + touched_slots[i] * array.width);
    }
  }
  if (sketched) count(layout_.frequencies_offset, layout_.block_bytes);
  return touched + layout_.heap_bytes;
}

Partition::HashedKey MemoryTable::Hashed(Key key) const { return {key, HashKey(key, kL2HashSeed)}; }

Partition& MemoryTable::PartitionOf(Partition::HashedKey key) const {
  return *partitions_[HashToRange(key.hash, partitions_.size())];
}

void MemoryTable::PrefetchLines(std::span<const Key> keys) const {
  for (const Key key : keys) {
    const uint64_t hash = HashKey(key, kL2HashSeed);
    const PartitionView& view = views_[HashToRange(hash, layout_.partition_count)];
    const LinePair pair = LinesOf(hash, view.line_count);
    __builtin_prefetch(&view.lines[pair.first], 1);
    __builtin_prefetch(&view.lines[pair.second], 1);
  }
}

void MemoryTable::CheckBatch(const RowBatch& batch) const {
  const size_t count = batch.keys.size();
  HPS_CHECK(batch.rows.row_count == count &&
            (batch.versions.empty() || batch.versions.size() == count) &&
            (batch.absent.empty() || batch.absent.size() == count) &&
            (batch.times_asked.empty() || batch.times_asked.size() == count));
  HPS_CHECK(count == 0 || (batch.rows.row_bytes == layout_.shape.row_bytes &&
                           batch.rows.stride_bytes >= batch.rows.row_bytes));
}

}  // namespace hps
