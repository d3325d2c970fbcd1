#include "server/core/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

namespace hps::server {
namespace {

TEST(AdmissionTest, TakesAndGivesBack) {
  Admission admission({.keys_max = 10, .bytes_max = 100, .calls_max = 3});
  Admission::Reservation a;
  Admission::Reservation b;
  ASSERT_TRUE(admission.Reserve(10, 60, &a).ok());
  EXPECT_EQ(admission.Reserve(1, 1, &b).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(b, nullptr);
  EXPECT_EQ(admission.calls_in_flight(), 1u);
  ASSERT_TRUE(admission.Reserve(0, 40, &b).ok());
  Admission::Reservation c;
  EXPECT_EQ(admission.Reserve(0, 1, &c).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(admission.keys_in_flight(), 10u);
  EXPECT_EQ(admission.bytes_in_flight(), 100u);
  c = std::move(a);
  EXPECT_EQ(a, nullptr);  // NOLINT(bugprone-use-after-move): moved from is empty
  c.reset();
  EXPECT_EQ(admission.keys_in_flight(), 0u);
  EXPECT_EQ(admission.bytes_in_flight(), 40u);
  EXPECT_EQ(admission.calls_in_flight(), 1u);
}

TEST(AdmissionTest, SaysWhatNeverFits) {
  Admission admission({.keys_max = 10, .bytes_max = 100, .calls_max = 2});
  Admission::Reservation a;
  EXPECT_EQ(admission.Reserve(11, 1, &a).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(admission.Reserve(1, 101, &a).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(admission.Reserve(~uint64_t{0}, 1, &a).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(admission.Reserve(10, 100, &a).ok());
}

// Catches: a call that is told to try again for ever, since its own connection holds what it lacks.
TEST(AdmissionTest, SaysWhatNeverFitsBesideItsConnection) {
  Admission admission({.keys_max = 10, .bytes_max = 100, .calls_max = 2, .connection_bytes = 30});
  Admission::Reservation connection;
  ASSERT_TRUE(admission.ReserveBytes(30, &connection).ok());
  Admission::Reservation a;
  EXPECT_EQ(admission.Reserve(1, 71, &a).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(admission.Reserve(1, ~uint64_t{0}, &a).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(admission.Reserve(1, 70, &a).ok());
}

TEST(AdmissionTest, BoundsCalls) {
  Admission admission({.keys_max = 10, .bytes_max = 100, .calls_max = 1});
  Admission::Reservation a;
  Admission::Reservation b;
  ASSERT_TRUE(admission.Reserve(0, 0, &a).ok());
  EXPECT_EQ(admission.Reserve(0, 0, &b).code(), absl::StatusCode::kResourceExhausted);
}

TEST(AdmissionTest, BytesOfNoCallAreBytesAllTheSame) {
  Admission admission({.keys_max = 10, .bytes_max = 100, .calls_max = 0});
  Admission::Reservation a;
  Admission::Reservation b;
  ASSERT_TRUE(admission.ReserveBytes(60, &a).ok());
  EXPECT_EQ(admission.ReserveBytes(60, &b).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(admission.bytes_in_flight(), 60u);
  EXPECT_EQ(admission.calls_in_flight(), 0u);
  b = std::move(a);
  b.reset();
  EXPECT_EQ(admission.bytes_in_flight(), 0u);
}

// Would catch a check and a taking that are two steps.
TEST(AdmissionTest, IsNeverExceeded) {
  constexpr uint64_t kKeysMax = 100;
  Admission admission({.keys_max = kKeysMax, .bytes_max = 1'000, .calls_max = 100});
  std::atomic<uint64_t> held = 0;
  std::atomic<bool> exceeded = false;
  const auto take = [&](uint64_t keys) {
    for (int i = 0; i < 20'000; ++i) {
      Admission::Reservation reservation;
      if (!admission.Reserve(keys, keys, &reservation).ok()) continue;
      if (held.fetch_add(keys) + keys > kKeysMax) exceeded = true;
      held.fetch_sub(keys);
    }
  };
  std::vector<std::thread> threads;
  for (const uint64_t keys : {60, 50, 33, 7}) threads.emplace_back(take, keys);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(admission.keys_in_flight(), 0u);
  EXPECT_EQ(admission.bytes_in_flight(), 0u);
  EXPECT_EQ(admission.calls_in_flight(), 0u);
}

}  // namespace
}  // namespace hps::server
