// Idle fetch workers that help a caller with work that lasts some tens of microseconds.
//
// The work is cut into pieces, which the caller and its helpers take one by one. Waking a thread
// costs the waker a few microseconds and takes the woken one some tens: so helpers may be called
// before the pieces are known, and then wait for them by spinning, for a bounded time.
//
//   crew.Call(8);                        // while the device is busy
//   crew.Open(work, piece_count);
//   while (crew.DoOne()) ...             // the caller takes pieces too
//   while (!all done && ...) ...
//   crew.Close();                        // no helper is in the work any more
//
// A helper that comes too late, or does not come because the workers are busy, is no loss: the
// caller does all pieces that nobody takes. It waits only for pieces that a helper is doing, hence
// only work that can't block is for crews.
//
// For one thread, the caller's. Allocates when it is made.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "base/executor.h"

namespace hps {

class Crew {
 public:
  class Work {
   public:
    // Does piece number `piece`. Called once for each, on any thread.
    virtual void DoPiece(size_t piece) = 0;

   protected:
    ~Work() = default;
  };

  struct Options {
    Executor* executor = nullptr;  // whose workers help
    size_t helpers_max = 0;
    Duration spin{};  // how long a helper that finds no pieces waits for them
  };

  explicit Crew(const Options& options);
  ~Crew();  // REQUIRES: closed; helpers that are still queued come to nothing
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  size_t helpers_max() const { return options_.helpers_max; }

  // Wakes helpers until `helper_count` of them (at most helpers_max) are there or on their way.
  void Call(size_t helper_count);

  // Lets everyone take pieces of `work`, number 0 first. REQUIRES: closed.
  void Open(Work& work, size_t piece_count);

  // Does the next piece here. False when all have been taken.
  bool DoOne();

  // Sends helpers away that wait for pieces; returns when those that have some are done with them.
  // All pieces that were taken are done then, and what they wrote can be seen. May be called when
  // nothing was opened.
  void Close();

 private:
  class State;
  const Options options_;
  const std::shared_ptr<State> state_;  // shared with helpers that have not come yet
};

}  // namespace hps
