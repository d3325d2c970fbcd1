// Work that is left for later is done, whichever thread leaves it. No tick comes during these
// tests: it would end the wait of a thread that should have been woken.
#include "server/net/event_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>

#include "server/net/listener.h"
#include "server/net/test_echo_server.h"
#include "testing/await.h"

namespace hps::server {
namespace {

// Two threads, and a descriptor that has something to say once.
class EventLoopTest : public testing::Test, private EventLoop::Handler {
 protected:
  EventLoopTest() : handled_(1), done_(1) {}
  ~EventLoopTest() override { close(descriptor_); }

  // Before the handler goes, of which the test is the most derived part.
  void TearDown() override { loop_.reset(); }

  void Start() {
    auto listener = Listener::Open("127.0.0.1:0");
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    auto loop =
        EventLoop::Create({.name = "loop", .thread_count = 2, .tick_period = kNoTick}, *this);
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    ASSERT_TRUE(loop_->Start(listener_->fd()).ok());
  }
  // Has one of the loop's threads do it, and waits for that.
  void RunOnOwnThread(std::function<void()> act) {
    act_ = std::move(act);
    ASSERT_TRUE(loop_->Watch(descriptor_, &descriptor_).ok());
    EXPECT_TRUE(AwaitLatch(handled_));
  }
  // Whether it was done, by whichever thread.
  testing::AssertionResult LeaveAndAwait(const std::function<void()>& wake) {
    left_.fetch_add(1);
    wake();
    const testing::AssertionResult is_done = AwaitLatch(done_);
    if (is_done) done_.Reset(1);
    return is_done;
  }

  static constexpr Duration kNoTick = std::chrono::hours(1);
  static constexpr int kRounds = 20;

  std::unique_ptr<EventLoop> loop_;

 private:
  // EventLoop::Handler
  void OnSocket(void* source, SocketEnd /*end*/, bool /*is_last*/) override {
    EXPECT_EQ(source, &descriptor_);
    act_();
    handled_.CountDown();
  }
  void OnAcceptable() override {}
  void OnTick() override {}
  bool DoLeft() override {
    size_t left = left_.load();
    while (left > 0 && !left_.compare_exchange_weak(left, left - 1)) continue;
    if (left > 0) done_.CountDown();
    return left > 1;
  }
  bool HasLeft() const override { return left_.load() > 0; }

  std::unique_ptr<Listener> listener_;
  int descriptor_ = eventfd(0, EFD_CLOEXEC);
  std::function<void()> act_;
  Latch handled_;
  Latch done_;
  std::atomic<size_t> left_ = 0;
};

TEST_F(EventLoopTest, WhatOthersLeaveIsDone) {
  Start();
  for (int i = 0; i < kRounds; ++i) ASSERT_TRUE(LeaveAndAwait([this] { loop_->WakeOne(); })) << i;
  for (int i = 0; i < kRounds; ++i)
    ASSERT_TRUE(LeaveAndAwait([this] { loop_->WakeOneLater(); })) << i;
}

// Catches: a timer that is not set again, and one that only the thread that set it comes for.
TEST_F(EventLoopTest, WhatAThreadLeavesIsDoneWhileItIsBusy) {
  Start();
  RunOnOwnThread([this] {
    for (int i = 0; i < kRounds; ++i)
      ASSERT_TRUE(LeaveAndAwait([this] { loop_->WakeOneLater(); })) << i;
  });
}

TEST_F(EventLoopTest, KnowsItsOwnThreads) {
  Start();
  EXPECT_FALSE(loop_->IsOwnThread());
  RunOnOwnThread([this] { EXPECT_TRUE(loop_->IsOwnThread()); });
}

// Takes its turn as a test says.
class LeftEntry final : public Backlog::Waiter {
 public:
  explicit LeftEntry(std::function<void()> act) : act_(std::move(act)) {}

  bool TakeTurn(const Backlog::Turn& /*turn*/) override {
    act_();
    return true;
  }
  Backlog::Entry waiting{this};

 private:
  const std::function<void()> act_;
};

// Catches: a thread that leaves work, is busy for long, and wakes no other thread. Repeated,
// because another thread that does not wait yet sees the work by itself.
TEST(LeftWorkTest, OfAServersThreadIsDoneWhileItIsBusy) {
  constexpr int kRounds = 20;
  Latch done(1);
  LeftEntry left([&] { done.CountDown(); });
  Latch ended(1);
  EchoWorld world;
  EchoServer server(world.Parts(), 2, std::chrono::hours(1));
  const auto leave_and_await = [&] {
    server.Leave(left.waiting, Backlog::Kind::kLater, RealClock().Now());
    server.CallHelp();
    ASSERT_TRUE(AwaitLatch(done));
    done.Reset(1);
  };
  LeftEntry busy([&] {
    for (int i = 0; i < kRounds && !testing::Test::HasFailure(); ++i) leave_and_await();
    ended.CountDown();
  });
  ASSERT_TRUE(server.Listen("127.0.0.1:0").ok());
  server.Leave(busy.waiting, Backlog::Kind::kInProgress, RealClock().Now());
  EXPECT_TRUE(AwaitLatch(ended));
}

}  // namespace
}  // namespace hps::server
