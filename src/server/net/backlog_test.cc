#include "server/net/backlog.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace hps::server {
namespace {

using std::chrono::microseconds;
using Kind = Backlog::Kind;

constexpr Duration kLong = microseconds(1600);
constexpr Duration kShort = microseconds(10);

constexpr std::array kKinds = {Kind::kFirst, Kind::kLater, Kind::kInProgress, Kind::kLater};

struct CountingWaiter final : Backlog::Waiter {
  bool TakeTurn(const Backlog::Turn& /*turn*/) override {
    ++turns;
    return true;
  }
  std::atomic<int> turns = 0;
};

class BacklogTest : public testing::Test {
 protected:
  // They came a microsecond after each other.
  void PushMany(int count, Kind kind = Kind::kLater) {
    for (int i = 0; i < count; ++i) {
      entries_.emplace_back(nullptr);
      backlog_.Push(entries_.back(), kind, now_ += microseconds(1));
    }
  }
  // The place of the next one in the order in which they came; -1 for none.
  int Take(bool has_room = true, Duration took = kLong, bool refused = false,
           bool had_request = true) {
    const Backlog::Turn turn = backlog_.Take(has_room);
    if (turn.entry == nullptr) return -1;
    if (refused) backlog_.NoteRefused();
    backlog_.End(turn, took, had_request && turn.kind != Kind::kInProgress);
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (&entries_[i] == turn.entry) return static_cast<int>(i);
    }
    return -2;
  }
  // The longest wait is refused: the server is overloaded, and nothing is left of the share.
  int Refuse() { return Take(true, kShort, true); }

  Backlog backlog_;
  std::deque<Backlog::Entry> entries_;
  TimePoint now_{};
};

TEST_F(BacklogTest, IsEmptyAtFirst) {
  EXPECT_EQ(backlog_.size(), 0u);
  EXPECT_EQ(Take(true), -1);
  EXPECT_EQ(Take(false), -1);
}

TEST_F(BacklogTest, TheLongestWaitIsNextWhileAllAreInTime) {
  PushMany(2);
  PushMany(2, Kind::kFirst);
  PushMany(1);
  EXPECT_EQ(backlog_.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Take(), i);
  EXPECT_EQ(backlog_.size(), 0u);
}

TEST_F(BacklogTest, WhatIsToldOfLateHasThePlaceOfItsTime) {
  PushMany(4);
  entries_.emplace_back(nullptr);
  backlog_.Push(entries_.back(), Kind::kLater, TimePoint() + microseconds(2));
  for (const int next : {0, 1, 4, 2, 3}) EXPECT_EQ(Take(), next);
}

// ... as far as that is found in a few steps.
TEST_F(BacklogTest, WhatIsToldOfVeryLateGoesBeforeSomeOfTheNewest) {
  constexpr int kMany = 1000;
  PushMany(kMany);
  entries_.emplace_back(nullptr);
  backlog_.Push(entries_.back(), Kind::kLater, TimePoint());
  int place = 0;
  while (Take() != kMany) ++place;
  EXPECT_GT(place, 0);
  EXPECT_LT(place, kMany);
  for (; place < kMany; ++place) EXPECT_EQ(Take(), place);
}

TEST_F(BacklogTest, WhatWaitsKeepsItsPlaceAndItsTime) {
  PushMany(2);
  backlog_.Push(entries_[0], Kind::kLater, now_ + kLong);
  EXPECT_EQ(backlog_.size(), 2u);
  const Backlog::Turn turn = backlog_.Take(true);
  EXPECT_EQ(turn.entry, &entries_[0]);
  EXPECT_EQ(turn.since, TimePoint() + microseconds(1));
  backlog_.End(turn, kShort, true);
  backlog_.Push(entries_[0], Kind::kLater, now_ + kLong);  // again, behind the other
  EXPECT_EQ(Take(), 1);
  EXPECT_EQ(Take(), 0);
}

TEST_F(BacklogTest, WhatIsRemovedHasNoTurn) {
  PushMany(3);
  EXPECT_TRUE(backlog_.Remove(entries_[1]));
  EXPECT_FALSE(backlog_.Remove(entries_[1]));
  EXPECT_EQ(Take(), 0);
  EXPECT_EQ(Take(), 2);
  EXPECT_EQ(Take(), -1);
}

