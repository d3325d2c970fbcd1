#include "gpu/virtual_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gpu/cuda_status.h"
#include "gpu/test_gpu.h"

namespace hps {
namespace {

using VirtualMemoryTest = GpuTest;

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

TEST_F(VirtualMemoryTest, GrowsInPlaceAndKeepsWhatItHas) {
  VirtualMemory memory = *VirtualMemory::Reserve(0, uint64_t{1} << 40);
  EXPECT_EQ(memory.bytes(), 0U);
  ASSERT_TRUE(memory.GrowTo(1, "a test").ok());
  std::byte* const data = memory.data();
  EXPECT_EQ(memory.bytes(), 2 * kMebibyte);
  ASSERT_EQ(cudaMemset(data, 7, memory.bytes()), cudaSuccess);
  ASSERT_TRUE(memory.GrowTo(150 * kMebibyte, "a test").ok());
  EXPECT_EQ(memory.data(), data);
  EXPECT_GE(memory.bytes(), 150 * kMebibyte);
  ASSERT_EQ(cudaMemset(data + 2 * kMebibyte, 8, memory.bytes() - 2 * kMebibyte), cudaSuccess);
  std::vector<unsigned char> found(3 * kMebibyte);
  ASSERT_EQ(cudaMemcpy(found.data(), data, found.size(), cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(found[0], 7);
  EXPECT_EQ(found[2 * kMebibyte - 1], 7);
  EXPECT_EQ(found[2 * kMebibyte], 8);
  const VirtualMemory moved = std::move(memory);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(memory.data(), nullptr);  // NOLINT(bugprone-use-after-move)
}

TEST_F(VirtualMemoryTest, WithoutMemoryItStaysAsItWas) {
  size_t free_before = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  VirtualMemory memory = *VirtualMemory::Reserve(0, uint64_t{1} << 44);
  ASSERT_TRUE(memory.GrowTo(kMebibyte, "a test").ok());
  const absl::Status status = memory.GrowTo(uint64_t{2} * total, "a test");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(std::to_string(2 * total) + " bytes of a test"));
  EXPECT_EQ(memory.bytes(), 2 * kMebibyte);
  EXPECT_EQ(cudaMemset(memory.data(), 1, memory.bytes()), cudaSuccess);
  size_t free_after = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  EXPECT_NEAR(static_cast<double>(free_after), static_cast<double>(free_before), 64e6);
}

TEST_F(VirtualMemoryTest, RefusesMoreThanItsAddresses) {
  VirtualMemory memory = *VirtualMemory::Reserve(0, 64 * kMebibyte);
  EXPECT_EQ(memory.GrowTo(65 * kMebibyte, "a test").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(memory.GrowTo(64 * kMebibyte, "a test").ok());
}

}  // namespace
}  // namespace hps
