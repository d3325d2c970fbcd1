#include "bench/serve/serve_overload.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/cores.h"
#include "bench/measure.h"
#include "bench/report.h"

namespace hps::bench {
namespace {

// Shares of the capacity: once each, and the one that is judged.
constexpr std::array kLoads = {0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0};
constexpr double kOverload = 10;
constexpr size_t kJudgedRounds = 9;
// What is offered at least: where nothing was answered in time, that is to be seen.
constexpr double kArrivalsPerSecondMin = 100;
// In a closed loop: with few the server waits for the generator, with many it has more to do than
// it can keep together.
constexpr std::array<size_t, 3> kCapacityInFlight = {16, 64, 256};
// More threads than that would take more from the memory's bandwidth than they add.
constexpr size_t kGeneratorThreadsMax = 8;

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double OwnProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// What both processes have spent.
struct Spent {
  double client_seconds = 0;
  double server_seconds = 0;
  double memory_bytes = 0;  // of the server

  void Add(const Spent& other) {
    client_seconds += other.client_seconds;
    server_seconds += other.server_seconds;
    memory_bytes += other.memory_bytes;
  }
};

class Overload {
 public:
  Overload(const OverloadTarget& target, const OverloadSizes& sizes)
      : target_(target),
        sizes_(sizes),
        split_(target.server->pid()),
        threads_(std::clamp<size_t>(split_.own_cores(), 1, kGeneratorThreadsMax)) {}

  absl::Status Run(std::vector<Result>& results) {
    HPS_RETURN_IF_ERROR(MeasureCapacity(results));
    // The first time the server takes memory for so many connections: let there be all of them.
    const CapacityLoad all{.in_flight = std::max<size_t>(sizes_.in_flight_max / threads_, 1),
                           .seconds = sizes_.seconds};
    HPS_RETURN_IF_ERROR(RunCapacityOnThreads(Make(), threads_, all).status());
    for (const double load : kLoads) {
      const Spent before = Now();
      HPS_ASSIGN_OR_RETURN(const OpenFigures figures, RunAt(load, sizes_.seconds));
      AddLoad(load, figures, Since(before), results);
    }
    return Judge(results);
  }

 private:
  std::map<std::string, std::string> Params() const {
    return {{"protocol", target_.target->protocol->name},
            {"server_cores", absl::StrCat(split_.other_cores())},
            {"generator_cores", absl::StrCat(split_.own_cores())},
            {"cores", split_.is_split() ? "apart" : "shared"}};
  }

  std::map<std::string, std::string> Params(double load) const {
    std::map<std::string, std::string> params = Params();
    params["load"] = absl::StrCat(load);
    params["timeout_us"] = absl::StrCat(sizes_.timeout.count());
    params["in_flight_max"] = absl::StrCat(sizes_.in_flight_max);
    return params;
  }

  MakeOpenClient Make() const {
    return [this] {
      return target_.open(*target_.target, std::max<size_t>(sizes_.in_flight_max / threads_, 1));
    };
  }

  // The best of some closed loops.
  absl::Status MeasureCapacity(std::vector<Result>& results) {
    for (const size_t in_flight : kCapacityInFlight) {
      const CapacityLoad load{.in_flight = std::max<size_t>(in_flight / threads_, 1),
                              .seconds = sizes_.seconds};
      if (best_.in_flight == 0)  // to warm up
        HPS_RETURN_IF_ERROR(RunCapacityOnThreads(Make(), threads_, load).status());
      HPS_ASSIGN_OR_RETURN(const double answered, RunCapacityOnThreads(Make(), threads_, load));
      if (best_.in_flight != 0 && answered <= capacity_) continue;
      capacity_ = answered;
      best_ = load;
    }
    Result result = MakeResult("capacity", "requests/s", capacity_, std::nullopt);
    result.params = Params();
    result.params["concurrency"] = absl::StrCat(best_.in_flight * threads_);
    results.push_back(std::move(result));
    return absl::OkStatus();
  }

  absl::StatusOr<OpenFigures> RunAt(double load, double seconds) const {
    return RunOpenOnThreads(
        Make(), threads_,
        {.seconds = seconds,
         .arrivals_per_second = std::max(load * capacity_, kArrivalsPerSecondMin),
         .timeout = sizes_.timeout});
  }

