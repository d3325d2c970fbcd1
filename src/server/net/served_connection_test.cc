#include "server/net/served_connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "server/net/test_echo_server.h"

namespace hps::server {
namespace {

class ServedConnectionTest : public testing::Test {
 protected:
  void TakeTurn(TimePoint since) { connection_.TakeTurn({.since = since}); }

  EchoWorld world_;
  EchoServer server_{world_.Parts(), 1};
  EchoConnection connection_{server_};
};

TEST_F(ServedConnectionTest, WhoComesWhileAnotherDrivesLeavesANote) {
  std::vector<uint32_t> handled;
  const std::thread::id driver = std::this_thread::get_id();
  connection_.on_handle = [&](uint32_t events) {
    EXPECT_EQ(std::this_thread::get_id(), driver);
    handled.push_back(events);
    if (handled.size() > 1) return;
    std::thread([&] { connection_.Activate(ServedConnection::kTick, true); }).join();
    std::thread([&] { connection_.Activate(ServedConnection::kReady, true); }).join();
  };
  connection_.Activate(ServedConnection::kHangup, true);
  ASSERT_EQ(handled.size(), 2u);
  const uint32_t both = ServedConnection::kTick | ServedConnection::kReady;
  EXPECT_EQ(handled[0] & (both | ServedConnection::kHangup), ServedConnection::kHangup);
  EXPECT_EQ(handled[1] & (both | ServedConnection::kHangup), both);
  EXPECT_EQ(connection_.driven_elsewhere, both);
}

TEST_F(ServedConnectionTest, AConnectionHasWaitedNoLongerThanItsSocket) {
  connection_.on_handle = [](uint32_t) {};
  const TimePoint offered = RealClock().Now();
  connection_.Offer(-1, nullptr, {});
  const TimePoint now = RealClock().Now();
  EXPECT_EQ(connection_.TakeArrival(now), now) << "it has not waited";
  TakeTurn(offered - std::chrono::hours(1));  // of the socket before it
  const TimePoint arrival = connection_.TakeArrival(now);
  EXPECT_GE(arrival, offered);
  EXPECT_LE(arrival, now);
  TakeTurn(now + std::chrono::hours(1));
  EXPECT_EQ(connection_.TakeArrival(now), now + std::chrono::hours(1));
  EXPECT_EQ(connection_.TakeArrival(now), now) << "of one turn only";
  TakeTurn(now + std::chrono::hours(1));
  connection_.ForgetArrival();
  EXPECT_EQ(connection_.TakeArrival(now), now);
}

TEST_F(ServedConnectionTest, WhatASocketLeftComesWithItsTurn) {
  uint32_t handled = 0;
  connection_.on_handle = [&](uint32_t events) { handled = events; };
  connection_.NoteLeft(ServedConnection::kHangup);
  EXPECT_EQ(handled, 0u);
  TakeTurn(RealClock().Now());
  EXPECT_EQ(handled & ServedConnection::kHangup, ServedConnection::kHangup);
  EXPECT_EQ(handled & ServedConnection::kReady, ServedConnection::kReady);
  TakeTurn(RealClock().Now());
  EXPECT_EQ(handled & ServedConnection::kHangup, 0u);
}

TEST_F(ServedConnectionTest, TheEndOfASocketIsNoneOfTheNext) {
  uint32_t handled = 0;
  connection_.on_handle = [&](uint32_t events) {
    handled = events;
    if ((events & ServedConnection::kOpened) != 0) connection_.OpenTransport();
  };
  connection_.NoteLeft(ServedConnection::kHangup);
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  connection_.Offer(sockets[0], nullptr, {});
  connection_.Activate(ServedConnection::kOpened, true);
  TakeTurn(RealClock().Now());
  const uint32_t ends = ServedConnection::kHangup | ServedConnection::kReset;
  EXPECT_EQ(handled & ends, 0u);
  connection_.Activate(ends, true);
  EXPECT_EQ(handled & ends, 0u);
  shutdown(sockets[1], SHUT_WR);
  connection_.Activate(ends, true);
  EXPECT_EQ(handled & ends, ServedConnection::kHangup);
  close(sockets[1]);
  connection_.Activate(ends, true);
  EXPECT_EQ(handled & ends, ends);
}

TEST_F(ServedConnectionTest, KnowsWhatWaitsInItsSocket) {
  connection_.on_handle = [&](uint32_t events) {
    if ((events & ServedConnection::kOpened) != 0) connection_.OpenTransport();
  };
  EXPECT_TRUE(connection_.HasUnread(0));
  EXPECT_FALSE(connection_.HasUnread(1));
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  connection_.Offer(sockets[0], nullptr, {});
  connection_.Activate(ServedConnection::kOpened, true);
  EXPECT_FALSE(connection_.HasUnread(1));
  EXPECT_EQ(write(sockets[1], "frames", 6), 6);
  EXPECT_TRUE(connection_.HasUnread(6));
  EXPECT_FALSE(connection_.HasUnread(7));
  close(sockets[1]);
}

TEST_F(ServedConnectionTest, ATurnSaysWhetherARequestHadIt) {
  bool begins = true;
  uint32_t handled = 0;
  connection_.on_handle = [&](uint32_t events) {
    handled = events;
    if (begins) connection_.UseTurn();
  };
  EXPECT_TRUE(connection_.TakeTurn({.kind = Backlog::Kind::kLater}));
  EXPECT_NE(handled & ServedConnection::kTurn, 0u);
  begins = false;
  EXPECT_FALSE(connection_.TakeTurn({.kind = Backlog::Kind::kLater}));
  EXPECT_FALSE(connection_.TakeTurn({.kind = Backlog::Kind::kInProgress}));
  EXPECT_EQ(handled & ServedConnection::kTurn, 0u);
}

TEST_F(ServedConnectionTest, TheEarliestDeadlineHolds) {
  const TimePoint now = RealClock().Now();
  EXPECT_FALSE(connection_.IsLate(now + std::chrono::hours(1000)));
  connection_.NoteDeadline(now + std::chrono::seconds(2));
  connection_.NoteDeadline(now + std::chrono::seconds(3));
  EXPECT_TRUE(connection_.IsLate(now + std::chrono::seconds(2)));
  connection_.NoteDeadline(now + std::chrono::seconds(1));
  EXPECT_TRUE(connection_.IsLate(now + std::chrono::seconds(1)));
  EXPECT_FALSE(connection_.IsLate(now));
  connection_.SetDeadline(kNoDeadline);
  EXPECT_FALSE(connection_.IsLate(now + std::chrono::hours(1000)));
}

}  // namespace
}  // namespace hps::server
