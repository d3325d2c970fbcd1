#include "l3_rocksdb/sorted_fetch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "l3_rocksdb/files/store_env.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/verify/damage_log.h"

namespace hps {
namespace {

constexpr size_t kCacheLineBytes = 64;
// Values prefetched ahead of the one that is checked. A checksum reads every line of its value, and
// the lines of a cached block are rarely in the processor's caches.
constexpr size_t kValuesAhead = 4;
// Only the first lines of wide rows are prefetched; the hardware prefetcher continues.
constexpr size_t kPrefetchBytesMax = 1024;

// Always inlined: the compiler takes a function that only prefetches for one without effect.
[[gnu::always_inline]] inline void PrefetchValue(const rocksdb::PinnableSlice& value) {
  const size_t bytes = std::min(value.size(), kPrefetchBytesMax);
  for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes)
    __builtin_prefetch(value.data() + offset);
}

// Page files log the pages that they find damaged; this counts them with other damage.
void ReportLostPages(const Family& family, const FetchCounts& found) {
  if (found.lost == 0) return;
  ReportDamage(family.table.spec.name,
               absl::StrCat("page files: rows of ", found.lost, " keys are lost"));
}

// One call of FetchRows.
class Fetcher {
 public:
  Fetcher(const FamilyPin& pin, const FetchBatch& batch, Deadline deadline, FetchScratch& scratch)
      : database_(pin.database()),
        family_(pin.family()),
        row_bytes_(family_.table.spec.row_bytes()),
        batch_(batch),
        deadline_(deadline),
        scratch_(scratch) {
    // The checksum of a row does not replace that of its block: damage in a block may hide a key.
    read_options_.verify_checksums = true;
  }

  absl::StatusOr<FetchCounts> Run();

 private:
  // The position of the i-th key of a task in ascending order. Without an order it is first_ + i.
  size_t PositionOf(size_t i) const { return sorted_ ? first_ + i : first_ + scratch_.order[i]; }
  void SortTask(size_t key_count);
  absl::Status FetchTask(size_t key_count);
  absl::Status FetchChanged(size_t key_count);
  absl::Status FetchUnchanged();
  std::span<const uint32_t> UnchangedPositions();
  absl::Status FetchPiece(size_t begin, size_t key_count);
  void TakeValue(size_t position, const rocksdb::Status& status, rocksdb::PinnableSlice& value);
  void TakeRow(size_t position, std::string_view value);
  rocksdb::Status GetAlone(Key key, rocksdb::PinnableSlice& value) const;
  bool SetRocksDeadline();

