#include "serving/l2_pinner.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "testing/await.h"
#include "testing/fakes/manual_executor.h"

namespace hps {
namespace {

// A device that notes what is pinned, and can refuse or hang.
class PinningCache final : public DeviceCache {
 public:
  int device() const override { return 0; }
  uint64_t TableBytes(size_t, uint64_t) const override { return 0; }
  absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t, uint64_t) override {
    return absl::UnimplementedError("has no tables");
  }
  absl::StatusOr<DeviceCallLease> AcquireCall(size_t) override {
    return absl::UnimplementedError("has no calls");
  }
  absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t) override {
    return absl::UnimplementedError("has no calls");
  }
  absl::Status PinHostMemory(std::span<std::byte> memory) override {
    ++pins;
    if (on_pin) on_pin();
    if (pinned.size() == parts_max) return absl::ResourceExhaustedError("no more can be pinned");
    EXPECT_LE(memory.size(), L2Pinner::kPartBytes);
    EXPECT_TRUE(pinned.emplace(memory.data(), memory.size()).second) << "pinned twice";
    return absl::OkStatus();
  }
  void UnpinHostMemory(std::span<std::byte> memory) override {
    const auto found = pinned.find(memory.data());
    ASSERT_NE(found, pinned.end()) << "never pinned";
    EXPECT_EQ(found->second, memory.size()) << "as another part";
    pinned.erase(found);
  }
  bool AwaitReturnedCalls() override {
    ++waits;
    return !hangs;
  }

  size_t bytes() const {
    size_t sum = 0;
    for (const auto& [begin, size] : pinned) sum += size;
    return sum;
  }

  std::map<std::byte*, size_t> pinned;
  size_t pins = 0;  // parts that were to be pinned
  std::function<void()> on_pin;
  size_t parts_max = SIZE_MAX;
  bool hangs = false;
  size_t waits = 0;
};

class L2PinnerTest : public testing::Test {
 protected:
  // Nothing is read or written there.
  static std::span<std::byte> Memory(size_t number, size_t bytes) {
    return {static_cast<std::byte*>(nullptr) + (uint64_t{number} << 40), bytes};
  }

  static constexpr size_t kPart = L2Pinner::kPartBytes;

  PinningCache cache_;
  PinningCache other_;
  ManualExecutor executor_;
  std::unique_ptr<L2Pinner> pinner_ =
      std::make_unique<L2Pinner>(std::vector<DeviceCache*>{&cache_, &other_}, 4 * kPart, executor_);
};

// Catches: a table that no GPU reads because the executor was busy when its memory was to be
// pinned.
TEST_F(L2PinnerTest, AFullExecutorLeavesThePinningToTheCaller) {
  ManualExecutor full(0, 0);
  pinner_ = std::make_unique<L2Pinner>(std::vector<DeviceCache*>{&cache_}, 4 * kPart, full);
  PinnedRegion first{.memory = Memory(1, 3 * kPart)};
  PinnedRegion second{.memory = Memory(2, 2 * kPart)};
  pinner_->Pin(first);
  EXPECT_TRUE(first.readable);
  pinner_->Pin(second);
  EXPECT_FALSE(second.readable) << "the budget has no room";
  EXPECT_TRUE(pinner_->Unpin(first));
  EXPECT_TRUE(second.readable);
  EXPECT_TRUE(pinner_->Unpin(second));
  EXPECT_TRUE(cache_.pinned.empty());
  pinner_ = nullptr;
}

TEST_F(L2PinnerTest, PinsInPartsInTheBackground) {
  PinnedRegion region{.memory = Memory(1, 2 * kPart + 4096)};
  pinner_->Pin(region);
  EXPECT_FALSE(region.readable) << "not on the thread that asks";
  executor_.RunAll();
  EXPECT_TRUE(region.readable);
  EXPECT_EQ(cache_.pinned.size(), 3u);
  EXPECT_EQ(cache_.bytes(), region.memory.size());
  EXPECT_TRUE(other_.pinned.empty()) << "memory is pinned once for all devices";
  EXPECT_TRUE(pinner_->Unpin(region));
  EXPECT_TRUE(cache_.pinned.empty());
  EXPECT_EQ(cache_.waits, 1u);
  EXPECT_EQ(other_.waits, 1u);
}

TEST_F(L2PinnerTest, WhatTheBudgetHasNoRoomForWaitsForIt) {
  PinnedRegion first{.memory = Memory(1, 3 * kPart)};
  PinnedRegion large{.memory = Memory(2, 2 * kPart)};
  PinnedRegion small{.memory = Memory(3, kPart)};
  PinnedRegion never{.memory = Memory(4, 5 * kPart)};
  for (PinnedRegion* region : {&first, &never, &large, &small}) pinner_->Pin(*region);
  executor_.RunAll();
  EXPECT_TRUE(first.readable && small.readable);
  EXPECT_FALSE(large.readable || never.readable);
  EXPECT_TRUE(pinner_->Unpin(first));
  executor_.RunAll();
  EXPECT_TRUE(large.readable);
  EXPECT_FALSE(never.readable);
  for (PinnedRegion* region : {&never, &large, &small}) EXPECT_TRUE(pinner_->Unpin(*region));
  EXPECT_TRUE(cache_.pinned.empty());
}

