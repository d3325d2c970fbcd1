// A pooled fetch: some keys of one table, asked of one level, with scratch for the answer. The
// session that waits for it and the task that runs it own it together. Several small jobs share one
// scratch buffer; each has a part of it.
//
// A session fills in the keys, posts the job (FetchService::Post) and waits for its latch until the
// deadline. Then it calls TryCollect: if true, the answer is there and the job belongs to the
// session alone again; if false, the task keeps the job, and promotes what it finds. The job uses
// no memory of the session except the latch, and that only until TryCollect. So a level that
// answers late writes only into the job's own scratch.
//
// A job that has been collected becomes the promotion of its own rows: they are not copied again,
// and the caller's output is never read.
//
// For one thread at a time, as described; passing it on is safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "serving/live_model.h"
#include "serving/live_table.h"
#include "serving/lookup_counters.h"
#include "tier/fetch_batch.h"

namespace hps {

class FetchService;
struct ReturnFetchJob;

inline constexpr size_t kNoCache = kCachesMax;

// Memory for the keys and rows of jobs. It is touched only as it is used, so it must not be
// value-initialized.
struct JobScratch {
  std::array<Key, kFetchTaskKeysMax> keys;
  std::array<std::byte, kFetchTaskRowBytesMax> rows;
  std::array<FetchOutcome, kFetchTaskKeysMax> outcomes;
  std::array<Version, kFetchTaskKeysMax> versions;
  std::array<uint8_t, kFetchTaskKeysMax> absent;
  std::array<uint8_t, kFetchTaskKeysMax> times_asked;
  std::array<uint8_t, kFetchTaskKeysMax> from_l2;
  std::array<FetchOutcome, kFetchTaskKeysMax> l2_outcomes;
  std::array<Key, kFetchTaskKeysMax> missed_keys;
  // For the pool, under its mutex: jobs that have a part, and those of them that no caller waits
  // for.
  size_t job_count = 0;
  size_t detached_count = 0;
};

// What one job has of a scratch buffer, from a key and a byte of the rows on.
struct JobScratchPart {
  // Keys that have room in it, up to the end of the buffer.
  size_t RoomFor(size_t row_bytes) const;
  // What is left behind so many keys.
  JobScratchPart Behind(size_t key_count, size_t row_bytes) const;

  Key* keys() const { return scratch->keys.data() + first_key; }
  std::byte* rows() const { return scratch->rows.data() + first_byte; }
  FetchOutcome* outcomes() const { return scratch->outcomes.data() + first_key; }
  Version* versions() const { return scratch->versions.data() + first_key; }
  uint8_t* absent() const { return scratch->absent.data() + first_key; }
  uint8_t* times_asked() const { return scratch->times_asked.data() + first_key; }
  uint8_t* from_l2() const { return scratch->from_l2.data() + first_key; }
  FetchOutcome* l2_outcomes() const { return scratch->l2_outcomes.data() + first_key; }
  // For a background job that goes on to the next level.
  Key* missed_keys() const { return scratch->missed_keys.data() + first_key; }

  JobScratch* scratch = nullptr;
  size_t first_key = 0;
  size_t first_byte = 0;
};

// Jobs that one call of level 2 answers.
inline constexpr size_t kJobsPerCallMax = 32;

// Where a fetch asks: the number of a part of level 2 (LiveTable::l2), or this one, level 3. Rows
// that it finds are inserted into the parts before it.
inline constexpr size_t kLevel3 = kL2PartsMax;
inline constexpr size_t kNoLevel = kLevel3 + 1;

// The first part of the table's level 2, from number `first` on, that a fetch may ask now, or
// kLevel3. The caller asks it (L2Part::Admits).
size_t LevelToAsk(LiveTable& table, size_t first, TimePoint now);

class FetchJob final : public Task {
 public:
  // What to fetch, and what a promotion of the answer needs.
  struct Spec {
    LiveTable* table = nullptr;
    LookupCounters* counters = nullptr;
    size_t level = kLevel3;
    size_t cache = kNoCache;  // L1 that takes the rows too
    ApplyEpoch epoch = 0;     // as read before the call's first fetch
    Deadline deadline = kNoDeadline;
  };

  // `service` owns the job; `id` is its number there.
  FetchJob(FetchService& service, size_t id) : service_(service), id_(id) {}

