#include "bench/serve/serve_open_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "base/macros.h"
#include "bench/serve/serve_arrivals.h"

namespace hps::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A server of one request after another, in a time of its own that passes while it is waited for.
struct Script {
  microseconds service{100};
  milliseconds stall_from{0};  // serves nothing until stall_to
  milliseconds stall_to{0};
  microseconds send_cost{0};  // that the generator takes for each request
  size_t in_flight_max = 1'000'000;
  size_t queue_max = 1'000'000;  // more are refused
  OpenAnswer::Kind kind = OpenAnswer::Kind::kRows;
  int code = 200;
  uint64_t answers_max = UINT64_MAX;  // then no more come
};

class ScriptedClient final : public OpenClient {
 public:
  explicit ScriptedClient(const Script& script) : script_(script) {}

  TimePoint Now() override { return now_; }

  bool Send(uint64_t number, TimePoint arrival) override {
    EXPECT_GE(now_, arrival);
    EXPECT_EQ(number, sent_);
    if (in_flight() >= script_.in_flight_max) return false;
    ++sent_;
    now_ += script_.send_cost;
    OpenAnswer answer{.kind = script_.kind, .code = script_.code, .arrival = arrival, .end = now_};
    if (queue_.size() >= script_.queue_max) {
      refusals_.push_back(answer);
      refusals_.back().kind = OpenAnswer::Kind::kRefused;
      refusals_.back().code = 429;
      return true;
    }
    TimePoint start = std::max(now_, free_from_);
    if (start >= At(script_.stall_from) && start < At(script_.stall_to))
      start = At(script_.stall_to);
    answer.end = free_from_ = start + script_.service;
    queue_.push_back(answer);
    if (script_.kind == OpenAnswer::Kind::kRows) all_latencies.push_back(answer.end - arrival);
    return true;
  }

  absl::Status Poll(TimePoint until,
                    const std::function<void(const OpenAnswer&)>& on_answer) override {
    if (refusals_.empty()) {
      const bool answers = !queue_.empty() && answered_ < script_.answers_max;
      now_ = std::max(now_, answers ? std::min(until, queue_.front().end) : until);
    }
    for (const OpenAnswer& refusal : refusals_) on_answer(refusal);
    refusals_.clear();
    while (!queue_.empty() && queue_.front().end <= now_ && answered_ < script_.answers_max) {
      on_answer(queue_.front());
      queue_.pop_front();
      ++answered_;
    }
    return fails_ ? absl::InternalError("planted") : absl::OkStatus();
  }

  size_t in_flight() const override { return queue_.size() + refusals_.size(); }
  size_t connections() const override { return 3; }

  void Fail() { fails_ = true; }
  std::vector<Clock::duration> all_latencies;

 private:
  TimePoint At(milliseconds since_start) const { return kStart + since_start; }

  static constexpr TimePoint kStart = TimePoint(std::chrono::hours(1));
  const Script script_;
  TimePoint now_ = kStart;
  TimePoint free_from_ = kStart;
  std::deque<OpenAnswer> queue_;
  std::vector<OpenAnswer> refusals_;
  uint64_t sent_ = 0;
  uint64_t answered_ = 0;
  bool fails_ = false;
};

OpenFigures RunScript(ScriptedClient& client, const OpenLoad& load) {
  const absl::StatusOr<OpenFigures> figures = RunOpen(client, load);
  EXPECT_TRUE(figures.ok()) << figures.status();
  return figures.value_or(OpenFigures{});
}

// What the header promises of the counts.
void ExpectNothingLost(const OpenFigures& figures, const OpenLoad& load) {
  PoissonArrivals arrivals(load.arrivals_per_second, load.seconds, load.seed);
  uint64_t offered = 0;
  while (arrivals.Next()) ++offered;
  EXPECT_EQ(figures.offered, offered);
  EXPECT_EQ(figures.offered, figures.sent + figures.no_connection + figures.generator_late);
  EXPECT_EQ(figures.sent, figures.in_time + figures.past_deadline + figures.refused + figures.late +
                              figures.failed + figures.unanswered);
  EXPECT_EQ(figures.latencies.count(), figures.in_time + figures.past_deadline);
  uint64_t coded = 0;
  for (const auto& [code, count] : figures.codes) coded += count;
  EXPECT_EQ(coded, figures.refused + figures.late + figures.failed);
}

TEST(OpenLoadTest, AFastServerAnswersAllInTime) {
  ScriptedClient client({.service = microseconds(10)});
  const OpenLoad load{.seconds = 2, .arrivals_per_second = 5'000};
  const OpenFigures figures = RunScript(client, load);
  ExpectNothingLost(figures, load);
  EXPECT_EQ(figures.in_time, figures.offered);
  EXPECT_EQ(figures.connections, 3u);
  EXPECT_DOUBLE_EQ(figures.Goodput(), static_cast<double>(figures.offered) / 2);
}

// Catches coordinated omission: a generator that waits for an answer before it sends on sees one
// slow request where hundreds of arrivals had to wait.
TEST(OpenLoadTest, AStallIsInTheLatenciesOfAllThatArrivedMeanwhile) {
  ScriptedClient client({.service = microseconds(20),
                         .stall_from = milliseconds(1000),
                         .stall_to = milliseconds(1500)});
  const OpenLoad load{
      .seconds = 2, .arrivals_per_second = 1'000, .timeout = milliseconds(50), .seed = 5};
  const OpenFigures figures = RunScript(client, load);
  ExpectNothingLost(figures, load);
  EXPECT_EQ(figures.sent, figures.offered);
  // A quarter of the arrivals fell into the stall; a tenth of those, those of its last 50 ms, were
  // still answered in time.
  EXPECT_NEAR(static_cast<double>(figures.past_deadline), 450, 90);
  EXPECT_NEAR(figures.latencies.QuantileUs(0.9), 300'000, 60'000);
  EXPECT_NEAR(figures.latencies.QuantileUs(1), 500'000, 15'000);
  // All of it is what the server itself knows to have let them wait.
  std::vector<Clock::duration> sorted = client.all_latencies;
  std::sort(sorted.begin(), sorted.end());
  ASSERT_EQ(sorted.size(), figures.latencies.count());
  for (const double quantile : {0.1, 0.5, 0.75, 0.9, 0.99}) {
    const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(sorted.size())));
    const double exact = std::chrono::duration<double, std::micro>(sorted[rank - 1]).count();
    EXPECT_NEAR(figures.latencies.QuantileUs(quantile), exact, exact * 0.005) << quantile;
  }
}

