// Cancels a lookup from another thread.
//
// A cancelled lookup returns as if its timeout had passed: keys whose rows have not arrived get
// default rows and KeyStatus::kDefaultDegraded. Cancelling ends the wait, not the work: a level
// that hangs continues in internal buffers. The caller may reuse its own buffers as soon as Lookup
// has returned, because Lookup still waits for everything that a device does in them.
//
//   LookupCancel cancel;
//   ... session->Lookup({.queries = queries, .cancel = &cancel}, &counts); ...
//   cancel.Cancel();  // on another thread
//
// Usable for one lookup at a time. Must outlive the lookups that it is passed to. Thread-safe.
#pragma once

#include <memory>

namespace hps {

class CancelPoint;

class LookupCancel final {
 public:
  LookupCancel();
  ~LookupCancel();
  LookupCancel(const LookupCancel&) = delete;
  LookupCancel& operator=(const LookupCancel&) = delete;

  // Cancels the running lookup and every later one until Reset. Does not block.
  void Cancel();
  bool is_cancelled() const;

  // Allows the next lookup. REQUIRES: no lookup is running with this object.
  void Reset();

 private:
  friend class CancelPoint;

  const std::unique_ptr<CancelPoint> point_;
};

}  // namespace hps
