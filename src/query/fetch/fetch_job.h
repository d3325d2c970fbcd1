// A pooled piece of fetching: some keys of one table asked of one level, with the scratch for the
// answer, owned jointly by the session that waits for it and the task that does it.
//
// A session fills the keys in, posts the job (FetchService::Post), waits for its latch until the
// deadline, and then either takes the answer (Take is true: the job is the session's alone again)
// or leaves without it (false: the task goes on, and what it finds it promotes). The job never
// touches memory of the session but the latch, and that only until Take: so a level that answers
// late writes only here.
//
// A job that has been answered becomes the promotion of its own rows: they need not be copied
// again, and the caller's output is never read.
//
// For one thread at a time, as just said; the hand-over is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "query/lookup_counters.h"
#include "query/snapshot/model_state.h"
#include "query/snapshot/served_table.h"
#include "tier/fetch_batch.h"

namespace hps {

class FetchService;
struct ReturnFetchJob;

inline constexpr size_t kNoCache = kCachesMax;

class FetchJob final : public Task {
 public:
  enum class Level : uint8_t { kL2, kL3 };

  // What is asked, and what a promotion of the answer needs to know.
  struct Order {
    ServedTable* table = nullptr;
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

  // Begins a new order of `key_count` keys; the caller fills keys().
  void Prepare(const Order& order, size_t key_count);

  std::span<Key> keys() { return {keys_.get(), key_count_}; }
  // Valid once Fetch has run. Every key has an outcome; kMiss where the level gave none.
  std::span<const FetchOutcome> outcomes() const { return {outcomes_.get(), key_count_}; }
  // L2, also for a key of an L3 job that L2 turned out to hold.
  Level level(size_t i) const { return from_l2_[i] != 0 ? Level::kL2 : order_.level; }
  const std::byte* row(size_t i) const { return rows_.get() + i * order_.table->row_bytes(); }
  const Order& order() const { return order_; }
  size_t id() const { return id_; }

  // Asks the level now, on the calling thread. Failures are counted; L2's trip its bypass.
  void Fetch();
  // The level returned an error.
  bool failed() const { return failed_; }

  // After the latch, or the deadline: true = the answer is there and the job is the caller's; false
  // = the task keeps the job, and the caller must forget it.
  bool Take();

  // Inserts what was found into the levels above, unless the table is retired. Leaves only what was
  // inserted in the job.
  void Promote();
  // Whether Promote could do anything.
  bool HasPromotion() const;
  // Whether a level takes what a job of this order finds: only then its keys may be said to be
  // pending.
  static bool HasTaker(const Order& order);

  void Run() override;

 private:
  friend class FetchService;
  friend struct ReturnFetchJob;
  enum class Stage : uint8_t { kFetch, kPromote, kFetchAndPromote };

  static bool L1Takes(const Order& order);
  static bool L2Takes(const Order& order);
  void FetchFromLevel();
  void FetchFromL2Anew();
  void NoteL2Failure(absl::StatusCode code);
  HostRows RowsOf(size_t count) const;
  FetchBatch BatchOf();
  bool HandOver();  // false: nobody waits, the task owns the job
  void AgreeWithL2();
  // Moves the keys with one of two outcomes to the front, with rows and versions.
  size_t KeepOnly(FetchOutcome outcome, FetchOutcome or_outcome);
  void PromoteIntoL2(LossyTable& l2);
  void PromoteIntoL1(DeviceCacheTable& l1);
  // A background job goes on from L2 to L3: what L2 lacks is noted before the scratch is promoted
  // from, and becomes the next order.
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
  Order order_;
  size_t key_count_ = 0;
  size_t missed_count_ = 0;
  bool failed_ = false;
  Stage stage_ = Stage::kFetch;
  bool background_ = false;  // posted with nobody waiting
  bool on_its_own_ = false;  // counted by the pool: in the background, or promoting
  SnapshotPin pin_;          // held while a task owns or shares the job
  Mutex mutex_;
  Latch* latch_ HPS_GUARDED_BY(mutex_) = nullptr;  // null: nobody waits
  bool done_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
