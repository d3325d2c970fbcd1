#include "testing/fakes/plain_tier.h"

#include <gtest/gtest.h>

#include "testing/contracts/lossy_contract.h"

namespace hps {
namespace {

INSTANTIATE_TEST_SUITE_P(Plain, LossyTierContract,
                         ::testing::Values(LossyTierFactory{
                             .name = "plain",
                             .make = [] { return std::make_unique<PlainLossyTier>(); },
                             .refuses_little = false}),
                         LossyTierName);

}  // namespace
}  // namespace hps
