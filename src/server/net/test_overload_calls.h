// What the calls of an overloaded server did: in which order they were read, and how long they had
// waited for that. Holds the server's only thread back with call 0. The key of a call is its
// number.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "server/core/inference_call.h"
#include "testing/await.h"

namespace hps::server {

class OverloadCalls {
 public:
  OverloadCalls() {
    begun_.Reset(1);
    held_.Reset(1);
  }

  std::set<int64_t> refused;  // to be set before the first call

  // Before a call is prepared, and before it is run.
  absl::Status OnPrepare(const InferenceCall& call) {
    MutexLock lock(mutex_);
    prepared_.push_back(NumberOf(call));
    waits_.push_back(call.request.socket_wait);
    if (refused.contains(prepared_.back())) return absl::ResourceExhaustedError("full");
    return absl::OkStatus();
  }
  void OnRun(const InferenceCall& call) {
    if (NumberOf(call) != 0) return;
    begun_.CountDown();
    EXPECT_TRUE(AwaitLatch(held_));
  }

  // Sends call 0, until the thread is busy with it.
  template <typename Send>
  void Hold(const Send& send) {
    const TimePoint sent = RealClock().Now();
    send();
    EXPECT_TRUE(AwaitLatch(begun_));
    first_took_ = RealClock().Now() - sent;
  }
  void Release() { held_.CountDown(); }

  std::vector<int64_t> prepared() {
    MutexLock lock(mutex_);
    return prepared_;
  }
  // That calls 1 to `count` have waited for the thread that call 0 had.
  void ExpectWaits(size_t count) {
    MutexLock lock(mutex_);
    ASSERT_EQ(waits_.size(), count + 1);
    EXPECT_LT(waits_[0], first_took_);  // zero, but where the server's tick came with it
    for (size_t i = 1; i <= count; ++i) EXPECT_GT(waits_[i], Duration::zero());
  }
  // Sends calls 1 to `all` by `send_while_busy(all)`, and reads the answers by
  // `is_refused(number)`: the oldest are refused, and then the newest come first.
  template <typename Send, typename Read>
  void ExpectNewestFirst(const Send& send_while_busy, const Read& is_refused) {
    constexpr int64_t kOld = 200;
    constexpr int64_t kAll = 210;
    for (int64_t i = 1; i <= kOld; ++i) refused.insert(i);
    send_while_busy(kAll);
    Release();
    for (int64_t i = 1; i <= kAll; ++i) EXPECT_EQ(is_refused(i), refused.contains(i)) << i;
    ExpectNewestFirst(kOld, kAll);
  }

 private:
  // That of calls 1 to `all`, of which those to `old` were refused, the newest were first, however
  // the turns of the oldest lie between them.
  void ExpectNewestFirst(int64_t old, int64_t all) {
    const std::vector<int64_t> numbers = prepared();
    std::vector<int64_t> accepted;
    for (const int64_t number : numbers) {
      if (number > old) accepted.push_back(number);
    }
    ASSERT_EQ(accepted.size(), static_cast<size_t>(all - old));
    EXPECT_EQ(accepted.front(), all);
    EXPECT_TRUE(std::is_sorted(accepted.rbegin(), accepted.rend()));
    EXPECT_NE(numbers.back(), old + 1);  // some of the old ones came after them
  }

  static int64_t NumberOf(const InferenceCall& call) {
    return LoadLittleEndian<int64_t>(call.request.inputs[0].bytes.data());
  }

  Duration first_took_{};  // from when call 0 was sent to when it was looked up
  Latch begun_;
  Latch held_;
  Mutex mutex_;
  std::vector<int64_t> prepared_ HPS_GUARDED_BY(mutex_);
  std::vector<Duration> waits_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps::server
