#include "bench/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>

#include "bench/serve/serve_world.h"

namespace hps::bench {
namespace {

std::unique_ptr<ChildProcess> Sleeper() {
  auto child = ChildProcess::Start([](int) -> int {
    for (;;) pause();
  });
  return child.ok() ? std::move(*child) : nullptr;
}

TEST(CoresTest, SplitsAndGivesBack) {
  const std::vector<int> all = CoresOf(0);
  ASSERT_FALSE(all.empty());
  const auto child = Sleeper();
  ASSERT_NE(child, nullptr);
  {
    const CoreSplit split(child->pid());
    const std::vector<int> own = CoresOf(0);
    const std::vector<int> others = CoresOf(child->pid());
    EXPECT_EQ(own.size(), split.own_cores());
    EXPECT_EQ(others.size(), split.other_cores());
    if (all.size() > 1) {
      ASSERT_TRUE(split.is_split());
      EXPECT_EQ(own.size() + others.size(), all.size());
      for (const int core : own)
        EXPECT_EQ(std::count(others.begin(), others.end(), core), 0) << core;
    }
    std::vector<int> of_new_thread;
    std::thread([&] { of_new_thread = CoresOf(0); }).join();
    EXPECT_EQ(of_new_thread, own);
  }
  EXPECT_EQ(CoresOf(0), all);
  EXPECT_EQ(CoresOf(child->pid()), all);
}

TEST(CoresTest, MovesThreadsThatRun) {
  const std::vector<int> all = CoresOf(0);
  std::promise<void> started;
  std::promise<void> moved;
  std::vector<int> of_thread;
  std::thread thread([&] {
    started.set_value();
    moved.get_future().wait();
    of_thread = CoresOf(0);
  });
  started.get_future().wait();
  EXPECT_TRUE(MoveToCores(getpid(), {all.back()}));
  moved.set_value();
  thread.join();
  EXPECT_EQ(of_thread, std::vector<int>{all.back()});
  EXPECT_TRUE(MoveToCores(getpid(), all));
}

TEST(CoresTest, NoProcessHasNoCores) {
  constexpr pid_t kQuiescent = 1 << 30;
  EXPECT_TRUE(CoresOf(kQuiescent).empty());
  EXPECT_FALSE(MoveToCores(kQuiescent, {0}));
  const CoreSplit split(kQuiescent);
  EXPECT_FALSE(split.is_split());
}

}  // namespace
}  // namespace hps::bench
