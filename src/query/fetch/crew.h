// Idle fetch workers that help a caller with work that lasts some tens of microseconds.
//
// The work is cut into pieces, which the caller and its helpers take one by one, from when they are
// announced. Waking a thread costs the waker a few microseconds and takes the woken one some tens:
// so helpers may be called before there are pieces, wake each other, and wait for pieces by
// spinning, for a bounded time. Where calls follow each other within that time, helpers also wait
// from one call for the next; they give way to any other task that is queued.
//
//   crew->Call(8);                       // while the device is busy
//   crew->Open(work);
//   while (...) crew->Announce(count);   // as pieces become known
//   while (crew->DoOne()) ...            // the caller takes pieces too
//   while (!all done && ...) ...
//   crew->Close();                       // no helper is in the work any more
//
// A helper that comes too late, or does not come because the workers are busy, is no loss: the
// caller does all pieces that nobody takes. It waits only for pieces that a helper is doing, hence
// only work that can't block is for crews.
//
// Crews belong to a pool, which outlives the helpers that are still queued when a crew's user has
// gone: such a helper helps whoever has leased the crew by then, or finds nothing to do.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace hps {

class CrewPool;

// For one thread, who has leased it; helpers come on theirs.
class Crew {
 public:
  class Work {
   public:
    // Does piece number `piece`. Called once for each, on any thread.
    virtual void DoPiece(size_t piece) = 0;

   protected:
    ~Work() = default;
  };

  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  size_t helpers_max() const { return helpers_max_; }

  // Has helpers woken until `helper_count` of them (at most helpers_max) are there or on their way.
  void Call(size_t helper_count);

  // Begins work without pieces. REQUIRES: closed.
  void Open(Work& work);
  bool is_open() const { return work_.load(std::memory_order_relaxed) != nullptr; }

  // Lets everyone take the pieces up to number `piece_count`. REQUIRES: open; the count only grows.
  void Announce(size_t piece_count);

  // Does the next piece here. False when all that were announced have been taken.
  bool DoOne() { return DoOneOf(*work_.load(std::memory_order_relaxed)); }

  // Sends helpers away that wait for pieces; returns when those that have some are done with them.
  // All pieces that were taken are done then, and what they wrote can be seen. May be called when
  // nothing was opened.
  void Close();

 private:
  friend class CrewPool;
  friend struct ReturnCrew;

  struct alignas(64) Helper final : public Task {
    void Run() override;

    Crew* crew = nullptr;
    std::atomic<bool> busy{false};  // posted, or running
  };

  explicit Crew(CrewPool& pool);
  // Posts helpers of those that were called for.
  void Wake(size_t helper_count);
  void Help();
  // Both false when the helper is to go.
  bool AwaitWork();
  bool TakePieces();
  bool DoOneOf(Work& work);
  // Whether the executor has tasks that are not of this crew.
  bool IsKeepingOthersWaiting() const;

  CrewPool& pool_;
  const size_t helpers_max_;
  const std::unique_ptr<Helper[]> helpers_;
  // Written by everyone who takes a piece.
  alignas(64) std::atomic<size_t> next_piece_{0};
  alignas(64) std::atomic<size_t> piece_count_{0};
  alignas(64) std::atomic<Work*> work_{nullptr};
  std::atomic<bool> called_{false};
  std::atomic<bool> lingers_{false};  // helpers stay when the work is closed
  alignas(64) std::atomic<size_t> inside_count_{0};
  std::atomic<bool> closing_{false};
  std::atomic<size_t> wanted_count_{0};  // helpers that were called for,
  std::atomic<size_t> next_helper_{0};   // and the first of them that nobody has seen to
  std::atomic<size_t> queued_count_{0};  // helpers that wait for a thread
  TimePoint closed_at_{};                // for the caller
  Mutex mutex_;
  CondVar left_;
};

struct ReturnCrew {
  void operator()(Crew* crew) const;  // REQUIRES: closed
};
using CrewLease = std::unique_ptr<Crew, ReturnCrew>;

// Thread-safe. Must outlive its leases and the executor's last task.
class CrewPool {
 public:
  struct Options {
    Executor* executor = nullptr;  // whose workers help
    size_t helpers_max = 0;        // of one crew
    Duration spin{};               // how long a helper that finds no pieces waits for them
  };

  explicit CrewPool(const Options& options) : options_(options) {}
  CrewPool(const CrewPool&) = delete;
  CrewPool& operator=(const CrewPool&) = delete;

  // Allocates when all crews are lent: the pool grows to as many as were ever lent at a time.
  CrewLease Acquire();

 private:
  friend class Crew;
  friend struct ReturnCrew;
  void Return(Crew* crew);

  const Options options_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Crew>> crews_ HPS_GUARDED_BY(mutex_);
  std::vector<Crew*> free_ HPS_GUARDED_BY(mutex_);  // capacity for all
};

}  // namespace hps
