// Asks one level for all keys that a call has not found yet, in parallel jobs, until the deadline.
//
// A call may lack more rows than the pool has scratch, so its jobs go out in waves: fill, post,
// wait, copy out. The jobs of the last wave are kept until PromoteHeld, so that promotion begins
// after the reply. Belongs to one session; for one thread; allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "base/executor.h"
#include "query/fetch/cancel_point.h"
#include "query/fetch/fetch_service.h"
#include "query/table_work.h"

namespace hps {

class LevelFetch {
 public:
  explicit LevelFetch(FetchService& service) : service_(service) {}
  LevelFetch(const LevelFetch&) = delete;
  LevelFetch& operator=(const LevelFetch&) = delete;

  // Called whenever some keys have been answered and others are still to be fetched.
  using AfterWave = absl::FunctionRef<void()>;

  // What ends the waits of the call that begins now, besides its deadlines; null = nothing.
  void set_cancel(CancelPoint* cancel) { cancel_ = cancel; }
  bool is_cancelled() const { return cancel_ != nullptr && cancel_->is_cancelled(); }

  // Answers the open keys that the level has by `deadline`; the others stay open, so do all when no
  // scratch is left. A level that can't block (some L2) is asked on this thread, whatever the
  // deadline. An L2 that times out is bypassed for a while (query/circuit_breaker.h), and while a
  // change is open (tier/fence.h).
  void Fetch(std::span<TableWork> tables, FetchJob::Level level, const ModelState::Guard& guard,
             Deadline deadline, AfterWave after_wave = Nothing);

  // Starts fetching all open keys of `table` for the levels above, with nobody waiting, and answers
  // them with default rows: pending where a level takes them and a job could be had, else degraded.
  void FetchInBackground(TableWork& table, FetchJob::Level level, const ModelState::Guard& guard);

  // Hands the answered jobs that are kept on to promotion. Must be called before the guard ends.
  void PromoteHeld(const ModelState::Guard& guard);

 private:
  static constexpr size_t kWaveJobsMax = 16;

  static void Nothing() {}

  struct Flight {
    FetchJobLease job;
    TableWork* table = nullptr;
    size_t first = 0;  // the job's keys are open keys first .. first + key_count of the table
    size_t key_count = 0;
    bool posted = false;
    bool answered = false;
  };

  // Where the next wave begins.
  struct Progress {
    size_t table = 0;
    size_t open = 0;
  };

  // Has the table's L2 left out where its circuit breaker is open.
  void BypassFailing(TableWork& table);
  static bool Wanted(const TableWork& table, FetchJob::Level level);
  static bool CanBlock(const TableWork& table, FetchJob::Level level);
  void FillWave(std::span<TableWork> tables, FetchJob::Level level, Deadline deadline,
                Progress* progress);
  bool AddFlight(TableWork& table, FetchJob::Level level, size_t first, Deadline deadline);
  void FlyWave(FetchJob::Level level, const ModelState::Guard& guard, Deadline deadline);
  void LandWave(FetchJob::Level level);
  void CopyOut(Flight& flight, FetchJob::Level level);
  static void LeaveRestOpen(std::span<TableWork> tables, FetchJob::Level level, Progress progress);

  bool IsTooLate(Deadline deadline) const;

  FetchService& service_;
  CancelPoint* cancel_ = nullptr;
  Latch latch_;
  std::array<Flight, kWaveJobsMax> flights_;
  size_t flight_count_ = 0;
  size_t job_keys_max_ = 0;
};

}  // namespace hps
