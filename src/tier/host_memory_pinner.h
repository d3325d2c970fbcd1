// Makes memory of this process readable by all devices, at its own addresses, in the background and
// as far as a budget lasts.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace hps {

// Memory that devices are to read. Belongs to the code that asks for it.
struct PinnedRegion {
  std::span<std::byte> memory;        // whole pages
  std::atomic<bool> readable{false};  // set once all of it is pinned
  // Cleared by its owner when the memory will be freed soon: pinning does not begin after that, and
  // ends early if it is under way.
  std::atomic<bool> wanted{true};
};

class HostMemoryPinner {
 public:
  virtual ~HostMemoryPinner() = default;

  // Begins to pin the region, in the background; pins it here if that takes no work now. The region
  // stays as it is if the budget does not last, until another region returns its part, if the
  // system refuses, or if the region is not wanted any more. At most once per region.
  virtual void Pin(PinnedRegion& region) = 0;

  // Must follow every Pin; the region is not used from here on. If the region is being pinned, that
  // ends early. Waits for devices that may still read the region because a lookup gave up on them.
  // False if a device hangs: then the memory must stay mapped until the process ends.
  virtual bool Unpin(PinnedRegion& region) = 0;
};

}  // namespace hps
