// The budgets of levels 1 and 2 whose setting is "auto".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hps/config.h"
#include "tier/device_cache_factory.h"

namespace hps {

// Replaces kAutoBytes by a budget. Tables get no more of it than they need, so it is an upper
// limit: level 2 may take a third of the memory that is available now, because a switch to new
// tables takes it twice for a while, and level 1 what AutoL1Bytes says of the devices that the
// configuration has. Where nothing says how much there is, they may take 4 GiB and 2 GiB.
Config ChooseBudgets(const Config& config, const DeviceCacheFactory& devices);

// 0.6 of the device memory that is free now, on the one of `devices` that has least.
uint64_t AutoL1Bytes(std::span<const int> devices, const DeviceCacheFactory& factory);

// How much pinned memory, and device memory, the lookups of one device may add to their staging:
// a sixteenth of the memory that is available now, divided by the number of devices, and at most a
// sixteenth of the device's memory. 0 if the device does not say how much it has.
uint64_t StagingGrowthMax(const DeviceCacheFactory& devices, int device, size_t device_count);

}  // namespace hps
