// Decorators that make a device cache misbehave as a plan says (testing/faults/tier_faults.h), for
// tests.
//
// A call or a change that fails has done nothing (kFail) or everything (kFailLate). kDelay and
// kStall are for the operations with a deadline: the device that does not answer. kDrop leaves
// changes out and reports success; rows are not corrupted.
//
// `faults` must outlive the cache and its tables. As thread-safe as the decorated cache.
#pragma once

#include <memory>

#include "testing/faults/tier_faults.h"
#include "tier/device_cache.h"

namespace hps {

// Its tables are made, and its calls are asked about tables that were made, by the decorator.
std::unique_ptr<DeviceCache> WithFaults(std::unique_ptr<DeviceCache> cache, TierFaults* faults);

}  // namespace hps
