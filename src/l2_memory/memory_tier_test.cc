#include "l2_memory/memory_tier.h"

#include <gtest/gtest.h>

#include "testing/contracts/lossy_contract.h"

namespace hps {
namespace {

LossyTierFactory Factory(const std::string& name, const MemoryTierOptions& options) {
  return {.name = name, .make = [options] { return MakeMemoryTier(options); }};
}

INSTANTIATE_TEST_SUITE_P(Memory, LossyTierContract,
                         ::testing::Values(Factory("oldest", {.eviction = EvictionPolicy::kOldest}),
                                           Factory("least_used",
                                                   {.eviction = EvictionPolicy::kLeastUsed}),
                                           Factory("random", {.eviction = EvictionPolicy::kRandom}),
                                           Factory("small_pages", {.huge_pages = false}),
                                           Factory("many_partitions", {.partitions = 37})),
                         LossyTierName);

}  // namespace
}  // namespace hps
