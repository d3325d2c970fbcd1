#include "tier/foreign_store.h"

#include <gtest/gtest.h>

#include "hps/table_spec.h"

namespace hps {
namespace {

TEST(ForeignStoreTest, ATagIsAModelAndATable) {
  EXPECT_EQ(TableOfHugectrTag("hps_et.dlrm.user"), "dlrm/user");
  EXPECT_EQ(TableOfHugectrTag("hps_et.m-1.t_2"), "m-1/t_2");
  for (const char* tag : {"", "hps_et", "hps_et.", "hps_et.m", "hps_et.m.", "hps_et..t", "m.t",
                          "hps_et.m.a/b", "xhps_et.m.t"}) {
    EXPECT_EQ(TableOfHugectrTag(tag), std::nullopt) << tag;
  }
}

TEST(ForeignStoreTest, AUrlOfRedisHasNoPassword) {
  EXPECT_TRUE(IsRedisUrl("redis://h:1"));
  EXPECT_TRUE(IsRedisUrl("rediss://h"));
  EXPECT_FALSE(IsRedisUrl("/redis://h:1"));
  EXPECT_TRUE(CheckRedisUrlHasNoPassword("redis://h:1/").ok());
  for (const char* url : {"redis://user:secret@h:1", "rediss://h:1?password=secret"}) {
    const absl::Status status = CheckRedisUrlHasNoPassword(url);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_EQ(std::string(status.message()).find("secret"), std::string::npos);
  }
}

TEST(ForeignStoreTest, KeysOf4And8BytesAndRowsOfFloat32) {
  EXPECT_TRUE(CheckHugectrSizes("x", 8, 4).ok());
  EXPECT_TRUE(CheckHugectrSizes("x", 4, 4 * kDimMax).ok());
  for (const auto& [key_bytes, row_bytes] :
       {std::pair<size_t, size_t>{7, 4}, {0, 4}, {16, 4}, {8, 0}, {8, 6}, {8, 4 * kDimMax + 4}}) {
    const absl::Status status = CheckHugectrSizes("x", key_bytes, row_bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key_bytes << " " << row_bytes;
    EXPECT_EQ(std::string(status.message()).find("x: expected "), 0u);
  }
  EXPECT_EQ(HugectrKey(std::string_view("\xff\xff\xff\xff", 4)), 0xffffffff);
  EXPECT_EQ(HugectrKey(std::string_view("\xfe\xff\xff\xff\xff\xff\xff\xff", 8)), -2);
}

}  // namespace
}  // namespace hps
