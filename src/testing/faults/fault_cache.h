// Decorators that make a device cache fail as planned (testing/faults/tier_faults.h), for tests.
//
// A call or a change that fails has done nothing (kFail) or everything (kFailLate). kDelay and
// kStall apply to operations with a deadline: the device does not respond. kDrop omits changes and
// reports success; rows are not corrupted.
//
// `faults` must outlive the cache and its tables. As thread-safe as the decorated cache.
#pragma once

#include <memory>

#include "testing/faults/tier_faults.h"
#include "tier/device_cache.h"

namespace hps {

// The decorator makes its tables, and only tables of the decorator may be used in its calls.
std::unique_ptr<DeviceCache> WithFaults(std::unique_ptr<DeviceCache> cache, TierFaults* faults);

}  // namespace hps
