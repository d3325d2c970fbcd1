// The read path of page files: as many pages as allowed are in flight, and each is checked and
// copied from while the others are being read.
//
// Bound: the random reads of the disk, one page per key of a random batch. From the reader's cache,
// the latency of memory: a set of the cache, then the keys of a page, then a row. The first two are
// loaded for many pages at a time, before the first of them is needed. From the system's page
// cache, one system call per slots-full of pages, plus a copy of each page and a checksum over it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "l3_pages/call_fault.h"
#include "l3_pages/page_table.h"

namespace hps {
namespace {

// Pages that are looked for in the cache at a time, so that the memory loads them side by side.
constexpr size_t kGroupsAtOnce = 32;
// Cached pages between two looks at the clock.
constexpr size_t kGroupsPerTurn = 1024;

}  // namespace

// One call of PageTable::Fetch or FetchSome.
class PageFetcher {
 public:
  PageFetcher(const PageTable& table, const FetchBatch& batch, Deadline deadline,
              PageReader::Lease& lease)
      : table_(table),
        batch_(batch),
        deadline_(deadline),
        lease_(lease),
        free_count_(std::min(kPageSlotsMax, kPageSlotsBytes / table.page_bytes_max_)) {
    std::iota(free_slots_.begin(), free_slots_.end(), 0);
  }

  // All keys.
  absl::StatusOr<FetchCounts> Run();
  // Those at `positions`.
  absl::StatusOr<FetchCounts> Run(std::span<const uint32_t> positions);

 private:
  // Keys [begin, end) of a task in ascending order, all of one page.
  struct Group {
    size_t begin = 0;
    size_t end = 0;
    const PageFile* file = nullptr;
    size_t page = 0;
    PageCache::PageName cached_as;  // id 0: is not cached
  };
  // Where the last group is. Groups ascend.
  struct Place {
    size_t part = 0;
    size_t page = 0;
  };

  PageCache* cache() const { return table_.reader_.cache(); }  // null: pages are not cached
  size_t PositionOf(size_t i) const { return order_.empty() ? i : first_ + order_[i]; }
  Key KeyAt(size_t i) const { return batch_.keys[PositionOf(i)]; }
  std::span<std::byte> BytesOf(size_t slot, const PageFile& file) const {
    return lease_.bytes().subspan(slot * table_.page_bytes_max_,
                                  file.description().shape.page_bytes);
  }
  absl::Status FetchUnsorted();
  absl::Status FetchTask(size_t key_count);
  bool NextGroup(Group& group);
  void BeginReads();
  size_t NextGroups(size_t count_max);
  bool TakeCached(const Group& group);
  void BeginRead(const Group& group);
  void TakeRows(const Group& group, const std::byte* page);
  absl::Status AwaitReads();
  static int ReadAlone(const Group& group, std::span<std::byte> into);
  void TakePage(size_t slot, int result);
  void TakeRow(const PageFile& file, const std::byte* page, size_t row_count, size_t i);
  void SetOutcome(size_t i, FetchOutcome outcome, uint64_t& count);
  void SetOutcomes(const Group& group, FetchOutcome outcome, uint64_t& count);
  void FailReads(size_t key_count);

