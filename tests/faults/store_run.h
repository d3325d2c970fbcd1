// A store in this process that does planned events on a disk that may fail, and what must be in it.
//
// As KillHarness, without the other process: an event that failed may have been done or not, but
// then wholly; one that was acknowledged has been done. For one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tests/faults/planned_events.h"
#include "tests/faults/test_fault_store.h"

namespace hps {

class StoreRun {
 public:
  StoreRun(const EventPlan& plan, RocksStoreOptions options)
      : plan_(plan), options_(std::move(options)), state_(plan) {}

  absl::Status Open();
  void Close() { store_.reset(); }
  bool is_open() const { return store_ != nullptr; }

  // Does the next events until one fails. REQUIRES: the store is open.
  absl::Status DoEvents(uint64_t count);

  // Compares the store with what was acknowledged; after a failed event also with one event more,
  // which is then taken to have been done.
  absl::Status Check();

  // What was acknowledged.
  const PlannedState& state() const { return state_; }
  DurableStore& store() { return *store_; }

 private:
  const EventPlan plan_;
  const RocksStoreOptions options_;
  PlannedState state_;
  bool failed_ = false;  // the event after state_'s may have been done
  std::unique_ptr<DurableStore> store_;
};

}  // namespace hps
