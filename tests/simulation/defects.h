// Decorators through which a simulated node interleaves, loses what a level may lose, and, where a
// test asks for it, is wrong: one planted defect each, so that the judge can be seen to find it.
//
// For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tier/device_cache.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"

namespace hps {

enum class Defect {
  kNone,
  kNoFenceL1,          // promotions enter L1 whatever their epoch
  kNoFenceL2,          // the same for L2
  kEpochAfterFetch,    // promotions carry the epoch of their insertion
  kNoReprobe,          // L1 is not probed again where a change began meanwhile
  kFirstPartFirst,     // the parts of L2 are changed in the order in which lookups ask them
  kPublishTooEarly,    // the applier publishes before L2 has the change
  kBypassForgotten,    // L2 missed a change and is asked all the same
  kL1BypassForgotten,  // the same for L1 and a raise of its watermarks
  kRefreshForgotten,   // L1 is not brought up to date
  kForeignRow,         // L2 gives a neighbour's row
  kMissIsAbsent,       // L2 takes what it lacks for absent
  kPositionAhead,      // L3's position outlives a crash that takes the rows written with it
};

// What the decorators share with the world that they are in.
struct DefectContext {
  Defect defect = Defect::kNone;
  std::function<void()> yield;            // other tasks may run here
  std::function<ApplyEpoch()> published;  // the epoch now
  std::function<Key()> draw_evicted;      // a key that the level may lose now
  std::function<bool()> evicts;           // whether it does
};

std::unique_ptr<DurableTable> Interleaved(std::unique_ptr<DurableTable> table,
                                          std::shared_ptr<const DefectContext> context);
std::unique_ptr<LossyTable> Interleaved(std::unique_ptr<LossyTable> table,
                                        std::shared_ptr<const DefectContext> context);

// Lookups in the decorated cache name tables that this function has made from its own.
std::unique_ptr<DeviceCacheTable> Interleaved(std::unique_ptr<DeviceCacheTable> table,
                                              std::shared_ptr<const DefectContext> context);
std::unique_ptr<DeviceCache> Interleaved(std::unique_ptr<DeviceCache> cache,
                                         std::shared_ptr<const DefectContext> context);

}  // namespace hps
