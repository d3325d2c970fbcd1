#include "server/net/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/poison.h"

namespace hps::server {
namespace {

using enum BufferPool::Use;

TEST(BufferPoolTest, LendsPowersOfTwoOnCacheLines) {
  BufferPool pool({.lent_bytes_max = 1 << 20, .kept_bytes_max = 1 << 20});
  for (const size_t bytes : {0, 1, 31, 4095, 4096, 4097, 8192, 8193, 100'000}) {
    const auto lease = pool.Acquire(bytes, kAnswer);
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
  BufferPool pool({.lent_bytes_max = 16 << 10});
  auto first = pool.Acquire(8 << 10, kAnswer);
  auto second = pool.Acquire(8 << 10, kAnswer);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(pool.Acquire(1, kAnswer).status().code(), absl::StatusCode::kResourceExhausted);
  first->Release();
  EXPECT_TRUE(pool.Acquire(1, kAnswer).ok());
  EXPECT_EQ(pool.Acquire(SIZE_MAX / 2, kAnswer).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.lent_bytes(), 8u << 10);
}

TEST(BufferPoolTest, LendsTheSameMemoryAgain) {
  BufferPool pool({.lent_bytes_max = 1 << 20, .kept_bytes_max = 8 << 10});
  const std::byte* first = nullptr;
  {
    const auto lease = *pool.Acquire(8000, kAnswer);
    first = lease.bytes().data();
  }
  EXPECT_EQ(pool.Acquire(5000, kAnswer)->bytes().data(), first);
}

// Catches: requests that wait, and leave no memory for the answers to those that are looked up.
TEST(BufferPoolTest, RequestsLeaveRoomForAnswersAndLargeOnesForSmallOnes) {
  constexpr size_t kLarge = size_t{64} << 10;
  BufferPool pool({.lent_bytes_max = 5 * kLarge,
                   .request_bytes_max = 3 * kLarge,
                   .large_request_bytes_max = 2 * kLarge,
                   .kept_bytes_max = 0});
  std::vector<BufferPool::Lease> requests;
  for (int i = 0; i < 2; ++i) requests.push_back(*pool.Acquire(kLarge, kRequest));
  EXPECT_EQ(pool.Acquire(kLarge, kRequest).status().code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 2; ++i) requests.push_back(*pool.Acquire(BufferPool::kSmallBytes, kRequest));
  EXPECT_EQ(pool.Acquire(1, kRequest).status().code(), absl::StatusCode::kResourceExhausted);
  BufferPool::Lease answer = *pool.Acquire(kLarge, kAnswer);
  const BufferPool::Lease other = *pool.Acquire(kLarge, kAnswer);
  EXPECT_FALSE(pool.Acquire(1, kAnswer).ok());
  // What requests give back is theirs again, also where it was moved and where an answer has gone.
  answer.Release();
  requests.resize(1);
  BufferPool::Lease moved;
  moved = *pool.Acquire(kLarge - 1, kRequest);
  EXPECT_FALSE(pool.Acquire(kLarge, kRequest).ok());
  EXPECT_TRUE(pool.Acquire(1, kRequest).ok());
  moved.Release();
  requests.clear();
  EXPECT_EQ(pool.lent_bytes(), kLarge);
  EXPECT_TRUE(pool.Acquire(2 * kLarge, kRequest).ok());
  EXPECT_EQ(pool.Acquire(2 * kLarge + 1, kRequest).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(BufferPoolTest, LeasesMove) {
  BufferPool pool({.lent_bytes_max = 1 << 20});
  BufferPool::Lease lease = *pool.Acquire(1, kAnswer);
  BufferPool::Lease other = std::move(lease);
  lease = *pool.Acquire(1, kAnswer);
  EXPECT_EQ(pool.lent_bytes(), 8u << 10);
  lease = std::move(other);
  EXPECT_EQ(pool.lent_bytes(), 4u << 10);
  lease.Release();
  EXPECT_TRUE(lease.empty());
  EXPECT_EQ(pool.lent_bytes(), 0u);
}

// Catches: a view of memory that has been given back, and may be another request's.
TEST(BufferPoolDeathTest, MemoryThatWasGivenBackIsNotToBeTouched) {
  if (!kPoisonsMemory) GTEST_SKIP() << "without address sanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  BufferPool pool({.lent_bytes_max = 1 << 20, .kept_bytes_max = 8 << 10});
  BufferPool::Lease lease = *pool.Acquire(8000, kAnswer);
  const std::span<std::byte> bytes = lease.bytes();
  lease.Release();
  EXPECT_DEATH(bytes.front() = std::byte{1}, "use-after-poison");
  EXPECT_DEATH(bytes.back() = std::byte{1}, "use-after-poison");
  lease = *pool.Acquire(8000, kAnswer);
  ASSERT_EQ(lease.bytes().data(), bytes.data());
  std::memset(bytes.data(), 1, bytes.size());
}

}  // namespace
}  // namespace hps::server
