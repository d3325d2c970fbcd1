#include "l2_layered/layered_tier.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

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

// A far tier that notes which tables it is asked for.
class NotedTier final : public LossyTier {
 public:
  explicit NotedTier(std::vector<size_t>* asked) : asked_(asked) {}

  LossyTraits traits() const override { return {}; }
  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec&, Incarnation,
                                                        uint64_t) override {
    return std::make_unique<PlainLossyTable>();
  }
  void Fetch(std::span<TableFetch> fetches, Deadline deadline) override {
    asked_->push_back(fetches.size());
    FetchEach(fetches, deadline);
  }

 private:
  std::vector<size_t>* const asked_;
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

TEST(LayeredTierTest, ATableThatTheNearPartAnswersDoesNotWaitForTheFarTier) {
  std::vector<size_t> asked;
  std::vector<size_t> calls_before;
  const auto tier =
      MakeLayeredTier(std::make_unique<PlainLossyTier>(), std::make_unique<NotedTier>(&asked));
  const auto held = *tier->OpenTable(ContractSpec(64), 1, 1000);
  const auto lacking = *tier->OpenTable(ContractSpec(64), 2, 1000);
  ContractRows rows(1, {5}, 64, 3);
  ASSERT_TRUE(held->Insert(rows.batch(), 0).ok());
  ContractAnswer first({5}, 64);
  ContractAnswer second({5}, 64);
  std::vector<TableFetch> fetches(2);
  fetches[0].table = held.get();
  fetches[0].batch = first.batch();
  fetches[0].on_answered_first = [&] { calls_before.push_back(asked.size()); };
  fetches[1].table = lacking.get();
  fetches[1].batch = second.batch();
  fetches[1].on_answered_first = [] { ADD_FAILURE() << "the far tier is to be asked"; };
  tier->Fetch(fetches, kNoDeadline);
  EXPECT_EQ(asked, std::vector<size_t>{1});
  EXPECT_EQ(fetches[0].counts->hits, 1u);
  EXPECT_EQ(fetches[1].counts->misses, 1u);
  tier->Fetch(std::span(fetches).first(1), kNoDeadline);
  EXPECT_EQ(asked, std::vector<size_t>{1});
  EXPECT_EQ(calls_before, (std::vector<size_t>{0, 1}));
}

}  // namespace
}  // namespace hps
