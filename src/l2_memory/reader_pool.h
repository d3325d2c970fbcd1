// The epoch readers of a table. A call leases one for its duration, so that threads need no
// registration and leave nothing behind.
//
// Thread-safe. Leasing costs one atomic exchange if the thread's previous place is free, and never
// allocates.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/epoch.h"

namespace hps {

class ReaderPool {
 public:
  struct alignas(64) Place {
    std::atomic<bool> leased{false};
    bool added = false;  // guarded by `leased`, as the reader is
    EpochDomain::Reader reader;
  };
  struct EndLease {
    void operator()(Place* place) const { place->leased.store(false, std::memory_order_release); }
  };
  using Lease = std::unique_ptr<Place, EndLease>;

  // Adds a reader to the domain when more are leased than ever before. REQUIRES: the domain has
  // room for `readers_max`, and no other code adds readers to it.
  ReaderPool(EpochDomain& domain, size_t readers_max);

  // Returns an empty lease if all readers are leased.
  Lease Acquire();

  // Turns a lease, which is not empty, into a number and back, for a user that is not a scope.
  size_t Keep(Lease lease);
  Lease Resume(size_t number);

  static size_t BytesFor(size_t readers_max) { return readers_max * sizeof(Place); }

 private:
  EpochDomain& domain_;
  const size_t readers_max_;
  const std::unique_ptr<Place[]> places_;
};

}  // namespace hps
