// Decorators that make a tier fail as planned (testing/faults/tier_faults.h), for tests: the levels
// around it must keep their guarantees, and checks must detect dropped and corrupt rows.
//
// `faults` must outlive the decorated tier or store and its tables. Decorated tiers are as
// thread-safe as the real ones.
#pragma once

#include <memory>

#include "testing/faults/tier_faults.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"

namespace hps {

std::unique_ptr<LossyTable> WithFaults(std::unique_ptr<LossyTable> table, TierFaults* faults);
std::unique_ptr<LossyTier> WithFaults(std::unique_ptr<LossyTier> tier, TierFaults* faults);
std::unique_ptr<DurableTable> WithFaults(std::unique_ptr<DurableTable> table, TierFaults* faults);
std::unique_ptr<DurableStore> WithFaults(std::unique_ptr<DurableStore> store, TierFaults* faults);

}  // namespace hps
