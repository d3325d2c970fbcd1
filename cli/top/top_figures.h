// What `hps top` shows, from two overviews of a server (docs/overview_api.md): sums become rates,
// histograms percentiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json_writer.h"

namespace hps::cli {

struct TopLatency {
  // Seconds; not set where nothing was answered.
  std::optional<double> p50{};
  std::optional<double> p95{};
  std::optional<double> p99{};
};

struct TopModel {
  std::string name;
  std::string version;
  std::string state;
  double requests_per_second = 0;
  double keys_per_second = 0;
  double failed_per_second = 0;
  uint64_t queue_depth = 0;
  TopLatency latency;
};

// Of a level or a table, the share of keys that were answered so.
struct TopShares {
  double l1 = 0;
  double l2 = 0;
  double l3 = 0;
  double absent = 0;
  double default_rows = 0;  // pending or degraded
};

struct TopNode {
  std::string address;
  bool bypassed = false;
  uint64_t failures = 0;
};

struct TopLevel {
  std::string name;
  bool up = true;
  std::optional<uint64_t> rows{};  // not set if the level does not know, as one on Redis
  std::optional<uint64_t> bytes{};
  uint64_t bytes_max = 0;  // 0 = none
  double evictions_per_second = 0;
  uint64_t errors = 0;
  std::vector<TopNode> nodes{};  // the servers of a level on Redis
};

struct TopTable {
  std::string name;
  uint64_t rows = 0;
  double keys_per_second = 0;
  std::optional<TopShares> shares{};
};

// The update stream.
struct TopStream {
  std::string problem;  // why it cannot be read; empty = it can
  double rows_per_second = 0;
  uint64_t lag_records = 0;
  double lag_seconds = 0;
  uint64_t parked = 0;
  std::optional<double> l3_freshness_p99_seconds{};  // publishing to level 3
};

// Each a second.
struct TopRates {
  double http = 0;
  double grpc = 0;
  double keys = 0;
  double refused = 0;
  double late = 0;
  double bad = 0;
};

struct TopFigures {
  std::string version;
  std::string state;
  double uptime_seconds = 0;
  TopRates rates;
  double cpu_cores = 0;
  uint64_t resident_bytes = 0;
  uint64_t connections_http = 0;
  TopLatency latency;  // of all models
  std::optional<TopShares> shares{};
  std::optional<TopStream> stream{};
  std::vector<TopLevel> levels;
  std::vector<TopModel> models;
  std::vector<TopTable> tables;  // the most asked first
};

// Errors: INVALID_ARGUMENT (not an overview, or of a later version), UNAVAILABLE (the server was
// started again in between: its sums are others).
absl::StatusOr<TopFigures> ComputeTopFigures(const std::string& before, const std::string& now);

// Lines for a terminal of that size; tables and models are cut to fit. `lines_max` 0 = all.
std::string TopText(const TopFigures& figures, size_t columns, size_t lines_max);

// An object with the members above.
void WriteTopJson(const TopFigures& figures, JsonWriter& json);

}  // namespace hps::cli
