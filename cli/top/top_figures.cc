#include "cli/top/top_figures.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace hps::cli {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

double Sum(const Json& object) {
  double sum = 0;
  for (const auto& [name, count] : object.items()) sum += count.get<double>();
  return sum;
}

// Two overviews and the time between them.
struct Pair {
  const Json& before;
  const Json& now;
  double seconds;

  double Rate(double then, double at_last) const { return std::max(0.0, at_last - then) / seconds; }
  double Rate(const Json::json_pointer& counter) const {
    return Rate(before.at(counter).get<double>(), now.at(counter).get<double>());
  }
  double SumRate(const Json::json_pointer& counters) const {
    return Rate(Sum(before.at(counters)), Sum(now.at(counters)));
  }
};

// The element of that name in the list `which` of `overview`; null when there is none.
const Json* FindNamed(const Json& overview, const char* which, const std::string& name) {
  for (const Json& element : overview.at(which)) {
    if (element.at("name") == name) return &element;
  }
  return nullptr;
}

double CountOf(const Json* object, const char* member) {
  return object == nullptr ? 0 : object->value(member, 0.0);
}

using Counts = std::vector<double>;

void AddTotalStage(const Json* model, double sign, Counts& counts) {
  if (model == nullptr || !model->at("stages").contains("total")) return;
  const Json& added = model->at("stages").at("total").at("counts");
  counts.resize(std::max(counts.size(), added.size()));
  for (size_t i = 0; i < added.size(); ++i) counts[i] += sign * added[i].get<double>();
}

// Linear inside a bucket.
std::optional<double> Percentile(const Counts& counts, const Counts& bounds, double share) {
  double total = 0;
  for (const double count : counts) total += count;
  if (total <= 0) return std::nullopt;
  double left = share * total;
  for (size_t i = 0; i < counts.size() && i < bounds.size(); ++i) {
    if (counts[i] > 0 && counts[i] >= left) {
      const double low = i == 0 ? 0 : bounds[i - 1];
      return low + (bounds[i] - low) * left / counts[i];
    }
    left -= counts[i];
  }
  return bounds.empty() ? std::nullopt : std::optional(bounds.back());
}

TopLatency LatencyOf(const Counts& counts, const Counts& bounds) {
  return {.p50 = Percentile(counts, bounds, 0.5),
          .p95 = Percentile(counts, bounds, 0.95),
          .p99 = Percentile(counts, bounds, 0.99)};
}

struct KeyCounts {
  double l1 = 0;
  double l2 = 0;
  double l3 = 0;
  double absent = 0;
  double default_rows = 0;

  double total() const { return l1 + l2 + l3 + absent + default_rows; }
  void Add(const KeyCounts& other) {
    l1 += other.l1;
    l2 += other.l2;
    l3 += other.l3;
    absent += other.absent;
    default_rows += other.default_rows;
  }
  std::optional<TopShares> shares() const {
    if (total() <= 0) return std::nullopt;
    return TopShares{.l1 = l1 / total(),
                     .l2 = l2 / total(),
                     .l3 = l3 / total(),
                     .absent = absent / total(),
                     .default_rows = default_rows / total()};
  }
};

KeyCounts KeysBetween(const Json* before, const Json& now) {
  const Json none = Json::object();
  const Json& keys = now.contains("keys") ? now.at("keys") : none;
  const Json& former = before != nullptr && before->contains("keys") ? before->at("keys") : none;
  const auto count = [&](const char* status) {
    return std::max(0.0, CountOf(&keys, status) - CountOf(&former, status));
  };
  return {.l1 = count("hit_l1"),
          .l2 = count("hit_l2"),
          .l3 = count("hit_l3"),
          .absent = count("absent"),
          .default_rows = count("default_pending") + count("default_degraded")};
}

void FillServer(const Pair& pair, TopFigures* figures) {
  const Json& server = pair.now.at("server");
  figures->version = server.at("hps").get<std::string>();
  figures->state = server.at("state").get<std::string>();
  figures->uptime_seconds =
      (pair.now.at("unix_ms").get<double>() - server.at("start_unix_ms").get<double>()) * 1e-3;
  figures->rates.http = pair.Rate(Json::json_pointer("/server/requests/http"));
  figures->rates.grpc = pair.Rate(Json::json_pointer("/server/requests/grpc"));
  figures->rates.refused = pair.SumRate(Json::json_pointer("/server/refused"));
  figures->rates.late = pair.SumRate(Json::json_pointer("/server/deadlines_exceeded"));
  figures->rates.bad = pair.SumRate(Json::json_pointer("/server/bad_requests"));
  figures->cpu_cores = pair.Rate(Json::json_pointer("/process/cpu_seconds"));
  figures->resident_bytes = pair.now.at("process").at("resident_bytes").get<uint64_t>();
  figures->connections_http = server.at("connections_http").get<uint64_t>();
}

