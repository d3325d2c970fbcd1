#include "server/pages/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "server/pages/metric_list.h"
#include "server/pages/test_pages_world.h"

namespace hps::server {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Sample with its labels -> value.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  for (const std::string& line : Lines(text)) {
    if (line.starts_with('#')) continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space))).second)
        << "twice: " << line;
  }
  return samples;
}

TEST(MetricsTest, SaysEveryPromisedSignal) {
  const Config config;
  const std::map<std::string, double> samples = Samples(MetricsText(FullSnapshot(&config)));
  const std::map<std::string, double> expected = {
      {R"(hps_lookup_keys_total{table="m/t",status="absent"})", 1},
      {R"(hps_lookup_keys_total{table="m/t",status="hit_l3"})", 4},
      {R"(hps_lookup_keys_total{table="m/t",status="default_degraded"})", 6},
      {R"(hps_lookup_seconds_bucket{model="m",stage="total",le="5e-05"})", 5},
      {R"(hps_lookup_seconds_bucket{model="m",stage="total",le="0.001"})", 15},
      {R"(hps_lookup_seconds_bucket{model="m",stage="total",le="+Inf"})", 16},
      {R"(hps_lookup_seconds_count{model="m",stage="total"})", 16},
      {R"(hps_lookup_seconds_sum{model="m",stage="total"})", 2.5},
      {R"(hps_tier_up{tier="l1"})", 1},
      {R"(hps_tier_up{tier="l2"})", 1},
      {R"(hps_tier_up{tier="l3"})", 1},
      {R"(hps_tier_errors_total{tier="l2",code="DEADLINE_EXCEEDED"})", 1},
      {R"(hps_tier_errors_total{tier="l2",code="UNKNOWN"})", 1},
      {R"(hps_tier_errors_total{tier="l3",code="DATA_LOSS"})", 4},
      {R"(hps_tier_errors_total{tier="l3",code="UNAVAILABLE"})", 2},
      {R"(hps_tier_errors_total{tier="l3",code="UNKNOWN"})", 1},
      {R"(hps_requests_refused_total{reason="capacity"})", 3},
      {R"(hps_deadline_exceeded_total{stage="queue"})", 2},
      {R"(hps_queue_depth{queue="m"})", 6},
      {R"(hps_auth_failures_total)", 5},
      {R"(hps_tls_certificate_not_after_seconds)", 1'800'000'000},
      {R"(hps_bad_requests_total{reason="syntax"})", 4},
      {R"(hps_store_free_bytes)", 1 << 20},
      {R"(hps_store_background_errors_total)", 1},
      {R"(hps_store_merges_total{result="ok"})", 7},
      {R"(hps_store_merges_total{result="error"})", 2},
      {R"(hps_store_merged_bytes_total)", 4096},
      {R"(hps_row_checksum_failures_total{tier="l3"})", 2},
      {R"(hps_recovery_seconds)", 0.25},
      {R"(hps_level_rows{table="m/t",level="l2"})", 50},
      {R"(hps_level_evictions_total{table="m/t",level="l2"})", 8},
      {R"(hps_device_keys_total{table="m/t",device="0",outcome="miss"})", 30},
      {R"(hps_device_up{device="0"})", 1},
      {R"(hps_batch_requests_bucket{model="m",le="2"})", 8},
      {R"(hps_model_ready{model="n"})", 0},
      {R"(hps_network_runs_total{model="m",place="gpu"})", 4},
      {R"(hps_network_runs_total{model="m",place="cpu"})", 2},
      {R"(hps_network_runs_total{model="m",place="cpu_after_gpu"})", 1},
      {R"(hps_log_lines_total{level="error"})", 3},
      {R"(nv_inference_request_success{model="m",version="3"})", 20},
      {R"(nv_inference_request_duration_us{model="m",version="3"})", 2'500'000},
      {R"(process_cpu_seconds_total)", 1.5},
      {R"(process_resident_memory_bytes)", 77}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(samples.contains(name)) << name;
    EXPECT_EQ(samples.at(name), value) << name;
  }
}

// What Prometheus refuses: a sample without its family's TYPE above it, a family in two places.
TEST(MetricsTest, IsPrometheusText) {
  const Config config;
  const std::string text = MetricsText(FullSnapshot(&config));
  std::set<std::string> seen;
  std::string family;
  const std::regex sample(R"(([a-z_0-9]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? \S+)");
  for (const std::string& line : Lines(text)) {
    if (line.starts_with("# HELP")) continue;
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(family).second) << family;
      EXPECT_THAT(family, AnyOf(StartsWith("hps_"), StartsWith("nv_"), StartsWith("process_")));
      continue;
    }
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_THAT(match[1].str(),
                AnyOf(family, family + "_bucket", family + "_sum", family + "_count"));
  }
}

TEST(MetricsTest, HasNoSamplesOfLevelsThatAreNotThere) {
  Config config;
  config.l2.kind = L2Kind::kNone;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.tables[0].l1_devices.clear();
  snapshot.store.devices.clear();
  const std::string text = MetricsText(snapshot);
  EXPECT_THAT(text, Not(HasSubstr("tier=\"l1\"")));
  EXPECT_THAT(text, Not(HasSubstr("tier=\"l2\"")));
  EXPECT_THAT(text, Not(HasSubstr("hps_level_")));
}

