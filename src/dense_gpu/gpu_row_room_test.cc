#include "dense_gpu/gpu_row_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "l1_gpu/cuda_status.h"

namespace hps {
namespace {

class GpuRowRoomTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status gpu = CheckGpuDevice(0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.message();
  }

  // Brings `count` keys in pieces that are not aligned, and reads them from the device.
  static void CheckKeys(GpuRowRoom& room, size_t count, Key first) {
    std::vector<Key> keys(count);
    for (size_t i = 0; i < count; ++i) keys[i] = first + static_cast<Key>(i * i);
    std::vector<std::byte> memory(count * sizeof(Key) + 1);
    if (count > 0) std::memcpy(memory.data() + 1, keys.data(), count * sizeof(Key));
    std::vector<KeyPiece> pieces;
    for (size_t begin = 0; begin < count; begin += 65'537)
      pieces.push_back({.keys = memory.data() + 1 + begin * sizeof(Key),
                        .key_count = std::min<size_t>(65'537, count - begin)});
    const auto made = room.Make(pieces, 4096);
    ASSERT_TRUE(made.ok()) << made.status();
    const auto stream = static_cast<cudaStream_t>(room.stream().handle);
    std::vector<Key> there(count, -1);
    ASSERT_EQ(cudaMemcpyAsync(there.data(), made->keys, count * sizeof(Key), cudaMemcpyDeviceToHost,
                              stream),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(there, keys);
  }
};

// The keys of large batches go there in several copies.
TEST_F(GpuRowRoomTest, KeysOfBatchesOfAllSizesGoToTheDevice) {
  const auto room = GpuRowRoom::Create(0, nullptr);
  ASSERT_TRUE(room.ok()) << room.status();
  Key first = 0;
  for (const size_t count : {1, 33, 65'536, 131'073, 1'703'936, 26, 1'000'003})
    ASSERT_NO_FATAL_FAILURE(CheckKeys(**room, count, ++first));
}

TEST_F(GpuRowRoomTest, RoomsOfSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (Key i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      const auto room = GpuRowRoom::Create(0, nullptr);
      ASSERT_TRUE(room.ok()) << room.status();
      for (int run = 0; run < 5; ++run) CheckKeys(**room, 400'000, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hps
