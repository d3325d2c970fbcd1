#include "server/net/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace hps::server {
namespace {

TEST(BufferPoolTest, LendsPowersOfTwoOnCacheLines) {
  BufferPool pool(1 << 20, 1 << 20);
  for (const size_t bytes : {0, 1, 31, 4095, 4096, 4097, 8192, 8193, 100'000}) {
    const auto lease = pool.Acquire(bytes);
    ASSERT_TRUE(lease.ok());
    EXPECT_GE(lease->bytes().size(), bytes);
    EXPECT_LE(lease->bytes().size(), std::max<size_t>(4096, bytes * 2));
    void* at = lease->bytes().data();
    size_t space = 1;
    EXPECT_NE(std::align(64, 1, at, space), nullptr);
    EXPECT_EQ(at, lease->bytes().data());
    std::memset(lease->bytes().data(), 1, lease->bytes().size());
  }
  EXPECT_EQ(pool.lent_bytes(), 0u);
}

TEST(BufferPoolTest, RefusesBeyondItsLimit) {
  BufferPool pool(16 << 10, 0);
  auto first = pool.Acquire(8 << 10);
  auto second = pool.Acquire(8 << 10);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(pool.Acquire(1).status().code(), absl::StatusCode::kResourceExhausted);
  first->Release();
  EXPECT_TRUE(pool.Acquire(1).ok());
  EXPECT_EQ(pool.Acquire(SIZE_MAX / 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.lent_bytes(), 8u << 10);
}

TEST(BufferPoolTest, LendsTheSameMemoryAgain) {
  BufferPool pool(1 << 20, 8 << 10);
  const std::byte* first = nullptr;
  {
    const auto lease = *pool.Acquire(8000);
    first = lease.bytes().data();
  }
  EXPECT_EQ(pool.Acquire(5000)->bytes().data(), first);
}

TEST(BufferPoolTest, LeasesMove) {
  BufferPool pool(1 << 20, 0);
  BufferPool::Lease lease = *pool.Acquire(1);
  BufferPool::Lease other = std::move(lease);
  lease = *pool.Acquire(1);
  EXPECT_EQ(pool.lent_bytes(), 8u << 10);
  lease = std::move(other);
  EXPECT_EQ(pool.lent_bytes(), 4u << 10);
  lease.Release();
  EXPECT_TRUE(lease.empty());
  EXPECT_EQ(pool.lent_bytes(), 0u);
}

}  // namespace
}  // namespace hps::server
