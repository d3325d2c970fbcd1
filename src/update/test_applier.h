// Fixtures for tests of a table's applier and of its parts.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "update/test_update_world.h"

namespace hps {

class ApplierTest : public ::testing::Test {
 protected:
  absl::Status Upsert(const std::vector<Key>& keys, float value) {
    return UpdateWorld::Upsert(applier_, keys, value);
  }
  absl::Status Delete(const std::vector<Key>& keys) { return UpdateWorld::Delete(applier_, keys); }
  // Records of a stream up to `offset`.
  absl::Status Stream(const std::vector<Key>& keys, float value, uint64_t offset) {
    std::vector<std::byte> rows = UpdateWorld::Rows(keys.size(), value);
    const std::vector<Version> versions(keys.size(), VersionAt(1, offset));
    const StreamPosition position = {.offset = offset + 1};
    return ApplyStream(
        applier_, {.upserts = {.keys = keys, .rows = UpdateWorld::View(rows), .versions = versions},
                   .positions = {&position, 1}});
  }
  absl::Status ApplyStream(TableApplier& applier, const DurableWrite& write) {
    return applier.ApplyStream(
        {.incarnation = (*world_.store.OpenTable("m/t"))->incarnation(), .write = write},
        UpdateWorld::Soon());
  }

  // Level 3 alone has the row: only a full refresh brings it to level 1.
  void WriteBehindLevel1(Key key, float value) {
    std::vector<std::byte> rows = UpdateWorld::Rows(1, value);
    const DurableWrite write = {.upserts = {.keys = {&key, 1}, .rows = UpdateWorld::View(rows)}};
    ASSERT_TRUE(world_.live().l3().Write(write).ok());
    ASSERT_TRUE(world_.live().l2()[0].table().Clear().ok());
  }

  UpdateWorld world_;
  TableApplier applier_{"m/t", world_.registry, world_.store};
};

// With the number of the device that fails; the other one is healthy.
class TwoDevicesTest : public ApplierTest, public ::testing::WithParamInterface<size_t> {
 protected:
  TwoDevicesTest() {
    world_.LoadOnTwoDevices();
    EXPECT_TRUE(Stream({1}, 1, 1).ok());
    world_.Promote({1});
  }
  LevelHealth& health(size_t cache) { return world_.live().l1_health(cache); }

  const size_t failing_ = GetParam();
  const size_t healthy_ = 1 - failing_;
  TierFaults& faults_ = failing_ == 0 ? world_.l1_faults : world_.other_l1_faults;
  TierFaults& healthy_faults_ = failing_ == 0 ? world_.other_l1_faults : world_.l1_faults;
};

}  // namespace hps