  const PageTable& table_;
  const FetchBatch& batch_;
  const Deadline deadline_;
  PageReader::Lease& lease_;
  size_t free_count_;
  std::array<size_t, kPageSlotsMax> free_slots_;  // [free_count_]
  std::array<Group, kPageSlotsMax> groups_;       // of the slots that are in flight
  std::array<Group, kGroupsAtOnce> next_groups_;  // that follow; those in the cache are taken
  // Positions of a task's keys by ascending key, from first_ on; empty: as they are.
  std::span<const uint32_t> order_{};
  size_t first_ = 0;
  size_t key_count_ = 0;  // of the task
  size_t next_ = 0;       // the first key of the task that is in no group yet
  Place place_{};
  FetchCounts counts_;
  absl::Status read_error_;  // of the first page that could not be read
};

absl::StatusOr<FetchCounts> PageFetcher::Run() {
  const bool sorted = std::is_sorted(batch_.keys.begin(), batch_.keys.end());
  HPS_RETURN_IF_ERROR(sorted ? FetchTask(batch_.keys.size()) : FetchUnsorted());
  if (!read_error_.ok()) return read_error_;
  return counts_;
}

absl::StatusOr<FetchCounts> PageFetcher::Run(std::span<const uint32_t> positions) {
  order_ = positions;
  if (!positions.empty()) HPS_RETURN_IF_ERROR(FetchTask(positions.size()));
  if (!read_error_.ok()) return read_error_;
  return counts_;
}

absl::Status PageFetcher::FetchUnsorted() {
  const size_t key_count = batch_.keys.size();
  for (first_ = 0; first_ < key_count; first_ += kFetchTaskKeysMax) {
    const size_t task_count = std::min(kFetchTaskKeysMax, key_count - first_);
    const auto order = lease_.order().first(task_count);
    std::iota(order.begin(), order.end(), 0);
    const Key* const keys = batch_.keys.data() + first_;
    std::sort(order.begin(), order.end(),
              [keys](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    order_ = order;
    if (absl::Status fetched = FetchTask(task_count); !fetched.ok()) {
      std::fill(batch_.outcomes.begin() + static_cast<std::ptrdiff_t>(first_ + task_count),
                batch_.outcomes.end(), FetchOutcome::kMiss);
      return fetched;
    }
  }
  return absl::OkStatus();
}

absl::Status PageFetcher::FetchTask(size_t key_count) {
  key_count_ = key_count;
  next_ = 0;
  place_ = {};
  while (next_ < key_count || lease_.queue().in_flight() > 0) {
    if (deadline_ != kNoDeadline && RealClock().Now() >= deadline_) {
      FailReads(key_count);
      return absl::DeadlineExceededError("page files: fetch: deadline exceeded");
    }
    BeginReads();
    if (lease_.queue().in_flight() == 0) continue;
    if (absl::Status ended = AwaitReads(); !ended.ok()) {
      FailReads(key_count);
      return ended;
    }
  }
  return absl::OkStatus();
}

// The next keys that are in one page. Answers the keys before them, which are in no page.
bool PageFetcher::NextGroup(Group& group) {
  for (; next_ < key_count_; ++next_) {
    const Key key = KeyAt(next_);
    while (place_.part < table_.parts_.size() && key > table_.parts_[place_.part].part.last_key)
      place_ = {place_.part + 1, 0};
    if (place_.part == table_.parts_.size() || key < table_.parts_[place_.part].part.first_key) {
      SetOutcome(next_, FetchOutcome::kAbsent, counts_.absent);
    } else if (!table_.parts_[place_.part].unreadable.ok()) {
      SetOutcome(next_, FetchOutcome::kMiss, counts_.misses);
      read_error_.Update(table_.parts_[place_.part].unreadable);
    } else if (table_.parts_[place_.part].file == nullptr) {
      SetOutcome(next_, FetchOutcome::kLost, counts_.lost);
    } else {
      break;
    }
  }
  if (next_ == key_count_) return false;
  const PageTable::OpenPart& part = table_.parts_[place_.part];
  const PageFile& file = *part.file;
  place_.page = file.PageOf(KeyAt(next_), place_.page);
  const Key last = file.RangeOf(place_.page).last;
  group = {next_, next_ + 1, &file, place_.page, {}};
  if (part.cache_file != 0) group.cached_as = PageCache::NameOf(part.cache_file, place_.page);
  while (group.end < key_count_ && KeyAt(group.end) <= last) ++group.end;
  next_ = group.end;
  return true;
}

// Takes the rows of cached pages on the way.
void PageFetcher::BeginReads() {
  const size_t reads_max = lease_.reads_max();
  for (size_t done = 0; done < kGroupsPerTurn;) {
    const size_t in_flight = lease_.queue().in_flight();
    if (in_flight >= reads_max) return;
    const size_t count = NextGroups(std::min(free_count_, reads_max - in_flight));
    if (count == 0) return;
    for (size_t i = 0; i < count; ++i) {
      if (!TakeCached(next_groups_[i])) BeginRead(next_groups_[i]);
    }
    done += count;
  }
}

// Fills next_groups_, and begins to load what TakeCached needs of them.
size_t PageFetcher::NextGroups(size_t count_max) {
  const size_t wanted = std::min(count_max, kGroupsAtOnce);
  size_t count = 0;
  while (count < wanted && NextGroup(next_groups_[count])) {
    const PageCache::PageName& name = next_groups_[count++].cached_as;
    if (name.id != 0) cache()->PrefetchSet(name);
  }
  for (size_t i = 0; i < count; ++i) {
    const Group& group = next_groups_[i];
    if (group.cached_as.id != 0)
      cache()->Prefetch(group.cached_as, group.file->description().shape.versions_offset());
  }
  return count;
}

bool PageFetcher::TakeCached(const Group& group) {
  return group.cached_as.id != 0 &&
         cache()->Use(group.cached_as, [&](const std::byte* page) { TakeRows(group, page); });
}

void PageFetcher::BeginRead(const Group& group) {
  const size_t slot = free_slots_[--free_count_];
  groups_[slot] = group;
  lease_.queue().Begin({group.file->file().descriptor(),
                        group.file->description().page_offset(group.page),
                        BytesOf(slot, *group.file), slot});
}

absl::Status PageFetcher::AwaitReads() {
  std::array<EndedPageRead, kPageSlotsMax> ended;
  HPS_ASSIGN_OR_RETURN(const size_t count, lease_.queue().Await(ended, deadline_));
  for (size_t i = 0; i < count; ++i) {
    TakePage(ended[i].slot, ended[i].result);
    groups_[ended[i].slot] = Group();
    free_slots_[free_count_++] = ended[i].slot;
  }
  return absl::OkStatus();
}

int PageFetcher::ReadAlone(const Group& group, std::span<std::byte> into) {
  const PageFile& file = *group.file;
  const ssize_t result = ::pread(file.file().descriptor(), into.data(), into.size(),
                                 static_cast<off_t>(file.description().page_offset(group.page)));
  return AfterReadFault("l3_pages.fetch.read_alone", result < 0 ? -errno : static_cast<int>(result),
                        into);
}

void PageFetcher::TakePage(size_t slot, int result) {
  const Group& group = groups_[slot];
  const PageFile& file = *group.file;
  const std::span<std::byte> bytes = BytesOf(slot, file);
  result = AfterReadFault("l3_pages.fetch.read", result, bytes);
  file.file().DropBehind(file.description().page_offset(group.page), bytes.size());
  // An interrupted or refused read says nothing about the page: it is read again, alone.
  if (result == -EINTR || result == -EAGAIN ||
      (result >= 0 && static_cast<size_t>(result) < bytes.size())) {
    result = ReadAlone(group, bytes);
  }
  if (result < 0) {
    SetOutcomes(group, FetchOutcome::kMiss, counts_.misses);
    const absl::Status failed = PageFileError(
        -result, absl::StrCat("can't read page ", group.page, " of"), file.file().path());
    read_error_.Update(absl::UnavailableError(failed.message()));
    return;
  }
  if (static_cast<size_t>(result) < bytes.size() || !file.IsIntact(group.page, bytes)) {
    SetOutcomes(group, FetchOutcome::kLost, counts_.lost);
    file.LogDamage(group.page);
    return;
  }
  if (group.cached_as.id != 0) cache()->Insert(group.cached_as, bytes);
  TakeRows(group, bytes.data());
}

// From a page that is intact.
void PageFetcher::TakeRows(const Group& group, const std::byte* page) {
  const size_t row_count = group.file->description().rows_of_page(group.page);
  for (size_t i = group.begin; i < group.end; ++i) TakeRow(*group.file, page, row_count, i);
}

void PageFetcher::TakeRow(const PageFile& file, const std::byte* page, size_t row_count, size_t i) {
  const PageShape& shape = file.description().shape;
  const size_t position = PositionOf(i);
  const Key key = batch_.keys[position];
  const std::byte* const keys = page + shape.keys_offset();
  size_t low = 0;  // the row is in [low, low + count)
  for (size_t count = row_count; count > 1;) {
    const size_t half = count / 2;
    low = LoadLittleEndian<Key>(keys + (low + half) * sizeof(Key)) <= key ? low + half : low;
    count -= half;
  }
  if (LoadLittleEndian<Key>(keys + low * sizeof(Key)) != key)
    return SetOutcome(i, FetchOutcome::kAbsent, counts_.absent);
  std::memcpy(batch_.rows.row(position), page + shape.rows_offset() + low * shape.row_bytes,
              shape.row_bytes);
  if (!batch_.versions.empty()) {
    batch_.versions[position] =
        LoadLittleEndian<Version>(page + shape.versions_offset() + low * sizeof(Version));
  }
  SetOutcome(i, FetchOutcome::kHit, counts_.hits);
}

void PageFetcher::SetOutcome(size_t i, FetchOutcome outcome, uint64_t& count) {
  batch_.outcomes[PositionOf(i)] = outcome;
  ++count;
}

void PageFetcher::SetOutcomes(const Group& group, FetchOutcome outcome, uint64_t& count) {
  for (size_t i = group.begin; i < group.end; ++i) SetOutcome(i, outcome, count);
}

// Marks the keys that were not reached. The reads in flight stay in the queue.
void PageFetcher::FailReads(size_t key_count) {
  uint64_t ignored = 0;
  for (const Group& group : groups_) SetOutcomes(group, FetchOutcome::kMiss, ignored);
  SetOutcomes({next_, key_count}, FetchOutcome::kMiss, ignored);
}

absl::StatusOr<FetchCounts> PageTable::Fetch(const FetchBatch& batch, Deadline deadline) const {
  HPS_CHECK(batch.outcomes.size() == batch.keys.size());
  HPS_CHECK(batch.keys.empty() ||
            (batch.rows.row_count >= batch.keys.size() && batch.rows.row_bytes == row_bytes_));
  absl::StatusOr<PageReader::Lease> lease = reader_.Acquire(deadline);
  if (!lease.ok()) {
    std::fill(batch.outcomes.begin(), batch.outcomes.end(), FetchOutcome::kMiss);
    return lease.status();
  }
  return PageFetcher(*this, batch, deadline, *lease).Run();
}

absl::StatusOr<FetchCounts> PageTable::FetchSome(const FetchBatch& batch,
                                                 std::span<const uint32_t> positions,
                                                 Deadline deadline) const {
  absl::StatusOr<PageReader::Lease> lease = reader_.Acquire(deadline);
  if (!lease.ok()) {
    for (const uint32_t position : positions) batch.outcomes[position] = FetchOutcome::kMiss;
    return lease.status();
  }
  return PageFetcher(*this, batch, deadline, *lease).Run(positions);
}

}  // namespace hps
