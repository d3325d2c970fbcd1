#include "testing/host_device_cache/host_cache.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "testing/contracts/device_cache_contract.h"

namespace hps {
namespace {

DeviceCacheContractSetup SetupWith(const std::string& name, MemorySpace space) {
  return {.name = name,
          .make_cache =
              [](const DeviceCacheContractOptions& options) {
                return MakeHostCache({.device = 0,
                                      .bytes_max = options.bytes_max,
                                      .calls_max = options.calls_max,
                                      .call_keys_max = options.call_keys_max,
                                      .call_staging_bytes = options.call_staging_bytes});
              },
          .make_memory = [space] { return std::make_unique<PlainCacheMemory>(space); }};
}

INSTANTIATE_TEST_SUITE_P(HostCache, DeviceCacheContractTest,
                         testing::Values(SetupWith("HostMemory", MemorySpace::kHost),
                                         SetupWith("DeviceMemory", MemorySpace::kDevice)),
                         [](const auto& instance) { return instance.param.name; });

TEST(HostCacheTest, SaysWhenTheCallsMemoryCantBeHad) {
  for (size_t staging_bytes : {size_t{1} << 60, SIZE_MAX}) {
    EXPECT_EQ(MakeHostCache({.calls_max = 4, .call_staging_bytes = staging_bytes}).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST(HostCacheTest, SaysWhenATablesMemoryCantBeHad) {
  auto cache = MakeHostCache({.bytes_max = UINT64_MAX});
  ASSERT_TRUE(cache.ok()) << cache.status();
  const absl::Status status = (*cache)->OpenTable(64, uint64_t{1} << 60).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // The reservation was given back.
  EXPECT_TRUE((*cache)->OpenTable(64, 1 << 20).ok());
}

TEST(HostCacheTest, TellsItsDevice) { EXPECT_EQ((*MakeHostCache({.device = 3}))->device(), 3); }

}  // namespace
}  // namespace hps