TEST_F(L2PinnerTest, ARefusalLeavesNothingPinnedAndTheBudgetWhole) {
  cache_.parts_max = 1;
  PinnedRegion refused{.memory = Memory(1, 4 * kPart)};
  pinner_->Pin(refused);
  executor_.RunAll();
  EXPECT_FALSE(refused.readable);
  EXPECT_TRUE(cache_.pinned.empty());
  cache_.parts_max = SIZE_MAX;
  PinnedRegion other{.memory = Memory(2, 4 * kPart)};
  pinner_->Pin(other);
  executor_.RunAll();
  EXPECT_TRUE(other.readable);
  EXPECT_TRUE(pinner_->Unpin(refused));
  EXPECT_EQ(cache_.waits, 0u) << "no device has read it";
  EXPECT_TRUE(pinner_->Unpin(other));
}

TEST_F(L2PinnerTest, MemoryOfADeviceThatHangsStaysPinned) {
  PinnedRegion region{.memory = Memory(1, 3 * kPart)};
  pinner_->Pin(region);
  executor_.RunAll();
  other_.hangs = true;
  EXPECT_FALSE(pinner_->Unpin(region));
  EXPECT_EQ(cache_.bytes(), 3 * kPart);
  PinnedRegion next{.memory = Memory(2, 2 * kPart)};
  pinner_->Pin(next);
  executor_.RunAll();
  EXPECT_FALSE(next.readable) << "the budget counts what is still pinned";
  EXPECT_TRUE(pinner_->Unpin(next));
}

// Catches: while a model is unloaded or replaced, freeing its first table gets its waiting table
// pinned, although that table is freed next.
TEST_F(L2PinnerTest, ATableThatWillBeFreedIsPassedOver) {
  PinnedRegion first{.memory = Memory(1, 4 * kPart)};
  PinnedRegion going{.memory = Memory(2, 3 * kPart)};
  PinnedRegion next{.memory = Memory(3, 2 * kPart)};
  for (PinnedRegion* region : {&first, &going, &next}) pinner_->Pin(*region);
  executor_.RunAll();
  ASSERT_TRUE(first.readable);
  cache_.pins = 0;
  going.wanted = false;
  EXPECT_TRUE(pinner_->Unpin(first));
  executor_.RunAll();
  EXPECT_FALSE(going.readable);
  EXPECT_TRUE(next.readable) << "it has got what is left";
  EXPECT_EQ(cache_.pins, 2u);
  EXPECT_TRUE(pinner_->Unpin(going));
  EXPECT_TRUE(pinner_->Unpin(next));
  EXPECT_TRUE(cache_.pinned.empty());
}

TEST_F(L2PinnerTest, PinningEndsEarlyWhereTheTableWillBeFreed) {
  PinnedRegion going{.memory = Memory(1, 4 * kPart)};
  PinnedRegion next{.memory = Memory(2, 4 * kPart)};
  cache_.on_pin = [&] { going.wanted = going.wanted && cache_.pins < 2; };
  pinner_->Pin(going);
  pinner_->Pin(next);
  executor_.RunAll();
  EXPECT_FALSE(going.readable);
  EXPECT_TRUE(next.readable) << "the budget is whole again";
  EXPECT_EQ(cache_.pins, 2u + 4u) << "the rest of a part is pinned";
  EXPECT_EQ(cache_.bytes(), 4 * kPart);
  EXPECT_TRUE(pinner_->Unpin(going));
  EXPECT_EQ(cache_.waits, 0u) << "no device has read it";
  EXPECT_TRUE(pinner_->Unpin(next));
}

// Catches: the end of a table that waits until all of its memory has been pinned.
TEST_F(L2PinnerTest, TheEndOfATableThatIsBeingPinnedWaitsForOnePart) {
  PinnedRegion region{.memory = Memory(1, 4 * kPart)};
  std::thread end;
  cache_.on_pin = [&] {
    if (cache_.pins > 1) return;
    end = std::thread([&] { EXPECT_TRUE(pinner_->Unpin(region)); });
    EXPECT_TRUE(AwaitCondition([&] { return !region.wanted; }));
  };
  pinner_->Pin(region);
  executor_.RunAll();
  end.join();
  EXPECT_EQ(cache_.pins, 1u);
  EXPECT_TRUE(cache_.pinned.empty());
}

TEST_F(L2PinnerTest, ATableMayEndBeforeItIsItsTurn) {
  PinnedRegion region{.memory = Memory(1, kPart)};
  pinner_->Pin(region);
  EXPECT_TRUE(pinner_->Unpin(region));
  executor_.RunAll();
  EXPECT_FALSE(region.readable);
  EXPECT_TRUE(cache_.pinned.empty());
}

}  // namespace
}  // namespace hps
