// A pooled fetch: some keys of one table, asked of one level, with the scratch for the answer. The
// session that waits for it and the task that runs it own it together.
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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
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

class FetchJob final : public Task {
 public:
  enum class Level : uint8_t { kL2, kL3 };

  // What to fetch, and what a promotion of the answer needs.
  struct Spec {
    LiveTable* table = nullptr;
    LookupCounters* counters = nullptr;
    Level level = Level::kL3;
    size_t cache = kNoCache;   // L1 that takes the rows too
    ApplyEpoch epoch = 0;      // as read before the call's first fetch
    bool l2_bypassed = false;  // by the lookup, because its circuit breaker is open
    Deadline deadline = kNoDeadline;
  };

  // `service` owns the job; `id` is its number there.
  FetchJob(FetchService& service, size_t id);

  // Keys of `row_bytes` that one job takes.
  static size_t KeysMax(size_t row_bytes);

  // Begins a fetch of `key_count` keys; the caller fills in keys().
  void Prepare(const Spec& spec, size_t key_count);

  std::span<Key> keys() { return {keys_.get(), key_count_}; }
  // Valid once Fetch has run. Every key has an outcome; kMiss where the level gave none.
  std::span<const FetchOutcome> outcomes() const { return {outcomes_.get(), key_count_}; }
  // L2, also for a key of an L3 job that L2 turned out to hold.
  Level level(size_t i) const { return from_l2_[i] != 0 ? Level::kL2 : spec_.level; }
  const std::byte* row(size_t i) const { return rows_.get() + i * spec_.table->row_bytes(); }
  const Spec& spec() const { return spec_; }
  size_t id() const { return id_; }

  // Asks the level now, on the calling thread. Failures are counted; one of L2 starts its bypass.
  void Fetch();
  // The level returned an error.
  bool failed() const { return failed_; }

  // After the latch, or the deadline: true = the answer is there and the job is the caller's; false
  // = the task keeps the job, and the caller must forget it.
  bool TryCollect();

  // Inserts what was found into the levels above, unless the table is retired. Leaves only what was
  // inserted in the job.
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
  static bool L2Takes(const Spec& spec);
  void FetchFromLevel();
  void RefetchFromL2();
  void NoteL2Failure(absl::StatusCode code);
  HostRows RowsOf(size_t count) const;
  FetchBatch BatchOf();
  bool Complete();  // false: nobody waits, the task owns the job
  void RevalidateInL2();
  // Moves the keys with one of two outcomes to the front, with rows and versions.
  size_t KeepOnly(FetchOutcome outcome, FetchOutcome or_outcome);
  // A row that a call has answered as pending is inserted in any case.
  Admission admission() const { return background_ ? Admission::kAlways : Admission::kFrequent; }
  void PromoteIntoL2(LossyTable& l2);
  void PromoteIntoL1(DeviceCacheTable& l1);
  // A background job goes on from L2 to L3: what L2 lacks is noted before the scratch is promoted
  // from, and becomes the next spec.
  void ListMisses();
  void AskL3ForMisses();

  FetchService& service_;
  const size_t id_;
  const std::unique_ptr<Key[]> keys_;
  const std::unique_ptr<std::byte[]> rows_;
  const std::unique_ptr<FetchOutcome[]> outcomes_;
  const std::unique_ptr<Version[]> versions_;
  const std::unique_ptr<uint8_t[]> absent_;
  const std::unique_ptr<uint8_t[]> from_l2_;
  const std::unique_ptr<FetchOutcome[]> l2_outcomes_;
  const std::unique_ptr<Key[]> missed_keys_;  // for a background job that goes on from L2 to L3
  Spec spec_;
  size_t key_count_ = 0;
  size_t missed_count_ = 0;
  bool failed_ = false;
  Stage stage_ = Stage::kFetch;
  bool background_ = false;  // posted with nobody waiting
  bool detached_ = false;    // counted by the pool: in the background, or promoting
  SnapshotPin pin_;          // held while a task owns or shares the job
  Mutex mutex_;
  Latch* latch_ HPS_GUARDED_BY(mutex_) = nullptr;  // null: nobody waits
  bool done_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
