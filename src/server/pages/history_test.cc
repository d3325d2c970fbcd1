#include "server/pages/history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "server/pages/test_pages_world.h"

namespace hps::server {
namespace {

using Json = nlohmann::json;

constexpr Duration kNever = std::chrono::hours(24);
constexpr Duration kWait = std::chrono::seconds(60);

class HistoryTest : public PagesWorld {
 protected:
  std::unique_ptr<History> Started(Duration period = kNever) {
    auto history = History::Start(statistics_, *store_, period);
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : nullptr;
  }

  // The samples, once there are as many; the first is taken by a thread.
  static Json Samples(const History& history, size_t count) {
    Json samples;
    const Deadline deadline = DeadlineAfter(RealClock(), kWait);
    do {
      samples = Json::parse(history.JsonText())["samples"];
    } while (samples.size() < count && RealClock().Now() < deadline);
    EXPECT_GE(samples.size(), count);
    return samples;
  }
};

TEST_F(HistoryTest, ASampleHasTheSumsOverModels) {
  const Config config;
  statistics_.statistics = FullSnapshot(&config).server;
  statistics_.statistics.models.push_back(statistics_.statistics.models[0]);
  const auto history = Started();
  const Json sample = Samples(*history, 1)[0];
  EXPECT_EQ(sample["requests"], Json({{"http", 11}, {"grpc", 12}}));
  EXPECT_EQ(sample["refused"], 4);
  EXPECT_EQ(sample["bad_requests"], 4);
  EXPECT_EQ(sample["deadlines_exceeded"], 2);
  EXPECT_EQ(sample["auth_failures"], 5);
  EXPECT_EQ(sample["queue_depth"], 12);
  EXPECT_EQ(sample["stages"][0][9], 20);
  EXPECT_EQ(sample["stages"][0].size(), kLatencyBucketSeconds.size() + 1);
  EXPECT_EQ(sample["keys"].size(), kKeyStatusCount);
  EXPECT_GT(sample["cpu_seconds"], 0.0);
  EXPECT_GT(sample["unix_ms"], 1'700'000'000'000);
  const Json json = Json::parse(history->JsonText());
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["stages"][0], "total");
  EXPECT_EQ(json["key_statuses"].size(), kKeyStatusCount);
}

TEST_F(HistoryTest, SamplesAreTakenByTheServerItself) {
  const auto history = Started(std::chrono::milliseconds(1));
  const Json samples = Samples(*history, 5);
  for (size_t i = 1; i < samples.size(); ++i)
    EXPECT_GE(samples[i]["unix_ms"], samples[i - 1]["unix_ms"]);
}

TEST_F(HistoryTest, TheOldestSampleGoesWhenTheRingIsFull) {
  const auto history = Started();
  Samples(*history, 1);
  for (uint64_t number = 1; number <= 2 * History::kSamplesMax + 3; ++number) {
    history->Add({.unix_ms = number});
    if (number % History::kSamplesMax > 2) continue;
    const Json samples = Samples(*history, std::min(number + 1, History::kSamplesMax));
    ASSERT_LE(samples.size(), History::kSamplesMax);
    for (size_t i = 0; i < std::min<size_t>(number, samples.size()); ++i)
      ASSERT_EQ(samples[samples.size() - 1 - i]["unix_ms"], number - i);
  }
}

TEST_F(HistoryTest, ItIsReadWhileSamplesAreTaken) {
  const auto history = Started(std::chrono::microseconds(10));
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      for (int time = 0; time < 20; ++time) Samples(*history, 1);
    });
  }
  for (std::thread& reader : readers) reader.join();
}

TEST_F(HistoryTest, ItEndsAtOnce) {
  const TimePoint begin = RealClock().Now();
  Started().reset();
  EXPECT_LT(RealClock().Now() - begin, kWait);
}

}  // namespace
}  // namespace hps::server
