#include "bench/serve/serve_open_load.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "bench/serve/serve_arrivals.h"

namespace hps::bench {
namespace {

using Clock = std::chrono::steady_clock;

// How much later than intended a request may be sent: what the system's scheduler may take, and
// little against a deadline.
constexpr auto kSlack = std::chrono::milliseconds(5);
// How long after its deadline an answer is still waited for.
constexpr auto kAnswerWait = std::chrono::seconds(2);
// What is sent before answers are read again: they free connections.
constexpr int kSendsPerTurn = 32;

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void Count(const OpenAnswer& answer, std::chrono::microseconds timeout, OpenFigures& figures) {
  const auto latency = answer.end - answer.arrival;
  switch (answer.kind) {
    case OpenAnswer::Kind::kRows:
      figures.latencies.Add(latency);
      ++(latency <= timeout ? figures.in_time : figures.past_deadline);
      return;
    case OpenAnswer::Kind::kRefused:
      ++figures.refused;
      break;
    case OpenAnswer::Kind::kLate:
      ++figures.late;
      break;
    case OpenAnswer::Kind::kFailed:
      ++figures.failed;
      break;
  }
  ++figures.codes[answer.code];
}

// The arrivals of one client, with what became of those that were due.
class Sender {
 public:
  Sender(OpenClient& client, const OpenLoad& load, OpenFigures& figures)
      : client_(client),
        figures_(figures),
        arrivals_(load.arrivals_per_second, load.seconds, load.seed),
        start_(client.Now()) {
    Advance();
  }

  // None after the last.
  const std::optional<Clock::time_point>& next() const { return next_; }

  // Whether more is due.
  bool SendDue() {
    for (int i = 0; i < kSendsPerTurn; ++i) {
      const Clock::time_point now = client_.Now();
      if (!next_ || *next_ > now) return false;
      ++figures_.offered;
      if (now - *next_ > kSlack) {
        ++figures_.generator_late;
      } else if (client_.Send(figures_.sent, *next_)) {
        ++figures_.sent;
      } else {
        ++figures_.no_connection;
      }
      Advance();
    }
    return true;
  }

 private:
  void Advance() {
    const std::optional<std::chrono::nanoseconds> since = arrivals_.Next();
    next_ = since ? std::optional(start_ + *since) : std::nullopt;
  }

  OpenClient& client_;
  OpenFigures& figures_;
  PoissonArrivals arrivals_;
  const Clock::time_point start_;
  std::optional<Clock::time_point> next_;
};

// Runs body(i) on so many threads; the first error.
absl::Status OnThreads(size_t threads, const std::function<absl::Status(size_t)>& body) {
  std::vector<absl::Status> statuses(threads);
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i)
    running.emplace_back([&body, &statuses, i] { statuses[i] = body(i); });
  for (std::thread& thread : running) thread.join();
  for (absl::Status& status : statuses) HPS_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace

void OpenFigures::Add(const OpenFigures& other) {
  seconds = std::max(seconds, other.seconds);
  for (const auto count :
       {&OpenFigures::offered, &OpenFigures::sent, &OpenFigures::in_time,
        &OpenFigures::past_deadline, &OpenFigures::refused, &OpenFigures::late,
        &OpenFigures::failed, &OpenFigures::unanswered, &OpenFigures::no_connection,
        &OpenFigures::generator_late, &OpenFigures::connections}) {
    this->*count += other.*count;
  }
  for (const auto& [code, count] : other.codes) codes[code] += count;
  latencies.Add(other.latencies);
}

absl::StatusOr<OpenFigures> RunOpen(OpenClient& client, const OpenLoad& load) {
  OpenFigures figures{.seconds = load.seconds};
  const auto on_answer = [&](const OpenAnswer& answer) { Count(answer, load.timeout, figures); };
  const Clock::time_point end = client.Now() + Seconds(load.seconds) + load.timeout + kAnswerWait;
  Sender sender(client, load, figures);
  while (sender.next() || (client.in_flight() > 0 && client.Now() < end)) {
    const bool more_is_due = sender.SendDue();
    const Clock::time_point until = sender.next().value_or(end);
    HPS_RETURN_IF_ERROR(client.Poll(more_is_due ? client.Now() : until, on_answer));
  }
  figures.unanswered = client.in_flight();
  figures.connections = client.connections();
  return figures;
}

absl::StatusOr<OpenFigures> RunOpenOnThreads(const MakeOpenClient& make, size_t threads,
                                             const OpenLoad& load) {
  std::vector<OpenFigures> figures(threads);
  HPS_RETURN_IF_ERROR(OnThreads(threads, [&](size_t i) -> absl::Status {
    OpenLoad share = load;
    share.arrivals_per_second /= static_cast<double>(threads);
    share.seed += i;
    HPS_ASSIGN_OR_RETURN(const auto client, make());
    HPS_ASSIGN_OR_RETURN(figures[i], RunOpen(*client, share));
    return absl::OkStatus();
  }));
  OpenFigures sum;
  for (const OpenFigures& one : figures) sum.Add(one);
  return sum;
}

absl::StatusOr<double> RunCapacity(OpenClient& client, const CapacityLoad& load) {
  const Clock::time_point start = client.Now();
  const Clock::time_point end = start + Seconds(load.seconds);
  uint64_t sent = 0;
  uint64_t answered = 0;
  const auto on_answer = [&](const OpenAnswer& answer) {
    if (answer.kind == OpenAnswer::Kind::kRows && answer.end <= end) ++answered;
  };
  while (client.Now() < end) {
    while (client.in_flight() < load.in_flight && client.Send(sent, client.Now())) ++sent;
    HPS_RETURN_IF_ERROR(client.Poll(end, on_answer));
  }
  return static_cast<double>(answered) / load.seconds;
}

absl::StatusOr<double> RunCapacityOnThreads(const MakeOpenClient& make, size_t threads,
                                            const CapacityLoad& load) {
  std::vector<double> per_second(threads);
  HPS_RETURN_IF_ERROR(OnThreads(threads, [&](size_t i) -> absl::Status {
    HPS_ASSIGN_OR_RETURN(const auto client, make());
    HPS_ASSIGN_OR_RETURN(per_second[i], RunCapacity(*client, load));
    return absl::OkStatus();
  }));
  double sum = 0;
  for (const double one : per_second) sum += one;
  return sum;
}

}  // namespace hps::bench