TEST(OpenLoadTest, RefusalsAreCountedByCodeAndAreNoGoodput) {
  ScriptedClient client({.service = microseconds(1'000), .queue_max = 10});
  const OpenLoad load{.seconds = 1, .arrivals_per_second = 10'000};
  const OpenFigures figures = RunScript(client, load);
  ExpectNothingLost(figures, load);
  EXPECT_NEAR(figures.Goodput(), 1'000, 15);
  EXPECT_EQ(figures.in_time + figures.refused, figures.offered);
  EXPECT_EQ(figures.codes.at(429), figures.refused);
}

TEST(OpenLoadTest, TellsLateFromFailedFromUnanswered) {
  const OpenLoad load{.seconds = 1, .arrivals_per_second = 1'000};
  for (const auto& [kind, code] :
       {std::pair{OpenAnswer::Kind::kLate, 504}, std::pair{OpenAnswer::Kind::kFailed, 503},
        std::pair{OpenAnswer::Kind::kFailed, 0}}) {
    ScriptedClient client({.kind = kind, .code = code});
    const OpenFigures figures = RunScript(client, load);
    ExpectNothingLost(figures, load);
    EXPECT_EQ(figures.codes.at(code), figures.offered);
    EXPECT_EQ(kind == OpenAnswer::Kind::kLate ? figures.late : figures.failed, figures.offered);
    EXPECT_EQ(figures.Goodput(), 0);
  }
  ScriptedClient client({.answers_max = 100});
  const OpenFigures figures = RunScript(client, load);
  ExpectNothingLost(figures, load);
  EXPECT_EQ(figures.in_time, 100u);
  EXPECT_EQ(figures.unanswered, figures.offered - 100);
}

TEST(OpenLoadTest, ArrivalsWithoutAConnectionAreCounted) {
  ScriptedClient client({.service = milliseconds(10), .in_flight_max = 4});
  const OpenLoad load{.seconds = 1, .arrivals_per_second = 2'000};
  const OpenFigures figures = RunScript(client, load);
  ExpectNothingLost(figures, load);
  EXPECT_NEAR(static_cast<double>(figures.sent), 100, 10);
  EXPECT_GT(figures.no_connection, 1'500u);
  EXPECT_EQ(figures.generator_late, 0u);
}

// A generator that can send only half of what arrives says so, and what it sends it sends in time.
TEST(OpenLoadTest, AGeneratorThatIsTooSlowIsCounted) {
  ScriptedClient client({.service = microseconds(1), .send_cost = microseconds(100)});
  const OpenLoad load{.seconds = 1, .arrivals_per_second = 20'000};
  const OpenFigures figures = RunScript(client, load);
  ExpectNothingLost(figures, load);
  EXPECT_NEAR(static_cast<double>(figures.generator_late), static_cast<double>(figures.offered) / 2,
              500);
  EXPECT_LE(figures.latencies.QuantileUs(1), 5'300);
}

TEST(OpenLoadTest, ErrorsOfTheClientEndIt) {
  ScriptedClient client({});
  client.Fail();
  EXPECT_EQ(RunOpen(client, {}).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(RunCapacity(client, {}).status().code(), absl::StatusCode::kInternal);
}

TEST(OpenLoadTest, ThreadsShareTheArrivalsAndTheirCountsAreAddedUp) {
  const OpenLoad load{.seconds = 1, .arrivals_per_second = 8'000};
  const auto figures = RunOpenOnThreads(
      [] { return std::make_unique<ScriptedClient>(Script{.service = microseconds(1)}); }, 4, load);
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_NEAR(static_cast<double>(figures->offered), 8'000, 600);
  EXPECT_EQ(figures->in_time, figures->offered);
  EXPECT_EQ(figures->connections, 12u);
  EXPECT_EQ(figures->seconds, 1);
  const auto failed = RunOpenOnThreads(
      []() -> absl::StatusOr<std::unique_ptr<OpenClient>> {
        return absl::UnavailableError("planted");
      },
      2, load);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
}

TEST(OpenLoadTest, CapacityIsWhatASaturatedServerAnswers) {
  ScriptedClient client({.service = microseconds(500)});
  const absl::StatusOr<double> one = RunCapacity(client, {.in_flight = 4, .seconds = 2});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_NEAR(*one, 2'000, 5);
  const auto two = RunCapacityOnThreads(
      [] { return std::make_unique<ScriptedClient>(Script{.service = microseconds(500)}); }, 2,
      {.in_flight = 4, .seconds = 1});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_NEAR(*two, 4'000, 10);
}

}  // namespace
}  // namespace hps::bench