TEST(MetricsTest, WithoutTlsThereIsNoCertificate) {
  const Config config;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.server.certificate_not_after = 0;
  EXPECT_THAT(MetricsText(snapshot), Not(HasSubstr("certificate")));
}

TEST(MetricsTest, TheServersOfRedis) {
  Config config;
  config.l2.kind = L2Kind::kRedis;
  Snapshot snapshot = FullSnapshot(&config);
  RemoteLevelStatistics& redis = snapshot.store.l2_remote;
  redis.nodes = {{.address = "a:1", .bypassed = false, .failures = 3},
                 {.address = "b:2", .bypassed = true, .failures = 4}};
  redis.failures = 9;  // two of a server that is gone
  redis.failures_by_code[static_cast<size_t>(absl::StatusCode::kPermissionDenied)] = 9;
  redis.moved = 5;
  redis.changes_given_up = 6;
  const std::string text = MetricsText(snapshot);
  const auto samples = Samples(text);
  EXPECT_EQ(samples.at(R"(hps_breaker_state{node="a:1"})"), 0);
  EXPECT_EQ(samples.at(R"(hps_breaker_state{node="b:2"})"), 1);
  EXPECT_EQ(samples.at(R"(hps_redis_failures_total{node="b:2"})"), 4);
  EXPECT_EQ(samples.at(R"(hps_redis_redirects_total{kind="moved"})"), 5);
  EXPECT_EQ(samples.at("hps_redis_changes_given_up_total"), 6);
  EXPECT_EQ(samples.at(R"(hps_tier_errors_total{tier="l2",code="PERMISSION_DENIED"})"), 9);
  EXPECT_EQ(samples.at(R"(hps_tier_up{tier="l2"})"), 0);
  // What Redis holds is not known.
  EXPECT_THAT(text, Not(HasSubstr("hps_level_rows{table=\"m/t\",level=\"l2\"}")));
  EXPECT_TRUE(samples.contains(R"(hps_level_insertions_total{table="m/t",level="l2"})"));
}

TEST(MetricsTest, ServersOfRedisBehindMemory) {
  Config config;
  config.l2.kind = L2Kind::kMemoryRedis;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.l2_remote.nodes = {{.address = "a:1", .bypassed = false, .failures = 3}};
  const auto samples = Samples(MetricsText(snapshot));
  EXPECT_EQ(samples.at(R"(hps_breaker_state{node="a:1"})"), 0);
  EXPECT_TRUE(samples.contains(R"(hps_level_rows{table="m/t",level="l2"})"));
}

TEST(MetricsTest, AStoreThatCanNotBeWrittenIsATierThatIsDown) {
  const Config config;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.l3.writable = false;
  EXPECT_EQ(Samples(MetricsText(snapshot)).at(R"(hps_tier_up{tier="l3"})"), 0);
  snapshot.store.l3.read_only = true;
  const auto samples = Samples(MetricsText(snapshot));
  EXPECT_EQ(samples.at(R"(hps_tier_up{tier="l3"})"), 1);
  EXPECT_EQ(samples.at("hps_store_writable"), 1);
  EXPECT_EQ(samples.at("hps_store_read_only"), 1);
  EXPECT_EQ(samples.at("hps_store_free_bytes_min"), 0);
}

TEST(MetricsTest, ADeviceThatDoesNotAnswerIsATierThatIsDown) {
  const Config config;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.l1_unavailable = 1;
  snapshot.store.devices.push_back({.device = 1, .up = false});
  const auto samples = Samples(MetricsText(snapshot));
  EXPECT_EQ(samples.at(R"(hps_tier_up{tier="l1"})"), 0);
  EXPECT_EQ(samples.at(R"(hps_tier_up{tier="l2"})"), 1);
  EXPECT_EQ(samples.at(R"(hps_device_up{device="0"})"), 1);
  EXPECT_EQ(samples.at(R"(hps_device_up{device="1"})"), 0);
}

// Catches: a tier whose sample vanishes, and with it the alert, because no device has a cache.
TEST(MetricsTest, ATierWithoutAnyOfItsDevicesIsDown) {
  const Config config;
  Snapshot snapshot = FullSnapshot(&config);
  snapshot.store.tables[0].l1_devices.clear();
  snapshot.store.devices = {{.device = 0, .up = false}, {.device = 1, .up = false}};
  const auto samples = Samples(MetricsText(snapshot));
  EXPECT_EQ(samples.at(R"(hps_tier_up{tier="l1"})"), 0);
  EXPECT_EQ(samples.at(R"(hps_device_up{device="1"})"), 0);
}

// Families move when others are added; a builder must still add to its own.
TEST(MetricListTest, BuildersStayWithTheirFamily) {
  MetricList list;
  MetricFamilyBuilder first = list.Counter("first", "help");
  for (int i = 0; i < 100; ++i) list.Gauge(("g" + std::to_string(i)).c_str(), "h").Add(1.0);
  first.Add(uint64_t{5});
  list.Counter("never_used", "help");
  EXPECT_EQ(Samples(list.Text()).at("first"), 5);
  EXPECT_THAT(list.Text(), Not(HasSubstr("never_used")));
}

}  // namespace
}  // namespace hps::server
