#include "server/pages/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "server/pages/assets.h"
#include "server/pages/history.h"
#include "server/pages/test_pages_world.h"

namespace hps::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now; }
  TimePoint now{};
};

class PagesTest : public PagesWorld {
 protected:
  PagesTest()
      : pages_(MakePages({.config = &config_,
                          .store = store_.get(),
                          .statistics = &statistics_,
                          .repository = &repository_,
                          .clock = &clock_})) {}

  std::string Body(std::string_view path, std::string_view query = {}) {
    const auto page = pages_->Get(path, query);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? std::string(page->body()) : "";
  }

  ManualClock clock_;
  std::unique_ptr<PageSource> pages_;
};

TEST_F(PagesTest, HasTheFourPages) {
  EXPECT_THAT(Body("/"), StartsWith("<!doctype html>"));
  EXPECT_EQ(pages_->Get("/metrics", "")->content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(Body("/metrics"), HasSubstr("hps_table_rows{table=\"m/t\"} 4\n"));
  EXPECT_EQ(pages_->Get("/api/overview", "")->content_type, "application/json");
  EXPECT_THAT(Body("/api/overview"), HasSubstr("\"name\":\"m/t\""));
  EXPECT_THAT(Body("/api/lookup", "table=m/t&key=0"), HasSubstr("\"row\":[1,1.5]"));
}

TEST_F(PagesTest, TheHistoryIsMadeAtMostFourTimesASecond) {
  FakePageStatistics measured;
  auto history = History::Start(measured, *store_, std::chrono::hours(24));
  ASSERT_TRUE(history.ok()) << history.status();
  pages_ = MakePages({.config = &config_,
                      .store = store_.get(),
                      .statistics = &statistics_,
                      .repository = &repository_,
                      .history = history->get(),
                      .clock = &clock_});
  (*history)->Add({.unix_ms = 17});
  const std::string first = Body("/api/history");
  EXPECT_THAT(first, HasSubstr("\"unix_ms\":17,"));
  EXPECT_EQ(pages_->Get("/api/history", "")->content_type, "application/json");
  (*history)->Add({.unix_ms = 18});
  clock_.now += std::chrono::milliseconds(249);
  EXPECT_EQ(Body("/api/history"), first);
  clock_.now += std::chrono::milliseconds(1);
  EXPECT_THAT(Body("/api/history"), HasSubstr("\"unix_ms\":18,"));
}

TEST_F(PagesTest, OtherPathsAreNotFound) {
  for (const char* path :
       {"", "/x", "/metrics/", "/assets/", "/assets/../pages.cc", "/api", "/api/history"}) {
    EXPECT_EQ(pages_->Get(path, "").status().code(), absl::StatusCode::kNotFound) << path;
  }
  EXPECT_EQ(pages_->Get("/api/lookup", "table=m/t").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Ten dashboards must not cost ten times the statistics.
TEST_F(PagesTest, SnapshotsAreTakenAtMostFourTimesASecond) {
  const std::string first = Body("/metrics");
  statistics_.statistics.auth_failures = 77;
  clock_.now += std::chrono::milliseconds(249);
  EXPECT_EQ(Body("/metrics"), first);
  EXPECT_EQ(statistics_.asked, 1);
  clock_.now += std::chrono::milliseconds(1);
  EXPECT_THAT(Body("/metrics"), HasSubstr("hps_auth_failures_total 77"));
  EXPECT_EQ(statistics_.asked, 2);
}

TEST_F(PagesTest, LookupsShowInTheMetrics) {
  Body("/api/lookup", "table=m/t&key=0");
  Body("/api/lookup", "table=m/t&key=12345");
  const std::string metrics = Body("/metrics");
  EXPECT_THAT(metrics, HasSubstr(R"(hps_lookup_keys_total{table="m/t",status="hit_l3"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"(hps_lookup_keys_total{table="m/t",status="absent"} 1)"));
  EXPECT_THAT(metrics, Not(HasSubstr("12345")));
  EXPECT_THAT(metrics, Not(HasSubstr(directory_)));
  EXPECT_THAT(Body("/api/overview"), Not(HasSubstr(directory_)));
}

// The page must work under its own Content-Security-Policy and without internet: no inline script,
// style or handler, and every file that it names is there.
TEST_F(PagesTest, TheDashboardIsComplete) {
  std::set<std::string> paths;
  for (const Asset& asset : Assets()) paths.emplace(asset.path);
  const std::regex reference(R"re((?:href|src)="([^"#]+)"|from "\.(/[^"]+)")re");
  for (const Asset& asset : Assets()) {
    const std::string text(asset.bytes);
    EXPECT_THAT(text, Not(HasSubstr("https://"))) << asset.path;
    EXPECT_THAT(text, Not(HasSubstr("innerHTML"))) << asset.path;
    for (std::sregex_iterator match(text.begin(), text.end(), reference), end; match != end;
         ++match) {
      const std::string path =
          (*match)[1].matched ? (*match)[1].str() : "/assets" + (*match)[2].str();
      EXPECT_TRUE(paths.contains(path) || path == "/metrics" || path == "/api/overview") << path;
    }
  }
  const std::string page = Body("/");
  EXPECT_FALSE(std::regex_search(page, std::regex(R"(\son\w+=|<style|style=|<script>)")));
}

}  // namespace
}  // namespace hps::server
