// Ends a look-up's wait from another thread.
//
// A cancelled look-up returns as if its timeout had passed then: what has not arrived is answered
// with default rows and KeyStatus::kDefaultDegraded. Like a timeout it ends the wait, not the work:
// a level that hangs goes on in buffers of its own, and the caller's are the caller's again when
// Lookup returns. What a device does in the caller's buffers is waited for all the same.
//
//   std::unique_ptr<LookupCancel> cancel = LookupCancel::Create();
//   ... session->Lookup({.queries = queries, .cancel = cancel.get()}, &counts); ...
//   cancel->Cancel();  // on another thread
//
// One look-up at a time. It must outlive the look-ups that it is given to.
#pragma once

#include <memory>

namespace hps {

class LookupCancel {
 public:
  static std::unique_ptr<LookupCancel> Create();

  virtual ~LookupCancel() = default;

  // Ends the look-up that runs, and those that begin before Reset. Any thread; does not block.
  virtual void Cancel() = 0;
  virtual bool is_cancelled() const = 0;

  // Makes it ready for the next look-up. REQUIRES: none runs with it.
  virtual void Reset() = 0;

 private:
  friend class CancelPoint;  // the one implementation
  LookupCancel() = default;
};

}  // namespace hps