  // The capacity and ten times it in turns: a machine has fast and slow moments, which both are to
  // meet. A first round that does not count lets the server take what memory it needs for that.
  absl::Status Judge(std::vector<Result>& results) {
    const double seconds = sizes_.seconds / 2;
    HPS_RETURN_IF_ERROR(RunAt(kOverload, sizes_.seconds).status());
    CapacityLoad best = best_;
    best.seconds = seconds;
    std::vector<double> capacities;
    std::vector<double> goodputs;
    OpenFigures all;
    Spent spent;
    const double memory_before_bytes = Now().memory_bytes;
    for (size_t round = 0; round < kJudgedRounds; ++round) {
      HPS_ASSIGN_OR_RETURN(const double answered, RunCapacityOnThreads(Make(), threads_, best));
      capacities.push_back(answered);
      const Spent before = Now();
      HPS_ASSIGN_OR_RETURN(const OpenFigures figures, RunAt(kOverload, seconds));
      spent.Add(Since(before));
      goodputs.push_back(figures.Goodput());
      const double all_seconds = all.seconds + figures.seconds;
      all.Add(figures);
      all.seconds = all_seconds;
      all.connections = figures.connections;
    }
    capacity_ = Median(capacities);
    AddLoad(kOverload, all, spent, results);
    spent.memory_bytes = Now().memory_bytes - memory_before_bytes;
    AddPromises(Median(goodputs), all, spent, results);
    return absl::OkStatus();
  }

  Spent Now() const {
    const ChildProcess& server = *target_.server;
    return {.client_seconds = OwnProcessorSeconds(),
            .server_seconds = server.processor_seconds(),
            .memory_bytes = static_cast<double>(server.resident_bytes())};
  }
  Spent Since(const Spent& before) const {
    Spent spent = Now();
    spent.client_seconds -= before.client_seconds;
    spent.server_seconds -= before.server_seconds;
    spent.memory_bytes -= before.memory_bytes;
    return spent;
  }

  void AddLoad(double load, const OpenFigures& figures, const Spent& spent,
               std::vector<Result>& results) const {
    Result result = MakeResult("open_loop", "requests/s", figures.Goodput(), capacity_);
    result.params = Params(load);
    result.p50 = figures.latencies.QuantileUs(0.5);
    result.p99 = figures.latencies.QuantileUs(0.99);
    result.runs = figures.latencies.count();
    result.latency_points = figures.latencies.Points();
    const auto count = [&](const char* name, uint64_t value) {
      result.measured.emplace_back(name, static_cast<double>(value));
    };
    count("offered", figures.offered);
    count("sent", figures.sent);
    count("in_time", figures.in_time);
    count("past_deadline", figures.past_deadline);
    count("refused", figures.refused);
    count("late", figures.late);
    count("failed", figures.failed);
    count("unanswered", figures.unanswered);
    count("not_sent_no_connection", figures.no_connection);
    count("not_sent_generator_late", figures.generator_late);
    for (const auto& [code, times] : figures.codes)
      count(absl::StrCat("code_", code).c_str(), times);
    count("connections", figures.connections);
    const double sent = std::max(static_cast<double>(figures.sent), 1.0);
    result.measured.emplace_back("sent_per_capacity",
                                 static_cast<double>(figures.sent) / figures.seconds / capacity_);
    result.measured.emplace_back("generator_cpu_us_per_sent", spent.client_seconds * 1e6 / sent);
    result.measured.emplace_back("server_cpu_us_per_sent", spent.server_seconds * 1e6 / sent);
    results.push_back(std::move(result));
  }

  void AddPromises(double in_time, const OpenFigures& figures, const Spent& spent,
                   std::vector<Result>& results) const {
    Result goodput = MakeResult("overload_goodput", "requests/s", in_time, capacity_);
    goodput.target = ">= 0.9";
    goodput.params = Params(kOverload);
    goodput.runs = kJudgedRounds;
    results.push_back(std::move(goodput));
    Result latency = MakeResult("overload_p99", "us", figures.latencies.QuantileUs(0.99),
                                static_cast<double>(sizes_.timeout.count()));
    latency.target = "<= 1";
    latency.params = Params(kOverload);
    results.push_back(std::move(latency));
    const double gained_bytes = std::max(spent.memory_bytes, 0.0);
    Result memory = MakeResult("overload_memory", "MiB", gained_bytes / (1 << 20), std::nullopt);
    memory.target = "<= 8";
    memory.params = Params(kOverload);
    results.push_back(std::move(memory));
  }

  const OverloadTarget target_;
  const OverloadSizes sizes_;
  const CoreSplit split_;
  const size_t threads_;
  CapacityLoad best_{.in_flight = 0};
  double capacity_ = 0;  // with it
};

}  // namespace

absl::Status MeasureOverload(const OverloadTarget& target, const OverloadSizes& sizes,
                             std::vector<Result>& results) {
  return Overload(target, sizes).Run(results);
}

}  // namespace hps::bench
