#include "l2_redis/hugectr_names.h"

#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

TEST(HugectrNamesTest, NamesOfHashes) {
  EXPECT_EQ(HugectrHashName("dlrm/user", 7), "hps_et{hps_et.dlrm.user/p7}v");
  for (const uint32_t partition : {0U, 7U, 10U, 4095U, UINT32_MAX}) {
    EXPECT_EQ(ParseHugectrHashName(HugectrHashName("m-1/t_2", partition)),
              (HugectrHash{"m-1/t_2", partition}));
  }
}

TEST(HugectrNamesTest, OtherNamesAreNone) {
  for (const char* name :
       {"", "hps_et{}v", "hps_et{hps_et.m.t/p0}t", "hps_et{hps_et.m.t/p0}", "hps_et{hps_et.m.t}v",
        "hps_et{hps_et.m.t/p}v", "hps_et{hps_et.m.t/p-1}v", "hps_et{hps_et.m.t/p00}v",
        "hps_et{hps_et.m.t/p4294967296}v", "hps_et{hps_et.m/p0}v", "hps_et{m.t/p0}v",
        "hps_et{hps_et.m.t/p1 }v", "xhps_et{hps_et.m.t/p1}v"}) {
    EXPECT_EQ(ParseHugectrHashName(name), std::nullopt) << name;
  }
}

// Computed by another program from the published mixer.
TEST(HugectrNamesTest, AKeysPartitionIsThatOfHugectr) {
  const std::vector<Key> keys = {0, 1, 2, 3, 12345, -1, Key{1} << 62, 4294967295};
  std::vector<uint32_t> of_8, of_13;
  for (const Key key : keys) {
    of_8.push_back(HugectrPartition(key, 8));
    of_13.push_back(HugectrPartition(key, 13));
    EXPECT_EQ(HugectrPartition(key, 1), 0u);
  }
  EXPECT_EQ(of_8, (std::vector<uint32_t>{0, 3, 6, 0, 3, 4, 2, 3}));
  EXPECT_EQ(of_13, (std::vector<uint32_t>{0, 7, 0, 11, 9, 9, 7, 1}));
}

}  // namespace
}  // namespace hps
