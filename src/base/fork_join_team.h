// A fork-join team: idle workers that help one caller with work of some tens of microseconds or
// more.
//
// The work is divided into pieces. The caller and its helpers take published pieces one by one.
// Waking a thread costs the waking thread a few microseconds, and the woken thread needs some tens.
// Therefore helpers may be called before there are pieces. They wake each other, and spin for a
// bounded time while they wait for pieces. If calls follow each other within that time, helpers
// also wait for the next call; they give way to any other task that is queued.
//
//   team->Call(8);                       // while the device is busy
//   team->Open(work);
//   while (...) team->Publish(count);    // as pieces become known
//   while (team->RunOne()) ...           // the caller takes pieces, too
//   while (!all done && ...) ...
//   team->Close();                       // after this, no helper touches the work
//
// If a helper comes too late, or never because all workers are busy, the caller runs the remaining
// pieces itself. It waits only for pieces that a helper is running, so a piece must not block.
//
// Teams belong to a pool, which outlives queued helpers. A helper that runs after its caller has
// returned the team helps the next caller of that team, or finds nothing to do.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace hps {

class ForkJoinPool;

// For the thread that has leased it; helpers run on threads of the executor.
class ForkJoinTeam {
 public:
  class Work {
   public:
    // Runs piece number `piece`. Called once per piece, on any thread.
    virtual void RunPiece(size_t piece) = 0;

   protected:
    ~Work() = default;
  };

  ForkJoinTeam(const ForkJoinTeam&) = delete;
  ForkJoinTeam& operator=(const ForkJoinTeam&) = delete;

  size_t helpers_max() const { return helpers_max_; }

  // Wakes helpers until `helper_count` of them (at most helpers_max) are running or queued.
  void Call(size_t helper_count);

  // Begins work without pieces. REQUIRES: closed.
  void Open(Work& work);
  bool is_open() const { return work_.load(std::memory_order_relaxed) != nullptr; }

  // Publishes the pieces up to number `piece_count`. REQUIRES: open; the count only grows.
  void Publish(size_t piece_count);

  // Runs the next piece on this thread. False if all published pieces have been taken.
  bool RunOne() { return RunOneOf(*work_.load(std::memory_order_relaxed)); }

  // Dismisses waiting helpers, and returns when running helpers have finished their pieces. All
  // taken pieces are then done, and what they wrote is visible. May be called without Open.
  void Close();

 private:
  friend class ForkJoinPool;
  friend struct ReturnForkJoinTeam;

  struct alignas(64) Helper final : public Task {
    void Run() override;

    ForkJoinTeam* team = nullptr;
    std::atomic<bool> busy{false};  // posted, or running
  };

  explicit ForkJoinTeam(ForkJoinPool& pool);
  // Posts helpers of those that Call asked for.
  void Wake(size_t helper_count);
  void Help();
  // Both return false if the helper shall end.
  bool AwaitWork();
  bool TakePieces();
  bool RunOneOf(Work& work);
  // Whether the executor has tasks of others.
  bool IsKeepingOthersWaiting() const;

  ForkJoinPool& pool_;
  const size_t helpers_max_;
  const std::unique_ptr<Helper[]> helpers_;
  // Written by each thread that takes a piece.
  alignas(64) std::atomic<size_t> next_piece_{0};
  alignas(64) std::atomic<size_t> piece_count_{0};
  alignas(64) std::atomic<Work*> work_{nullptr};
  std::atomic<bool> called_{false};
  std::atomic<bool> lingers_{false};  // helpers stay when the work is closed
  alignas(64) std::atomic<size_t> inside_count_{0};
  std::atomic<bool> closing_{false};
  struct {
    std::atomic<size_t> count{0};         // helpers that Call asked for
    std::atomic<size_t> next{0};          // the first of them that is not posted yet
    std::atomic<size_t> queued_count{0};  // those that wait for a thread
  } wanted_;
  TimePoint closed_at_{};  // for the caller
  Mutex mutex_;
  CondVar left_;
};

struct ReturnForkJoinTeam {
  void operator()(ForkJoinTeam* team) const;  // REQUIRES: closed
};
using ForkJoinLease = std::unique_ptr<ForkJoinTeam, ReturnForkJoinTeam>;

// Thread-safe. Must outlive its leases and the executor's last task.
class ForkJoinPool {
 public:
  struct Options {
    Executor* executor = nullptr;  // whose workers help
    size_t helpers_max = 0;        // of one team
    Duration spin{};               // how long a helper that finds no pieces waits for them
  };

  explicit ForkJoinPool(const Options& options) : options_(options) {}
  ForkJoinPool(const ForkJoinPool&) = delete;
  ForkJoinPool& operator=(const ForkJoinPool&) = delete;

  // Allocates when all teams are lent: the pool grows to as many as were ever lent at a time.
  ForkJoinLease Acquire();

 private:
  friend class ForkJoinTeam;
  friend struct ReturnForkJoinTeam;
  void Return(ForkJoinTeam* team);

  const Options options_;
  Mutex mutex_;
  std::vector<std::unique_ptr<ForkJoinTeam>> teams_ HPS_GUARDED_BY(mutex_);
  std::vector<ForkJoinTeam*> free_ HPS_GUARDED_BY(mutex_);  // capacity for all
};

}  // namespace hps
