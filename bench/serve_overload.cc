#include "bench/serve_overload.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/cores.h"
#include "bench/report.h"

namespace hps::bench {
namespace {

// Shares of the capacity. The last is the one that is judged.
constexpr std::array kLoads = {0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0, 10.0};
constexpr double kOverload = 10;
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

// What both processes spend in one run.
struct Spent {
  double client_seconds = 0;
  double server_seconds = 0;
  double memory_before_bytes = 0;
  double memory_after_bytes = 0;
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
    peak_ = capacity_;
    for (const double load : kLoads) {
      Spent spent;
      HPS_ASSIGN_OR_RETURN(const OpenFigures figures, RunAt(load, spent));
      peak_ = std::max(peak_, figures.Goodput());
      AddLoad(load, figures, spent, results);
      if (load == kOverload) AddPromises(figures, spent, results);
    }
    return absl::OkStatus();
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
    size_t best_in_flight = 0;
    for (const size_t in_flight : kCapacityInFlight) {
      const CapacityLoad load{.in_flight = std::max<size_t>(in_flight / threads_, 1),
                              .seconds = sizes_.seconds};
      if (best_in_flight == 0)  // to warm up
        HPS_RETURN_IF_ERROR(RunCapacityOnThreads(Make(), threads_, load).status());
      HPS_ASSIGN_OR_RETURN(const double answered, RunCapacityOnThreads(Make(), threads_, load));
      if (best_in_flight != 0 && answered <= capacity_) continue;
      capacity_ = answered;
      best_in_flight = load.in_flight * threads_;
    }
    Result result = MakeResult("capacity", "requests/s", capacity_, std::nullopt);
    result.params = Params();
    result.params["concurrency"] = absl::StrCat(best_in_flight);
    results.push_back(std::move(result));
    return absl::OkStatus();
  }

  absl::StatusOr<OpenFigures> RunAt(double load, Spent& spent) const {
    const ChildProcess& server = *target_.server;
    spent = {.client_seconds = -OwnProcessorSeconds(),
             .server_seconds = -server.processor_seconds(),
             .memory_before_bytes = static_cast<double>(server.resident_bytes())};
    HPS_ASSIGN_OR_RETURN(
        OpenFigures figures,
        RunOpenOnThreads(Make(), threads_,
                         {.seconds = sizes_.seconds,
                          .arrivals_per_second = std::max(load * capacity_, kArrivalsPerSecondMin),
                          .timeout = sizes_.timeout}));
    spent.client_seconds += OwnProcessorSeconds();
    spent.server_seconds += server.processor_seconds();
    spent.memory_after_bytes = static_cast<double>(server.resident_bytes());
    return figures;
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

  void AddPromises(const OpenFigures& figures, const Spent& spent,
                   std::vector<Result>& results) const {
    Result goodput = MakeResult("overload_goodput", "requests/s", figures.Goodput(), peak_);
    goodput.target = ">= 0.9";
    goodput.params = Params(kOverload);
    results.push_back(std::move(goodput));
    Result latency = MakeResult("overload_p99", "us", figures.latencies.QuantileUs(0.99),
                                static_cast<double>(sizes_.timeout.count()));
    latency.target = "<= 1";
    latency.params = Params(kOverload);
    results.push_back(std::move(latency));
    const double gained_bytes = spent.memory_after_bytes - spent.memory_before_bytes;
    Result memory =
        MakeResult("overload_memory", "MiB", std::max(gained_bytes, 0.0) / (1 << 20), std::nullopt);
    memory.target = "<= 8";
    memory.params = Params(kOverload);
    results.push_back(std::move(memory));
  }

  const OverloadTarget target_;
  const OverloadSizes sizes_;
  const CoreSplit split_;
  const size_t threads_;
  double capacity_ = 0;
  double peak_ = 0;  // the most that was answered in time at any load
};

}  // namespace

absl::Status MeasureOverload(const OverloadTarget& target, const OverloadSizes& sizes,
                             std::vector<Result>& results) {
  return Overload(target, sizes).Run(results);
}

}  // namespace hps::bench
