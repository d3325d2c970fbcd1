#include "server/grpc_codec/response_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <thread>

namespace hps::server {
namespace {

std::shared_ptr<ResponseBufferPool> MakePool(size_t kept_bytes_max) {
  return std::make_shared<ResponseBufferPool>(kept_bytes_max);
}

TEST(ResponseBufferTest, LendsAtLeastWhatIsAsked) {
  const auto pool = MakePool(1 << 20);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097},
                             size_t{131072}, size_t{131073}}) {
    ResponseBuffer* buffer = pool->Lend(bytes);
    ASSERT_NE(buffer, nullptr);
    EXPECT_GE(buffer->capacity(), bytes);
    EXPECT_LE(buffer->capacity(), std::max<size_t>(4096, 2 * bytes));
    EXPECT_EQ(std::bit_cast<uintptr_t>(buffer->data()) % 64, 0U);
    buffer->DropReference();
  }
}

TEST(ResponseBufferTest, ComesBackWithItsLastReferenceAndIsLentAgain) {
  const auto pool = MakePool(1 << 20);
  ResponseBuffer* buffer = pool->Lend(5000);
  buffer->AddReferences(2);
  buffer->DropReference();
  buffer->DropReference();
  EXPECT_EQ(pool->kept_bytes(), 0U);
  buffer->DropReference();
  EXPECT_EQ(pool->kept_bytes(), 8192U);
  ResponseBuffer* again = pool->Lend(6000);
  EXPECT_EQ(again, buffer);
  EXPECT_EQ(pool->kept_bytes(), 0U);
  again->DropReference();
}

TEST(ResponseBufferTest, KeepsNoMoreThanItsMaximum) {
  const auto pool = MakePool(8192);
  ResponseBuffer* first = pool->Lend(4096);
  ResponseBuffer* second = pool->Lend(4096);
  ResponseBuffer* third = pool->Lend(4096);
  for (ResponseBuffer* buffer : {first, second, third}) buffer->DropReference();
  EXPECT_EQ(pool->kept_bytes(), 8192U);
}

TEST(ResponseBufferTest, SaysWhenThereIsNoMemory) {
  const auto pool = MakePool(0);
  EXPECT_EQ(pool->Lend(size_t{1} << 50), nullptr);
}

// The network may let go of an answer after the server has gone.
TEST(ResponseBufferTest, OutlivesItsPoolsOwner) {
  auto pool = MakePool(1 << 20);
  ResponseBuffer* buffer = pool->Lend(100);
  pool.reset();
  std::memset(buffer->data(), 1, buffer->capacity());
  buffer->DropReference();
}

TEST(ResponseBufferTest, ConcurrentBorrowersNeverShareABuffer) {
  const auto pool = MakePool(1 << 20);
  std::atomic<int> shared_count = 0;
  const auto borrow = [&](int stamp) {
    for (int i = 0; i < 5'000; ++i) {
      ResponseBuffer* buffer = pool->Lend(4096);
      std::memset(buffer->data(), stamp, 4096);
      for (size_t k = 0; k < 4096; k += 64) shared_count += buffer->data()[k] != std::byte(stamp);
      buffer->AddReferences(1);
      buffer->DropReference();
      buffer->DropReference();
    }
  };
  std::thread a(borrow, 1), b(borrow, 2), c(borrow, 3);
  for (std::thread* thread : {&a, &b, &c}) thread->join();
  EXPECT_EQ(shared_count, 0);
}

}  // namespace
}  // namespace hps::server
