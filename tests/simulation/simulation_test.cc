#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "testing/trials.h"
#include "tests/simulation/world.h"

namespace hps {
namespace {

// Both set by CMakeLists.txt.
uint64_t SeedCount() { return Trials(HPS_SIMULATION_SEED_COUNT); }
// At most: the search for a defect ends where it is found.
uint64_t DefectSeedCount() { return Trials(HPS_SIMULATION_DEFECT_SEED_COUNT); }

TEST(SimulationTest, KeepsItsInvariantsWhateverTheSeed) {
  const uint64_t seeds = SeedCount();
  const uint64_t first = TestSeed(1);
  SimulationCounts counts;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SimulatedWorld world({.seed = seed});
    const std::optional<std::string> violation = world.Run();
    ASSERT_FALSE(violation.has_value()) << *violation;
    counts += world.Counts();
  }
  if (seeds < 100) return;  // too few to be sure to meet everything
  for (size_t status = 0; status < kKeyStatusCount; ++status)
    EXPECT_GT(counts.positions.by_status[status], 0u) << kKeyStatusNames[status];
  EXPECT_GT(counts.l1_refused, 0u);
  EXPECT_GT(counts.l2_refused, 0u);
  EXPECT_GT(counts.l1_evictions, 0u);
  EXPECT_GT(counts.l2_clears, 0u);
  EXPECT_GT(counts.l1_clears, 0u);
  EXPECT_GT(counts.l1_faults, 0u);
  EXPECT_GT(counts.l1_hits_at_the_end, seeds);
  EXPECT_GT(counts.switches, seeds);
  EXPECT_GT(counts.restarts, seeds / 2);
  EXPECT_GT(counts.faults, 0u);
}

TEST(SimulationTest, KeepsItsInvariantsWithALevelTwoOfTwoParts) {
  const uint64_t seeds = SeedCount();
  const uint64_t first = TestSeed(1);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const std::optional<std::string> violation =
        SimulatedWorld({.seed = seed, .two_parts = true}).Run();
    ASSERT_FALSE(violation.has_value()) << *violation;
  }
}

TEST(SimulationTest, ASeedIsAHistory) {
  for (uint64_t seed : {1, 2}) {
    SimulatedWorld one({.seed = seed}), other({.seed = seed});
    EXPECT_EQ(one.Run(), other.Run());
    EXPECT_EQ(one.Counts().positions.by_status, other.Counts().positions.by_status);
  }
}

struct PlantedDefect {
  Defect defect;
  std::string name;
  std::string invariant;   // that it breaks, among others
  bool two_parts = false;  // of level 2

  friend void PrintTo(const PlantedDefect& planted, std::ostream* out) { *out << planted.name; }
};

class PlantedDefectTest : public testing::TestWithParam<PlantedDefect> {};

TEST_P(PlantedDefectTest, IsFound) {
  const uint64_t seeds = DefectSeedCount();
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto violation =
        SimulatedWorld(
            {.seed = seed, .defect = GetParam().defect, .two_parts = GetParam().two_parts})
            .Run();
    if (!violation.has_value()) continue;
    if (violation->find(GetParam().invariant) == std::string::npos) continue;
    RecordProperty("found_at_seed", static_cast<int>(seed));
    return;
  }
  if (HPS_SIMULATION_DEFECT_SEED_COUNT < HPS_SIMULATION_SEED_COUNT)
    GTEST_SKIP() << "not in the first " << seeds << " seeds; without sanitizers, it must be";
  FAIL() << "not found in " << seeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(
    Defects, PlantedDefectTest,
    testing::Values(PlantedDefect{Defect::kNoFenceL1, "NoFenceL1", "I2"},
                    PlantedDefect{Defect::kL1BypassForgotten, "L1BypassForgotten", "I2"},
                    PlantedDefect{Defect::kNoFenceL2, "NoFenceL2", "I2"},
                    PlantedDefect{Defect::kNoFenceL2, "NoFenceInTwoParts", "I2", true},
                    PlantedDefect{Defect::kFirstPartFirst, "FirstPartFirst", "I2", true},
                    PlantedDefect{Defect::kEpochAfterFetch, "EpochAfterFetch", "I2"},
                    PlantedDefect{Defect::kNoReprobe, "NoReprobe", "I2"},
                    PlantedDefect{Defect::kPublishTooEarly, "PublishTooEarly", "I2"},
                    PlantedDefect{Defect::kBypassForgotten, "BypassForgotten", "I2"},
                    PlantedDefect{Defect::kRefreshForgotten, "RefreshForgotten", "convergence"},
                    PlantedDefect{Defect::kPositionAhead, "PositionAhead", "I4"},
                    PlantedDefect{Defect::kForeignRow, "ForeignRow", "I1"},
                    PlantedDefect{Defect::kMissIsAbsent, "MissIsAbsent", "I3"}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace hps
