#include "base/epoch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hps {
namespace {

TEST(EpochTest, NothingIsHeldBackWithoutGuards) {
  EpochDomain domain;
  const uint64_t retired = domain.Advance();
  EXPECT_GE(domain.SafeEpoch(), retired);
}

TEST(EpochTest, GuardHoldsBackWhatIsRetiredDuringIt) {
  EpochDomain domain;
  auto reader = domain.AddReader();
  ASSERT_TRUE(reader.ok());
  uint64_t retired = 0;
  {
    EpochDomain::Guard guard(*reader);
    retired = domain.Advance();
    EXPECT_LT(domain.SafeEpoch(), retired);
  }
  EXPECT_GE(domain.SafeEpoch(), retired);
}

TEST(EpochTest, LaterGuardDoesNotHoldBackWhatWasRetiredBefore) {
  EpochDomain domain;
  auto reader = domain.AddReader();
  ASSERT_TRUE(reader.ok());
  const uint64_t retired = domain.Advance();
  EpochDomain::Guard guard(*reader);
  EXPECT_GE(domain.SafeEpoch(), retired);
}

TEST(EpochTest, HasRoomForAsManyReadersAsItWasMadeFor) {
  EpochDomain domain(2);
  auto first = domain.AddReader();
  auto second = domain.AddReader();
  EXPECT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(domain.AddReader().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(domain.bytes(), 2u * 64);
}

// Catches a fixed number of places: the server has a session for each slot, model and version.
TEST(EpochTest, GrowsToAsManyReadersAsAreNeededAndReusesPlaces) {
  constexpr size_t kReaders = 20'000;
  EpochDomain domain(kReaders);
  EXPECT_EQ(domain.bytes(), EpochDomain::kBlockPlaces * 64);
  std::vector<EpochDomain::Reader> readers;
  for (size_t i = 0; i < kReaders; ++i) {
    auto reader = domain.AddReader();
    ASSERT_TRUE(reader.ok());
    readers.push_back(*std::move(reader));
  }
  EXPECT_EQ(domain.bytes(), kReaders * 64);
  EXPECT_EQ(domain.AddReader().status().code(), absl::StatusCode::kResourceExhausted);
  const uint64_t retired = domain.Advance();
  EXPECT_GE(domain.SafeEpoch(), retired);
  {
    EpochDomain::Guard guard(readers.back());  // in the last block
    EXPECT_LT(domain.SafeEpoch(), domain.Advance());
  }
  readers.pop_back();
  EXPECT_TRUE(domain.AddReader().ok());
}

// Would catch a reclamation under a reader: the writer poisons a value once its epoch is safe.
TEST(EpochTest, ReadersNeverSeeAReclaimedValue) {
  EpochDomain domain;
  constexpr int kValues = 64;
  std::vector<std::atomic<int>> values(kValues);
  for (auto& value : values) value = 1;
  std::atomic<int> current{0};
  std::atomic<bool> done{false};
  std::atomic<int> poisoned_seen{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      auto reader = domain.AddReader();
      while (!done) {
        EpochDomain::Guard guard(*reader);
        const int index = current.load();
        for (int i = 0; i < 20; ++i) poisoned_seen += values[index].load() == 0;
      }
    });
  }
  for (int i = 1; i < 400; ++i) {
    const int old = current.load();
    const int next = (old + 1) % kValues;
    values[next] = 1;
    current = next;
    const uint64_t retired = domain.Advance();
    while (domain.SafeEpoch() < retired) std::this_thread::yield();
    values[old] = 0;
  }
  done = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(poisoned_seen, 0);
}

}  // namespace
}  // namespace hps
