#include "tier/device_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

DeviceCacheQuery Good() {
  return {.space = MemorySpace::kDevice, .row_bytes = 8, .row_stride_bytes = 16};
}

void ExpectWrong(const DeviceCacheQuery& query, const std::string& why) {
  const absl::Status status = CheckDeviceQuery(query, MemorySpace::kDevice, "some cache");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(std::string(status.message()), HasSubstr("some cache: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

TEST(DeviceQueryTest, TakesWhatIsRight) {
  DeviceCacheQuery query = Good();
  EXPECT_EQ(CheckDeviceQuery(query, MemorySpace::kDevice, "some cache"), absl::OkStatus());
  query.convert_from = Dtype::kFloat16;
  EXPECT_EQ(CheckDeviceQuery(query, MemorySpace::kDevice, "some cache"), absl::OkStatus());
  query = Good();
  query.space = MemorySpace::kHost;
  EXPECT_EQ(CheckDeviceQuery(query, MemorySpace::kHost, "some cache"), absl::OkStatus());
}

TEST(DeviceQueryTest, SaysWhatIsWrong) {
  DeviceCacheQuery query = Good();
  for (const size_t bytes : {size_t{0}, kRowBytesMax + 1}) {
    query.row_bytes = bytes;
    ExpectWrong(query, "expected 1 to");
  }
  query = Good();
  query.row_stride_bytes = 7;
  ExpectWrong(query, "a stride of 7 bytes for rows of 8");
  const std::array<std::byte, 4> row{};
  query = Good();
  query.default_row = row;
  ExpectWrong(query, "a default row of 4 bytes, expected 8");
  query = Good();
  query.space = MemorySpace::kHost;
  ExpectWrong(query, "mix host and device");
}

TEST(DeviceQueryTest, ACallHasTheQueriesAndKeysThatItWasLeasedFor) {
  std::vector<DeviceCacheQuery> queries(kTablesPerCallMax, Good());
  EXPECT_EQ(CheckDeviceQueries({}, 0, "some cache"), absl::OkStatus());
  EXPECT_EQ(CheckDeviceQueries(queries, 0, "some cache"), absl::OkStatus());
  const auto expect = [&](size_t keys_leased, absl::StatusCode code, const std::string& why) {
    const absl::Status status = CheckDeviceQueries(queries, keys_leased, "some cache");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("some cache: " + why));
  };
  queries[0].key_count = queries[1].key_count = 5;
  EXPECT_EQ(CheckDeviceQueries(queries, 10, "some cache"), absl::OkStatus());
  expect(9, absl::StatusCode::kResourceExhausted, "more keys than the 9 leased");
  queries[1].key_count = SIZE_MAX;  // their sum wraps around
  expect(10, absl::StatusCode::kResourceExhausted, "more keys than the 10 leased");
  queries[1] = Good();
  queries[2].space = MemorySpace::kHost;
  expect(10, absl::StatusCode::kInvalidArgument, "the queries of one call mix host and device");
  queries.emplace_back(Good());
  expect(10, absl::StatusCode::kResourceExhausted,
         std::to_string(queries.size()) + " queries in a call, expected at most");
}

TEST(DeviceQueryTest, RowsThatCantBeConvertedInPlace) {
  DeviceCacheQuery query = Good();
  query.convert_from = Dtype::kBfloat16;
  query.row_stride_bytes = 15;
  ExpectWrong(query, "can't be converted to float32 in place");
  query = Good();
  query.convert_from = Dtype::kBfloat16;
  query.row_bytes = 7;
  ExpectWrong(query, "can't be converted to float32 in place");
  query = Good();
  query.convert_from = Dtype::kBfloat16;
  query.space = MemorySpace::kHost;
  const absl::Status status = CheckDeviceQuery(query, MemorySpace::kHost, "some cache");
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't be converted to float32 in place"));
}

}  // namespace
}  // namespace hps
