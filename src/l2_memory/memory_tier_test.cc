#include "l2_memory/memory_tier.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// All fetch functions that this machine can run, not only the fastest one.
std::vector<LossyTierFactory> FetchFactories() {
  std::vector<LossyTierFactory> factories = {Factory("portable", {.fetch = FetchPortable})};
  if (FetchAvx2() != nullptr) factories.push_back(Factory("avx2", {.fetch = FetchAvx2()}));
  if (FetchAvx512() != nullptr) factories.push_back(Factory("avx512", {.fetch = FetchAvx512()}));
  return factories;
}

INSTANTIATE_TEST_SUITE_P(MemoryFetch, LossyTierContract, ::testing::ValuesIn(FetchFactories()),
                         LossyTierName);

}  // namespace
}  // namespace hps