void FillModels(const Pair& pair, TopFigures* figures) {
  const Counts bounds = pair.now.at("latency_bucket_seconds").get<Counts>();
  Counts all;
  for (const Json& model : pair.now.at("models")) {
    TopModel& top = figures->models.emplace_back();
    top.name = model.at("name").get<std::string>();
    top.version = model.at("version").get<std::string>();
    top.state = model.at("state").get<std::string>();
    top.queue_depth = model.at("queue_depth").get<uint64_t>();
    const Json* const before = FindNamed(pair.before, "models", top.name);
    const auto rate = [&](const char* counter) {
      return pair.Rate(CountOf(before, counter), CountOf(&model, counter));
    };
    top.requests_per_second = rate("requests");
    top.keys_per_second = rate("keys");
    top.failed_per_second = rate("requests_failed");
    Counts counts;
    AddTotalStage(&model, 1, counts);
    AddTotalStage(before, -1, counts);
    top.latency = LatencyOf(counts, bounds);
    all.resize(std::max(all.size(), counts.size()));
    for (size_t i = 0; i < counts.size(); ++i) all[i] += counts[i];
  }
  figures->latency = LatencyOf(all, bounds);
}

void FillTables(const Pair& pair, TopFigures* figures) {
  KeyCounts all;
  for (const Json& table : pair.now.at("tables")) {
    TopTable& top = figures->tables.emplace_back();
    top.name = table.at("name").get<std::string>();
    top.rows = table.at("rows").get<uint64_t>();
    const KeyCounts keys = KeysBetween(FindNamed(pair.before, "tables", top.name), table);
    top.keys_per_second = keys.total() / pair.seconds;
    top.shares = keys.shares();
    all.Add(keys);
  }
  figures->rates.keys = all.total() / pair.seconds;
  figures->shares = all.shares();
  std::stable_sort(
      figures->tables.begin(), figures->tables.end(),
      [](const TopTable& a, const TopTable& b) { return a.keys_per_second > b.keys_per_second; });
}

void FillLevels(const Pair& pair, TopFigures* figures) {
  for (const Json& level : pair.now.at("levels")) {
    TopLevel& top = figures->levels.emplace_back();
    top.name = level.at("name").get<std::string>();
    top.up = level.at("up").get<bool>();
    if (level.contains("rows")) top.rows = level.at("rows").get<uint64_t>();
    if (level.contains("bytes")) top.bytes = level.at("bytes").get<uint64_t>();
    top.bytes_max = level.value("bytes_max", uint64_t{0});
    top.errors = level.at("errors").get<uint64_t>();
    top.evictions_per_second =
        pair.Rate(CountOf(FindNamed(pair.before, "levels", top.name), "evictions"),
                  CountOf(&level, "evictions"));
    for (const Json& node : level.value("nodes", Json::array())) {
      top.nodes.push_back({.address = node.at("address").get<std::string>(),
                           .bypassed = node.at("bypassed").get<bool>(),
                           .failures = node.at("failures").get<uint64_t>()});
    }
  }
}

void FillStream(const Pair& pair, TopFigures* figures) {
  const Json stream = pair.now.value("stream", Json());
  if (stream.is_null()) return;
  TopStream& top = figures->stream.emplace();
  top.problem = stream.at("problem").get<std::string>();
  top.rows_per_second = pair.Rate(Json::json_pointer("/updates/rows_upserted")) +
                        pair.Rate(Json::json_pointer("/updates/rows_deleted"));
  top.lag_records = stream.at("lag_records").get<uint64_t>();
  top.lag_seconds = stream.at("lag_seconds").get<double>();
  top.parked = static_cast<uint64_t>(Sum(stream.at("parked")));
  Counts counts = stream.at("freshness").at("l3").at("counts").get<Counts>();
  const Json former = pair.before.value("stream", Json());
  if (!former.is_null()) {
    const Counts before = former.at("freshness").at("l3").at("counts").get<Counts>();
    for (size_t i = 0; i < std::min(counts.size(), before.size()); ++i) counts[i] -= before[i];
  }
  top.l3_freshness_p99_seconds =
      Percentile(counts, stream.at("freshness_bucket_seconds").get<Counts>(), 0.99);
}

}  // namespace

absl::StatusOr<TopFigures> ComputeTopFigures(const std::string& before, const std::string& now) {
  try {
    const Json former = Json::parse(before);
    const Json latest = Json::parse(now);
    for (const Json* overview : {&former, &latest}) {
      const int version = overview->at("version").get<int>();
      if (version == kVersion) continue;
      return absl::InvalidArgumentError(absl::StrCat("the server's overview is of version ",
                                                     version, "; this hps reads ", kVersion));
    }
    if (former.at("server").at("start_unix_ms") != latest.at("server").at("start_unix_ms")) {
      return absl::UnavailableError("the server was started again");
    }
    const double seconds =
        (latest.at("unix_ms").get<double>() - former.at("unix_ms").get<double>()) * 1e-3;
    const Pair pair = {.before = former, .now = latest, .seconds = std::max(seconds, 1e-3)};
    TopFigures figures;
    FillServer(pair, &figures);
    FillModels(pair, &figures);
    FillTables(pair, &figures);
    FillLevels(pair, &figures);
    FillStream(pair, &figures);
    return figures;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the answer is not an overview of an hps server: ", error.what()));
  }
}

}  // namespace hps::cli
