#include "bench/serve/serve_load.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/measure.h"

namespace hps::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Rows are compared in one of so many answers of a connection: enough to find a server that mixes
// them up, and not so many that the comparison is what is measured.
constexpr uint64_t kAnswersPerCheck = 16;

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// What one connection sends and counts.
class Worker {
 public:
  Worker(const LoadTarget& target, size_t number) : target_(target), next_(number) {}

  absl::Status Connect() {
    HPS_ASSIGN_OR_RETURN(client_, target_.protocol->connect(target_.address));
    return absl::OkStatus();
  }

  // Asks, and counts a latency since `start`.
  absl::Status Ask(Clock::time_point start) {
    const size_t request = next_++ % target_.requests.size();
    HPS_ASSIGN_OR_RETURN(const Answer answer, client_->Ask(target_.requests[request]));
    const Clock::time_point end = Clock::now();
    if (answer == Answer::kRefused) ++figures.refused;
    if (answer == Answer::kLate) ++figures.late;
    if (answer != Answer::kRows) return absl::OkStatus();
    figures.latencies_us.push_back(Microseconds(end - start));
    if (target_.rows.empty() || figures.answered() % kAnswersPerCheck != 1) return absl::OkStatus();
    if (client_->EndsWith(target_.rows[request])) return absl::OkStatus();
    return absl::InternalError("bench serve: an answer has other rows than the planted ones");
  }

  LoadFigures figures;
  absl::Status status;

 private:
  const LoadTarget& target_;
  std::unique_ptr<ServeClient> client_;
  size_t next_;
};

// Connects all, runs `body` for each at the same time, and adds up what they counted.
absl::StatusOr<LoadFigures> RunWorkers(const LoadTarget& target, size_t connections,
                                       const std::function<absl::Status(Worker&)>& body,
                                       const std::function<void()>& begin) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < connections; ++i) {
    workers.push_back(std::make_unique<Worker>(target, i));
    HPS_RETURN_IF_ERROR(workers.back()->Connect());
  }
  begin();
  const Stopwatch watch;
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (const auto& worker : workers)
    threads.emplace_back([&body, &worker] { worker->status = body(*worker); });
  for (std::thread& thread : threads) thread.join();
  LoadFigures sum{.seconds = watch.seconds()};
  for (const auto& worker : workers) {
    HPS_RETURN_IF_ERROR(worker->status);
    const LoadFigures& one = worker->figures;
    sum.latencies_us.insert(sum.latencies_us.end(), one.latencies_us.begin(),
                            one.latencies_us.end());
    sum.refused += one.refused;
    sum.late += one.late;
  }
  return sum;
}

}  // namespace

absl::StatusOr<LoadFigures> RunClosed(const LoadTarget& target, const ClosedLoad& load) {
  std::atomic<uint64_t> begun = 0;
  Clock::time_point end;
  return RunWorkers(
      target, load.connections,
      [&](Worker& worker) {
        for (;;) {
          const Clock::time_point start = Clock::now();
          if (start >= end) return absl::OkStatus();
          if (load.requests_max > 0 && begun.fetch_add(1) >= load.requests_max)
            return absl::OkStatus();
          if (absl::Status status = worker.Ask(start); !status.ok()) return status;
        }
      },
      [&] {
        end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(load.seconds));
      });
}

}  // namespace hps::bench