  Database& database_;
  const Family& family_;
  const size_t row_bytes_;
  const FetchBatch& batch_;
  const Deadline deadline_;
  FetchScratch& scratch_;
  rocksdb::ReadOptions read_options_;
  bool sorted_ = false;
  size_t first_ = 0;            // position of the task's first key
  size_t unchanged_count_ = 0;  // of scratch_.unchanged
  size_t not_found_count_ = 0;  // at the front of scratch_.asked: those that RocksDB did not have
  FetchCounts counts_;
  absl::Status read_error_;  // of the first read that failed without damage
};

absl::StatusOr<FetchCounts> Fetcher::Run() {
  const size_t key_count = batch_.keys.size();
  HPS_DCHECK(batch_.outcomes.size() == key_count);
  HPS_DCHECK(batch_.rows.row_count >= key_count && batch_.rows.row_bytes == row_bytes_);
  sorted_ = std::is_sorted(batch_.keys.begin(), batch_.keys.end());
  for (first_ = 0; first_ < key_count; first_ += kFetchTaskKeysMax) {
    const absl::Status fetched = FetchTask(std::min(kFetchTaskKeysMax, key_count - first_));
    if (!fetched.ok()) {
      // The later tasks have not begun. FetchTask has marked its own keys.
      const size_t next = std::min(key_count, first_ + kFetchTaskKeysMax);
      std::fill(batch_.outcomes.begin() + static_cast<std::ptrdiff_t>(next), batch_.outcomes.end(),
                FetchOutcome::kMiss);
      return fetched;
    }
  }
  if (!read_error_.ok()) return read_error_;
  return counts_;
}

void Fetcher::SortTask(size_t key_count) {
  const auto order = std::span(scratch_.order).first(key_count);
  std::iota(order.begin(), order.end(), 0);
  const Key* keys = batch_.keys.data() + first_;
  std::sort(order.begin(), order.end(),
            [keys](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
}

// Asks RocksDB for the keys that may have changed, and then the page files for the others, and for
// those that RocksDB has nothing for.
absl::Status Fetcher::FetchTask(size_t key_count) {
  if (!sorted_) SortTask(key_count);
  size_t asked_count = 0;
  unchanged_count_ = 0;
  not_found_count_ = 0;
  std::array<Key, kChangedKeysAtOnce> keys;
  std::array<bool, kChangedKeysAtOnce> changed;
  for (size_t begin = 0; begin < key_count; begin += kChangedKeysAtOnce) {
    const size_t count = std::min(kChangedKeysAtOnce, key_count - begin);
    for (size_t i = 0; i < count; ++i) keys[i] = batch_.keys[PositionOf(begin + i)];
    family_.changed_keys.MayContain(std::span(keys).first(count), std::span(changed).first(count));
    for (size_t i = 0; i < count; ++i) {
      const auto position = static_cast<uint32_t>(PositionOf(begin + i));
      if (changed[i]) {
        scratch_.asked[asked_count++] = position;
      } else {
        scratch_.unchanged[unchanged_count_++] = position;
      }
    }
  }
  if (const absl::Status fetched = FetchChanged(asked_count); !fetched.ok()) {
    for (const uint32_t position : UnchangedPositions())
      batch_.outcomes[position] = FetchOutcome::kMiss;
    return fetched;
  }
  return FetchUnchanged();
}

// In ascending order of their keys. Uses scratch_.order, which the task no longer needs.
std::span<const uint32_t> Fetcher::UnchangedPositions() {
  const auto unchanged = std::span<const uint32_t>(scratch_.unchanged).first(unchanged_count_);
  const auto not_found = std::span<const uint32_t>(scratch_.asked).first(not_found_count_);
  if (not_found.empty()) return unchanged;
  if (unchanged.empty()) return not_found;
  std::merge(unchanged.begin(), unchanged.end(), not_found.begin(), not_found.end(),
             scratch_.order.begin(),
             [this](uint32_t a, uint32_t b) { return batch_.keys[a] < batch_.keys[b]; });
  return std::span<const uint32_t>(scratch_.order).first(unchanged.size() + not_found.size());
}

absl::Status Fetcher::FetchUnchanged() {
  const std::span<const uint32_t> positions = UnchangedPositions();
  if (positions.empty()) return absl::OkStatus();
  const absl::StatusOr<FetchCounts> found =
      family_.pages->table->FetchSome(batch_, positions, deadline_);
  if (absl::IsDeadlineExceeded(found.status())) return found.status();
  if (!found.ok()) {
    read_error_.Update(found.status());
    return absl::OkStatus();
  }
  ReportLostPages(family_, *found);
  counts_.hits += found->hits;
  counts_.absent += found->absent;
  counts_.lost += found->lost;
  return absl::OkStatus();
}

absl::Status Fetcher::FetchChanged(size_t key_count) {
  for (size_t begin = 0; begin < key_count; begin += kFetchPieceKeysMax) {
    const absl::Status fetched = FetchPiece(begin, std::min(kFetchPieceKeysMax, key_count - begin));
    if (!fetched.ok()) {
      for (size_t i = begin; i < key_count; ++i)
        batch_.outcomes[scratch_.asked[i]] = FetchOutcome::kMiss;
      return fetched;
    }
  }
  return absl::OkStatus();
}

// Returns false if the deadline has passed. RocksDB's deadlines use the monotonic clock of its
// environment (store_env.h).
bool Fetcher::SetRocksDeadline() {
  if (deadline_ == kNoDeadline) return true;
  if (deadline_ <= RealClock().Now()) return false;
  read_options_.deadline = std::chrono::microseconds(StoreMicrosAt(deadline_));
  return true;
}

absl::Status Fetcher::FetchPiece(size_t begin, size_t key_count) {
  if (!SetRocksDeadline())
    return absl::DeadlineExceededError(
        absl::StrCat("table '", family_.table.spec.name, "': fetch: deadline exceeded"));
  for (size_t i = 0; i < key_count; ++i) {
    char* key = scratch_.key_bytes.data() + i * kKeyBytes;
    EncodeKey(batch_.keys[scratch_.asked[begin + i]], key);
    scratch_.keys[i] = rocksdb::Slice(key, kKeyBytes);
  }
  database_.db().MultiGet(read_options_, family_.handle, key_count, scratch_.keys.data(),
                          scratch_.values.data(), scratch_.statuses.data(), true);
  for (size_t i = 0; i < key_count; ++i) {
    if (i + kValuesAhead < key_count) PrefetchValue(scratch_.values[i + kValuesAhead]);
    TakeValue(scratch_.asked[begin + i], scratch_.statuses[i], scratch_.values[i]);
    scratch_.values[i].Reset();
  }
  return absl::OkStatus();
}

rocksdb::Status Fetcher::GetAlone(Key key, rocksdb::PinnableSlice& value) const {
  char bytes[kKeyBytes];
  EncodeKey(key, bytes);
  value.Reset();
  return database_.db().Get(read_options_, family_.handle, rocksdb::Slice(bytes, kKeyBytes),
                            &value);
}

void Fetcher::TakeValue(size_t position, const rocksdb::Status& status,
                        rocksdb::PinnableSlice& value) {
  const Key key = batch_.keys[position];
  rocksdb::Status own = status;
  // MultiGet may fail all keys of a file because of one block, so each key is read alone.
  if (!own.ok() && !own.IsNotFound() && !own.IsTimedOut()) own = GetAlone(key, value);
  if (own.ok()) return TakeRow(position, {value.data(), value.size()});
  FetchOutcome& outcome = batch_.outcomes[position];
  if (own.IsNotFound()) {
    scratch_.asked[not_found_count_++] = static_cast<uint32_t>(position);
    return;
  }
  if (own.IsCorruption()) {
    outcome = FetchOutcome::kLost;
    ++counts_.lost;
    ReportDamage(family_.table.spec.name, own.ToString());
  } else {
    outcome = FetchOutcome::kMiss;
    ++counts_.misses;
    read_error_.Update(
        FromRocksStatus(own, absl::StrCat("table '", family_.table.spec.name, "': fetching")));
  }
}

void Fetcher::TakeRow(size_t position, std::string_view value) {
  const Key key = batch_.keys[position];
  const RowState state = CheckRow(family_.table.incarnation, key, value, row_bytes_);
  if (state == RowState::kDeleted) {
    if (!batch_.deletions.empty()) {
      const Version version = RowVersion(value);
      batch_.deletions[position] = version == 0 ? kDeletionUnknown : version;
    }
    batch_.outcomes[position] = FetchOutcome::kAbsent;
    ++counts_.absent;
    return;
  }
  if (state != RowState::kIntact) {
    ReportDamage(family_.table.spec.name, absl::StrCat("the row of key ", key, " is damaged"));
    batch_.outcomes[position] = FetchOutcome::kLost;
    ++counts_.lost;
    return;
  }
  std::memcpy(batch_.rows.row(position), value.data(), row_bytes_);
  if (!batch_.versions.empty()) batch_.versions[position] = RowVersion(value);
  batch_.outcomes[position] = FetchOutcome::kHit;
  ++counts_.hits;
}

}  // namespace

absl::StatusOr<FetchCounts> FetchRows(const FamilyPin& pin, const FetchBatch& batch,
                                      Deadline deadline) {
  const Family& family = pin.family();
  // A merge removes the records of deletions.
  const bool keeps_deletions = family.table.first_file == 0;
  std::fill(batch.deletions.begin(), batch.deletions.end(),
            keeps_deletions ? Version{0} : kDeletionUnknown);
  if (family.changed_keys.empty()) {
    absl::StatusOr<FetchCounts> found = family.pages->table->Fetch(batch, deadline);
    if (found.ok()) ReportLostPages(family, *found);
    return found;
  }
  const FetchScratchPool::Lease scratch = pin.database().scratches().Acquire();
  if (!scratch) {
    std::fill(batch.outcomes.begin(), batch.outcomes.end(), FetchOutcome::kMiss);
    return OutOfMemory("fetch: out of memory for scratch");
  }
  Fetcher fetcher(pin, batch, deadline, *scratch);
  return fetcher.Run();
}

}  // namespace hps
