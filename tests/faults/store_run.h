// A store in this process that does planned events on a disk that may fail, and what must be in it.
//
// As KillHarness, without the other process: an event that failed may have been done or not, but
// then wholly; one that was acknowledged has been done. What was seen to be done without having
// been acknowledged may be undone again when the store is next opened: it may have been in memory
// only. For one thread.
#pragma once

#include <cstdint>
#include <memory>

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

  // Compares the store with what was acknowledged, and then with each further event that was tried;
  // these are then taken to have been done.
  absl::Status Check();

  // What the store holds: what was acknowledged, and what the last Check has seen beyond.
  const PlannedState& state() const { return state_; }
  DurableStore& store() { return *store_; }

 private:
  const EventPlan plan_;
  const RocksStoreOptions options_;
  PlannedState state_;
  uint64_t acknowledged_ = 0;  // events
  uint64_t last_ = 0;          // event that was tried
  std::unique_ptr<DurableStore> store_;
};

}  // namespace hps
