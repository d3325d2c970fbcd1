#include "l2_layered/layered_tier.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/contracts/lossy_contract.h"
#include "testing/fakes/plain_tier.h"

namespace hps {
namespace {

// As PlainLossyTier, but it wants a budget.
class TightTier final : public LossyTier {
 public:
  LossyTraits traits() const override { return {}; }
  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                        Incarnation incarnation,
                                                        uint64_t bytes_max) override {
    if (bytes_max < 1000) return absl::ResourceExhaustedError("1000 bytes are needed");
    return PlainLossyTier().OpenTable(spec, incarnation, bytes_max);
  }
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    FetchEach(fetches, deadline);
  }
};

std::unique_ptr<LossyTier> MakeTier() {
  return MakeLayeredTier(std::make_unique<TightTier>(), std::make_unique<PlainLossyTier>());
}

INSTANTIATE_TEST_SUITE_P(Layered, LossyTierContract,
                         ::testing::Values(LossyTierFactory{
                             .name = "layered", .make = MakeTier, .refuses_little = false}),
                         LossyTierName);

TEST(LayeredTierTest, ATableWithoutBudgetHasTheFarPartAlone) {
  const auto tier = MakeTier();
  EXPECT_TRUE(tier->traits().layered);
  const TableSpec spec = ContractSpec(64);
  EXPECT_TRUE((*tier->OpenTable(spec, 1, 1000))->has_near_part());
  EXPECT_FALSE((*tier->OpenTable(spec, 1, 999))->has_near_part());
}

}  // namespace
}  // namespace hps
