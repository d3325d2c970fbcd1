// Level 2 on rows that HugeCTR HPS wrote into Redis, under changes of level 3.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "l2_redis/test_hugectr.h"
#include "serving/current_rows.h"
#include "tier/redis_tier.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

using World = UpdateWorld;

class HugectrChangeTest : public ::testing::Test {
 protected:
  HugectrChangeTest() {
    RedisConfig config = redis_.Config();
    config.hugectr_import_id = "as-exported";
    TableInfo info = (*world_.store.OpenTable("m/t"))->Info();
    info.import_id = config.hugectr_import_id;
    const auto tier = MakeRedisTier(config);
    EXPECT_TRUE(tier.ok()) << tier.status();
    auto opened = tier->open_shared({info}, true);
    EXPECT_TRUE(opened.ok()) << opened.status();
    world_.Load(std::move(opened->table));
  }

  // Puts a row of which every element is `value` where HugeCTR puts it.
  void Put(Key key, float value) {
    const std::string hash = HugectrHashName("m/t", HugectrPartition(key, 8));
    const std::vector<std::byte> row = World::Rows(1, value);
    redis_.Ask(0, {"HSET", hash, HugectrTestKey(key), AsText(std::span(row))});
  }
  void Apply(Key key, float value, uint64_t offset) {
    std::vector<std::byte> rows = World::Rows(1, value);
    const Version version = VersionAt(1, offset);
    const StreamPosition position = {.offset = offset + 1};
    const DurableWrite write = {
        .upserts = {.keys = {&key, 1}, .rows = World::View(rows), .versions = {&version, 1}},
        .positions = {&position, 1}};
    const absl::Status applied = applier_.ApplyStream(
        {.incarnation = world_.live().incarnation(), .write = write}, World::Soon());
    EXPECT_TRUE(applied.ok()) << applied;
  }
  // From level 2, or from level 3 what level 2 lacks.
  float Current(Key key) {
    std::vector<std::byte> row(World::kRowBytes);
    FetchOutcome outcome = FetchOutcome::kMiss;
    const absl::Status fetched = FetchCurrentRows(
        world_.live(), {.keys = {&key, 1}, .rows = World::View(row), .outcomes = {&outcome, 1}},
        World::Soon());
    EXPECT_TRUE(fetched.ok()) << fetched;
    EXPECT_EQ(outcome, FetchOutcome::kHit);
    return LoadLittleEndian<float>(row.data());
  }
  bool IsBypassed() { return world_.registry.FindOrAdd("m").Statistics()[0].l2_bypassed; }

  TestRedis redis_{{}};
  World world_;
  TableApplier applier_{"m/t", world_.registry, world_.store};
};

// The old row in Redis must not take back what a lookup has seen in level 3: neither of the key
// that changed first, nor of one that changes later, nor when level 1 has been refreshed.
TEST_F(HugectrChangeTest, AChangeIsNeverTakenBack) {
  for (const Key key : {1, 2}) Put(key, 5);
  EXPECT_EQ(Current(1), 5);
  EXPECT_FALSE(IsBypassed());
  Apply(1, 6, 1);
  EXPECT_EQ(Current(1), 6);
  EXPECT_TRUE(world_.live().l2_health().quarantined());
  EXPECT_TRUE(IsBypassed());
  for (uint64_t offset = 2; offset < 5; ++offset) {
    ASSERT_TRUE(applier_.RefreshChanged(World::Soon()).ok());
    EXPECT_FALSE(applier_.needs_refresh());
    Apply(2, static_cast<float>(5 + offset), offset);
    EXPECT_EQ(Current(1), 6);
    EXPECT_EQ(Current(2), static_cast<float>(5 + offset));
    EXPECT_TRUE(IsBypassed());
  }
}

}  // namespace
}  // namespace hps
