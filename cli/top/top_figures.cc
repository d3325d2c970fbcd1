#include "cli/top/top_figures.h"

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hps::cli {
namespace {

using Json = nlohmann::json;  // of the server

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

TopFigures LatencyOf(const Counts& counts, const Counts& bounds) {
  TopFigures latency = TopFigures::object();
  for (const auto& [name, share] :
       {std::pair("p50", 0.5), std::pair("p95", 0.95), std::pair("p99", 0.99)}) {
    if (const auto seconds = Percentile(counts, bounds, share)) latency[name] = *seconds;
  }
  return latency;
}

// How keys were answered.
constexpr std::array kAnswers = {"l1", "l2", "l3", "absent", "default"};
using KeyCounts = std::array<double, kAnswers.size()>;

double Total(const KeyCounts& keys) { return std::accumulate(keys.begin(), keys.end(), 0.0); }

void AddShares(const KeyCounts& keys, TopFigures* object) {
  const double total = Total(keys);
  for (size_t i = 0; total > 0 && i < keys.size(); ++i) {
    (*object)["answered_by"][kAnswers[i]] = keys[i] / total;
  }
}

KeyCounts KeysBetween(const Json* before, const Json& now) {
  const Json none = Json::object();
  const Json& keys = now.contains("keys") ? now.at("keys") : none;
  const Json& former = before != nullptr && before->contains("keys") ? before->at("keys") : none;
  const auto count = [&](const char* status) {
    return std::max(0.0, CountOf(&keys, status) - CountOf(&former, status));
  };
  return {count("hit_l1"), count("hit_l2"), count("hit_l3"), count("absent"),
          count("default_pending") + count("default_degraded")};
}

TopFigures ServerFigures(const Pair& pair, double keys) {
  using Pointer = Json::json_pointer;
  const Json& server = pair.now.at("server");
  return {
      {"state", server.at("state").get<std::string>()},
      {"version", server.at("hps").get<std::string>()},
      {"uptime_seconds",
       (pair.now.at("unix_ms").get<double>() - server.at("start_unix_ms").get<double>()) * 1e-3},
      {"http_per_second", pair.Rate(Pointer("/server/requests/http"))},
      {"grpc_per_second", pair.Rate(Pointer("/server/requests/grpc"))},
      {"keys_per_second", keys / pair.seconds},
      {"refused_per_second", pair.SumRate(Pointer("/server/refused"))},
      {"late_per_second", pair.SumRate(Pointer("/server/deadlines_exceeded"))},
      {"wrong_per_second", pair.SumRate(Pointer("/server/bad_requests"))},
      {"cpu_cores", pair.Rate(Pointer("/process/cpu_seconds"))},
      {"resident_bytes", pair.now.at("process").at("resident_bytes").get<uint64_t>()},
      {"connections_http", server.at("connections_http").get<uint64_t>()}};
}

// Adds the latency of all models to `figures`, and returns the models.
TopFigures AddLatency(const Pair& pair, TopFigures* figures) {
  const Counts bounds = pair.now.at("latency_bucket_seconds").get<Counts>();
  TopFigures models = TopFigures::array();
  Counts all;
  for (const Json& model : pair.now.at("models")) {
    const auto name = model.at("name").get<std::string>();
    const Json* const before = FindNamed(pair.before, "models", name);
    const auto rate = [&](const char* counter) {
      return pair.Rate(CountOf(before, counter), CountOf(&model, counter));
    };
    Counts counts;
    AddTotalStage(&model, 1, counts);
    AddTotalStage(before, -1, counts);
    models.push_back({{"name", name},
                      {"version", model.at("version").get<std::string>()},
                      {"state", model.at("state").get<std::string>()},
                      {"requests_per_second", rate("requests")},
                      {"keys_per_second", rate("keys")},
                      {"failed_per_second", rate("requests_failed")},
                      {"queue_depth", model.at("queue_depth").get<uint64_t>()},
                      {"latency_seconds", LatencyOf(counts, bounds)}});
    all.resize(std::max(all.size(), counts.size()));
    for (size_t i = 0; i < counts.size(); ++i) all[i] += counts[i];
  }
  (*figures)["latency_seconds"] = LatencyOf(all, bounds);
  return models;
}

// Adds the keys of all tables to `all`. The tables that were asked most come first.
TopFigures TablesOf(const Pair& pair, KeyCounts* all) {
  std::vector<TopFigures> tables;
  for (const Json& table : pair.now.at("tables")) {
    const auto name = table.at("name").get<std::string>();
    const KeyCounts keys = KeysBetween(FindNamed(pair.before, "tables", name), table);
    TopFigures& top =
        tables.emplace_back(TopFigures{{"name", name},
                                       {"rows", table.at("rows").get<uint64_t>()},
                                       {"keys_per_second", Total(keys) / pair.seconds}});
    AddShares(keys, &top);
    for (size_t i = 0; i < keys.size(); ++i) (*all)[i] += keys[i];
  }
  std::stable_sort(tables.begin(), tables.end(), [](const TopFigures& a, const TopFigures& b) {
    return a.at("keys_per_second").get<double>() > b.at("keys_per_second").get<double>();
  });
  return tables;
}

TopFigures LevelsOf(const Pair& pair) {
  TopFigures levels = TopFigures::array();
  for (const Json& level : pair.now.at("levels")) {
    const auto name = level.at("name").get<std::string>();
    TopFigures top = {{"name", name}, {"up", level.at("up").get<bool>()}};
    // A level on Redis does not know its rows and bytes; bytes_max 0 = no budget.
    for (const char* amount : {"rows", "bytes", "bytes_max"}) {
      if (!level.contains(amount)) continue;
      const auto value = level.at(amount).get<uint64_t>();
      if (value > 0 || amount != std::string_view("bytes_max")) top[amount] = value;
    }
    top["evictions_per_second"] = pair.Rate(
        CountOf(FindNamed(pair.before, "levels", name), "evictions"), CountOf(&level, "evictions"));
    top["errors"] = level.at("errors").get<uint64_t>();
    for (const Json& node : level.value("nodes", Json::array())) {
      top["nodes"].push_back({{"address", node.at("address").get<std::string>()},
                              {"bypassed", node.at("bypassed").get<bool>()},
                              {"failures", node.at("failures").get<uint64_t>()}});
    }
    levels.push_back(std::move(top));
  }
  return levels;
}

void AddStream(const Pair& pair, TopFigures* figures) {
  const Json stream = pair.now.value("stream", Json());
  if (stream.is_null()) return;
  TopFigures& top = (*figures)["stream"];
  top = {{"problem", stream.at("problem").get<std::string>()},
         {"rows_per_second", pair.Rate(Json::json_pointer("/updates/rows_upserted")) +
                                 pair.Rate(Json::json_pointer("/updates/rows_deleted"))},
         {"lag_records", stream.at("lag_records").get<uint64_t>()},
         {"lag_seconds", stream.at("lag_seconds").get<double>()},
         {"parked", static_cast<uint64_t>(Sum(stream.at("parked")))}};
  Counts counts = stream.at("freshness").at("l3").at("counts").get<Counts>();
  const Json former = pair.before.value("stream", Json());
  if (!former.is_null()) {
    const Counts before = former.at("freshness").at("l3").at("counts").get<Counts>();
    for (size_t i = 0; i < std::min(counts.size(), before.size()); ++i) counts[i] -= before[i];
  }
  const Counts bounds = stream.at("freshness_bucket_seconds").get<Counts>();
  if (const auto p99 = Percentile(counts, bounds, 0.99)) top["l3_freshness_p99_seconds"] = *p99;
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
    KeyCounts keys{};
    TopFigures tables = TablesOf(pair, &keys);
    TopFigures figures = ServerFigures(pair, Total(keys));
    TopFigures models = AddLatency(pair, &figures);
    AddShares(keys, &figures);
    AddStream(pair, &figures);
    figures["levels"] = LevelsOf(pair);
    figures["models"] = std::move(models);
    figures["tables"] = std::move(tables);
    return figures;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the answer is not an overview of an hps server: ", error.what()));
  }
}

}  // namespace hps::cli
