#include "network/gpu/gpu_row_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/byte_budget.h"
#include "gpu/cuda_status.h"

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
  const auto room = GpuRowRoom::Create({.keys_max = 1'703'936}, nullptr);
  ASSERT_TRUE(room.ok()) << room.status();
  Key first = 0;
  for (const size_t count : {1, 33, 65'536, 131'073, 1'703'936, 26, 1'000'003})
    ASSERT_NO_FATAL_FAILURE(CheckKeys(**room, count, ++first));
}

// Catches: rows of a part in the memory of another one that the network has not read.
TEST_F(GpuRowRoomTest, PartsHaveRowsOfTheirOwnThatTheNetworkReadsOnAnotherStream) {
  const auto made = GpuRowRoom::Create({.row_bytes = uint64_t{300} << 20}, nullptr);
  ASSERT_TRUE(made.ok()) << made.status();
  GpuRowRoom& room = **made;
  const auto lookups = static_cast<cudaStream_t>(room.stream().handle);
  const uint64_t bytes = room.part_row_bytes();
  EXPECT_EQ(bytes, uint64_t{100} << 20);
  std::vector<std::vector<std::byte>> read(RowRoom::kPartsMax, std::vector<std::byte>(bytes));
  for (int batch = 0; batch < 2; ++batch) {
    std::vector<std::byte*> rows;
    for (size_t part = 0; part < 2 * RowRoom::kPartsMax; ++part) {
      const auto part_room = room.MakePart({}, bytes, part);
      ASSERT_TRUE(part_room.ok()) << part_room.status();
      rows.push_back(part_room->rows);
      ASSERT_EQ(cudaMemsetAsync(part_room->rows, static_cast<int>(part + 1), bytes, lookups),
                cudaSuccess);
      const auto network = room.NetworkStream();
      ASSERT_TRUE(network.ok()) << network.status();
      ASSERT_NE(*network, lookups);
      std::vector<std::byte>& to = read[part % RowRoom::kPartsMax];
      ASSERT_EQ(
          cudaMemcpyAsync(to.data(), part_room->rows, bytes, cudaMemcpyDeviceToHost, *network),
          cudaSuccess);
      if (part < RowRoom::kPartsMax) continue;
      ASSERT_EQ(cudaStreamSynchronize(*network), cudaSuccess);
      EXPECT_EQ(to.front(), static_cast<std::byte>(part + 1));
      EXPECT_EQ(to.back(), static_cast<std::byte>(part + 1));
      EXPECT_EQ(rows[part], rows[part - RowRoom::kPartsMax]);
    }
    EXPECT_NE(rows[0], rows[1]);
    EXPECT_NE(rows[0], rows[2]);
    EXPECT_NE(rows[1], rows[2]);
    ASSERT_NO_FATAL_FAILURE(CheckKeys(room, 1000, batch));
  }
}

TEST_F(GpuRowRoomTest, TakesNoMoreThanItHasRoomFor) {
  const auto made = GpuRowRoom::Create({.keys_max = 100, .row_bytes = 3 * 1024 + 700}, nullptr);
  ASSERT_TRUE(made.ok()) << made.status();
  GpuRowRoom& room = **made;
  EXPECT_EQ(room.part_row_bytes(), uint64_t{1024});
  const std::vector<Key> keys(101, 7);
  const auto bytes = std::as_bytes(std::span(keys)).data();
  const KeyPiece most[] = {{.keys = bytes, .key_count = 60}, {.keys = bytes, .key_count = 40}};
  const KeyPiece more[] = {{.keys = bytes, .key_count = 60}, {.keys = bytes, .key_count = 41}};
  EXPECT_TRUE(room.Make(most, room.row_bytes()).ok());
  EXPECT_TRUE(room.MakePart(most, 1024, 2).ok());
  for (const absl::Status& refused :
       {room.Make(more, 0).status(), room.Make(most, room.row_bytes() + 1).status(),
        room.MakePart(more, 0, 0).status(), room.MakePart(most, 1025, 0).status()})
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
}

TEST_F(GpuRowRoomTest, RoomsTakeTheirRowsFromABudget) {
  const uint64_t bytes = uint64_t{1} << 20;
  const auto budget = std::make_shared<ByteBudget>("rows", 5 * bytes / 2);
  const DeviceDenseOptions options = {.row_bytes = bytes, .row_budget = budget};
  auto first = GpuRowRoom::Create(options, nullptr);
  const auto second = GpuRowRoom::Create(options, nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(GpuRowRoom::Create(options, nullptr).status().code(),
            absl::StatusCode::kResourceExhausted);
  first->reset();
  EXPECT_TRUE(GpuRowRoom::Create(options, nullptr).ok());
}

TEST_F(GpuRowRoomTest, RoomsOfSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (Key i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      const auto room = GpuRowRoom::Create({.keys_max = 400'000}, nullptr);
      ASSERT_TRUE(room.ok()) << room.status();
      for (int run = 0; run < 5; ++run) CheckKeys(**room, 400'000, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hps
