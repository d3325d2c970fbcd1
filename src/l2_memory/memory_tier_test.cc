#include "l2_memory/memory_tier.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/contracts/lossy_contract.h"
#include "testing/faults/fault_tier.h"

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

// A tier that asks its tables one after the other.
TEST(MemoryTierTest, ATableThatFailsLeavesTheOthersTheirAnswers) {
  const auto tier = MakeMemoryTier({.huge_pages = false});
  TierFaults faults;
  faults.Plan(TierOperation::kFetch, {.status = absl::UnavailableError("planned"), .times = 1});
  std::vector<std::unique_ptr<LossyTable>> tables;
  for (uint64_t t = 0; t < 3; ++t) {
    auto table = *tier->OpenTable(ContractSpec(64), t + 1, uint64_t{1} << 20);
    ContractRows rows(t, {1, 2}, 64, 5);
    ASSERT_TRUE(table->Insert(rows.batch(), 0).ok());
    tables.push_back(t == 1 ? WithFaults(std::move(table), &faults) : std::move(table));
  }
  for (const bool fails : {true, false}) {
    std::vector<std::unique_ptr<ContractAnswer>> answers;
    std::vector<TableFetch> fetches;
    for (const auto& table : tables) {
      answers.push_back(std::make_unique<ContractAnswer>(std::vector<Key>{1, 2, 3}, 64));
      fetches.push_back({.table = table.get(), .batch = answers.back()->batch()});
    }
    tier->Fetch(fetches, kNoDeadline);
    for (size_t t = 0; t < 3; ++t) {
      answers[t]->Take(fetches[t].counts);
      EXPECT_EQ(answers[t]->status().ok(), !(fails && t == 1));
      if (!answers[t]->status().ok()) continue;
      EXPECT_TRUE(answers[t]->IsRowOf(0, t, 5) && answers[t]->IsRowOf(1, t, 5)) << t;
      EXPECT_EQ(answers[t]->outcome(2), FetchOutcome::kMiss);
    }
  }
}

}  // namespace
}  // namespace hps