  // Keys of `row_bytes` that a job takes at most, with a scratch buffer of its own.
  static size_t KeysMax(size_t row_bytes);

  // Begins a fetch of `key_count` keys; the caller fills in keys(), and times_asked() where that is
  // not once. REQUIRES: the job's part of the scratch buffer has room for them.
  void Prepare(const Spec& spec, size_t key_count);

  std::span<Key> keys() { return {part_.keys(), key_count_}; }
  std::span<uint8_t> times_asked() { return {part_.times_asked(), key_count_}; }
  // Valid once Fetch has run. Every key has an outcome; kMiss where the level gave none.
  std::span<const FetchOutcome> outcomes() const { return {part_.outcomes(), key_count_}; }
  // Also for a key of an L3 job that L2 turned out to hold.
  bool is_from_l2(size_t i) const { return spec_.level != kLevel3 || part_.from_l2()[i] != 0; }
  const std::byte* row(size_t i) const { return part_.rows() + i * spec_.table->row_bytes(); }

  // Asks the level now, on the calling thread. Failures are counted; one of a part of L2 starts its
  // bypass.
  void Fetch();
  // The level returned an error, or was not asked because the deadline had passed.
  bool failed() const { return failed_; }

  // Call it when the latch has opened or the deadline has passed. True: the answer is there, and
  // the job belongs to the caller. False: the task keeps the job, and the caller must forget it.
  bool TryCollect();

  // Inserts what was found into the levels above, unless the table is retired. Drops everything
  // else from the job.
  void Promote();
  // Whether Promote could do anything.
  bool HasPromotion() const;
  // Whether a level takes what a job of this spec finds: only then its keys may be said to be
  // pending.
  static bool HasTaker(const Spec& spec);

  void Run() override;

 private:
  friend class FetchService;
  friend struct ReturnFetchJob;
  enum class Stage : uint8_t { kFetch, kPromote, kFetchAndPromote };

  static bool L1Takes(const Spec& spec);
  // The parts of L2 before the level of a job.
  static size_t PartCount(const Spec& spec);
  static bool L2Takes(const Spec& spec);
  void BeginAnswer();
  void AnswerMisses();
  // Asks a part of level 2 for the keys of all jobs with one call.
  static void FetchTogether(std::span<FetchJob* const> jobs);
  // Asks `table`. No exception leaves it: it runs on threads that all calls share.
  template <typename Table>
  absl::Status Ask(Table& table, const FetchBatch& batch) const;
  void TakeStatus(const absl::Status& fetched);
  void RunLinked();
  void RefetchFromL2();
  void NoteL2Failure(L2Part& part, absl::StatusCode code);
  HostRows RowsOf(size_t count) const;
  FetchBatch BatchOf();
  bool Complete();  // false: no caller waits, the task owns the job
  void Revalidate();
  void AskAgain(L2Part& part);
  // Moves the keys with one of two outcomes to the front, with rows and versions.
  size_t KeepOnly(FetchOutcome outcome, FetchOutcome or_outcome);
  // A row that a call has answered as pending is inserted in any case.
  Admission admission() const { return background_ ? Admission::kAlways : Admission::kFrequent; }
  void PromoteIntoL2();
  void PromoteIntoL1(DeviceCacheTable& l1);
  // For a background job that goes on from a part of L2. ListMisses notes the keys that the part
  // lacks, before Promote compacts the scratch; false: there are none. AskNextForMisses makes these
  // keys the job's next fetch.
  bool ListMisses();
  void AskNextForMisses();

  FetchService& service_;
  const size_t id_;
  JobScratchPart part_;
  Spec spec_;
  size_t key_count_ = 0;
  size_t missed_count_ = 0;
  bool failed_ = false;
  Stage stage_ = Stage::kFetch;
  bool background_ = false;  // posted without a waiting caller
  bool detached_ = false;    // counted by the pool: in the background, or promoting
  // The task of a list's first job runs all jobs of the list.
  FetchJob* next_linked_ = nullptr;
  SnapshotPin pin_;  // held while a task owns or shares the job
  Mutex mutex_;
  Latch* latch_ HPS_GUARDED_BY(mutex_) = nullptr;  // null: no caller waits
  bool done_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