TEST_F(BacklogTest, TheNewestIsNextOnceTheLongestWaitWasRefused) {
  PushMany(10);
  EXPECT_EQ(Refuse(), 0);
  EXPECT_TRUE(backlog_.is_overloaded());
  // The share that the first turn has earned.
  EXPECT_EQ(Take(true, kLong, true), 1);
  EXPECT_EQ(Take(true, kShort), 9);
  PushMany(1);
  EXPECT_EQ(Take(true, kShort), 10);
  EXPECT_EQ(Take(true, kShort), 8);
}

TEST_F(BacklogTest, RefusingTakesItsShareAndNoMore) {
  PushMany(1);
  EXPECT_EQ(Refuse(), 0);
  PushMany(10'000);
  Duration refusing{};
  Duration answering{};
  Refuse();
  size_t refused = 0;
  for (int i = 0; i < 2'000; ++i) {
    const Backlog::Turn turn = backlog_.Take(true);
    ASSERT_NE(turn.entry, nullptr);
    const Duration took = turn.is_beside ? microseconds(10) : microseconds(80);
    (turn.is_beside ? refusing : answering) += took;
    if (turn.is_beside) {
      ++refused;
      backlog_.NoteRefused();
    }
    backlog_.End(turn, took, true);
  }
  EXPECT_GT(refused, 100u);
  EXPECT_LE(refusing * Backlog::kOldestShare, answering + Backlog::kOldestShare * kLong);
}

TEST_F(BacklogTest, TheOldOrderIsBackWhenTheLongestWaitIsInTime) {
  PushMany(10);
  EXPECT_EQ(Refuse(), 0);
  EXPECT_EQ(Take(), 1);  // from its share, and answered
  EXPECT_FALSE(backlog_.is_overloaded());
  EXPECT_EQ(Take(), 2);
  EXPECT_EQ(Take(), 3);
}

TEST_F(BacklogTest, TheOldOrderIsBackWhenNobodyWaits) {
  PushMany(2);
  EXPECT_EQ(Refuse(), 0);
  EXPECT_EQ(Take(true, kLong, true), 1);
  PushMany(3);
  EXPECT_FALSE(backlog_.is_overloaded());
  EXPECT_EQ(Take(), 2);
  EXPECT_EQ(Take(), 3);
}

TEST_F(BacklogTest, FirstRequestsHaveEverySecondTurnOfTheOldest) {
  PushMany(20);
  PushMany(2, Kind::kFirst);
  std::vector<int> beside;
  for (int i = 0; i < 4; ++i) {
    backlog_.Await(TimePoint());  // over at once
    beside.push_back(Take(/*has_room=*/false, kLong, /*refused=*/true));
  }
  EXPECT_EQ(beside, (std::vector<int>{20, 0, 21, 1}));
}

TEST_F(BacklogTest, WithoutRoomTheOldestAloneHaveTurns) {
  PushMany(10);
  EXPECT_EQ(Take(false), -1);
  backlog_.Await(TimePoint());
  EXPECT_EQ(Take(false, kLong, true), 0);
  EXPECT_EQ(Take(false), -1);
  EXPECT_EQ(Take(true, kLong), 9);  // overloaded
}

TEST_F(BacklogTest, WhatHasBegunHasEverySecondTurn) {
  PushMany(2);
  PushMany(3, Kind::kInProgress);
  for (const int entry : {2, 0, 3, 1, 4}) EXPECT_EQ(Take(), entry);
  EXPECT_EQ(Take(), -1);
}

// Catches: turns that read much, as often as those that look up little.
TEST_F(BacklogTest, WhatHasBegunTakesNoMoreTimeThanTheOthers) {
  constexpr int kOthers = 100;
  PushMany(kOthers);
  PushMany(3, Kind::kInProgress);
  const int per_begun = static_cast<int>(kLong / (10 * kShort));
  EXPECT_EQ(Take(true, kLong), kOthers);
  for (int i = 0; i < per_begun; ++i) EXPECT_EQ(Take(true, 10 * kShort), i);
  EXPECT_EQ(Take(true, kLong), kOthers + 1);
  EXPECT_EQ(Take(true, 10 * kShort), per_begun);
}

TEST_F(BacklogTest, WhatHasBegunNeedsNoRoom) {
  PushMany(2, Kind::kInProgress);
  PushMany(1);
  EXPECT_EQ(Take(false, Duration::zero()), 0);
  EXPECT_EQ(Take(false, Duration::zero()), 1);
  EXPECT_EQ(Take(false, Duration::zero()), -1);
}

// Catches: connections that always have something to go on with, and leave no turn to the others.
TEST_F(BacklogTest, WithoutRoomWhatHasBegunEarnsTheOthersTheirShare) {
  PushMany(1);
  int turns = 0;
  do {
    PushMany(1, Kind::kInProgress);
    ++turns;
  } while (Take(false, kLong) != 0 && turns < 1000);
  EXPECT_LT(turns, 10 * Backlog::kOldestShare);
}

TEST_F(BacklogTest, WhatHasBegunCanBeTakenAlone) {
  PushMany(1);
  PushMany(1, Kind::kInProgress);
  const Backlog::Turn turn = backlog_.TakeBegun();
  EXPECT_EQ(turn.entry, &entries_[1]);
  EXPECT_EQ(turn.kind, Kind::kInProgress);
  EXPECT_EQ(backlog_.TakeBegun().entry, nullptr);
  EXPECT_EQ(Take(), 0);
}

TEST_F(BacklogTest, WhatGoesOnWhileItWaitsToBeginKeepsItsTime) {
  PushMany(2);
  backlog_.Push(entries_[1], Kind::kInProgress, now_ + kLong);
  backlog_.Push(entries_[1], Kind::kLater, now_ + kLong);
  EXPECT_EQ(backlog_.size(), 2u);
  const Backlog::Turn turn = backlog_.Take(true);
  EXPECT_EQ(turn.entry, &entries_[1]);
  EXPECT_EQ(turn.kind, Kind::kInProgress);
  EXPECT_EQ(turn.since, TimePoint() + microseconds(2));
  EXPECT_EQ(Take(), 0);
}

// A ping or a window update brings no request, so its turn does not show how long requests wait.
TEST_F(BacklogTest, ATurnWithoutARequestDoesNotBringTheOldOrderBack) {
  PushMany(10);
  EXPECT_EQ(Refuse(), 0);
  EXPECT_EQ(Take(true, kLong, false, /*had_request=*/false), 1);
  EXPECT_TRUE(backlog_.is_overloaded());
  EXPECT_EQ(Take(true, kShort), 9);
}

TEST_F(BacklogTest, WhoAwaitsRoomIsWoken) {
  PushMany(1);
  std::thread waiter([&] { backlog_.Await(RealClock().Now() + std::chrono::minutes(1)); });
  // Whenever the wait begins: it is woken, and not at its end.
  while (Take(false) != 0) {
    backlog_.WakeOne();
    std::this_thread::yield();
  }
  waiter.join();
}

TEST_F(BacklogTest, ManyThreadsTakeEachOnce) {
  constexpr int kEach = 2'000;
  std::array<std::thread, 3> threads;
  std::array<CountingWaiter, kEach * 3> waiters;
  for (CountingWaiter& waiter : waiters) entries_.emplace_back(&waiter);
  std::atomic<int> taken = 0;
  for (size_t t = 0; t < threads.size(); ++t) {
    threads[t] = std::thread([&, t] {
      size_t next = t * kEach;
      while (taken.load() < kEach * 3) {
        if (next < (t + 1) * kEach) {
          backlog_.Push(entries_[next], kKinds[next % kKinds.size()], RealClock().Now());
          ++next;
        }
        const Backlog::Turn turn = backlog_.Take(true);
        if (turn.entry == nullptr) continue;
        turn.entry->waiter->TakeTurn(turn);
        ++taken;
        if (next % 3 == 0) backlog_.NoteRefused();
        backlog_.End(turn, kShort, turn.kind != Kind::kInProgress);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CountingWaiter& waiter : waiters) EXPECT_EQ(waiter.turns.load(), 1);
  EXPECT_EQ(backlog_.size(), 0u);
}

}  // namespace
}  // namespace hps::server
