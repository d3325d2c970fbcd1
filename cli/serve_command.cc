// hps serve: the server, until SIGTERM or SIGINT; SIGHUP reopens the log and the certificates.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "hps/log.h"
#include "hps/server.h"

namespace hps::cli {
namespace {

// Blocks the signals that the server answers, in this thread and all that it starts: they are
// taken with Next(), so that nothing runs in a signal handler.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, kLoaded}) sigaddset(&set_, number);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    // A client that has gone is a failed write, not the end of the process.
    signal(SIGPIPE, SIG_IGN);
  }

  // Blocks until a signal comes.
  int Next() const {
    int number = 0;
    return sigwait(&set_, &number) == 0 ? number : SIGTERM;
  }

  // Of this process to itself: the models have been loaded.
  static constexpr int kLoaded = SIGUSR1;

 private:
  sigset_t set_{};
};

// While it lives, SIGTERM and SIGINT end the process at once, with `exit_status` of the signal.
class EndOnSignal {
 public:
  using ExitStatus = int (*)(int signal_number);

  EndOnSignal(const Signals& signals, const char* when, ExitStatus exit_status)
      : thread_([this, &signals, when, exit_status] {
          while (!done_.load(std::memory_order_acquire)) {
            const int number = signals.Next();
            if (number == SIGHUP) must_reopen_.store(true, std::memory_order_relaxed);
            if (number != SIGTERM && number != SIGINT) continue;
            std::fprintf(stderr, "hps: ended by %s %s\n", number == SIGTERM ? "SIGTERM" : "SIGINT",
                         when);
            std::fflush(nullptr);
            std::_Exit(exit_status(number));
          }
        }) {}
  ~EndOnSignal() {
    done_.store(true, std::memory_order_release);
    kill(getpid(), Signals::kLoaded);  // wakes the thread
    thread_.join();
  }
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

  // A SIGHUP has come.
  bool must_reopen() const { return must_reopen_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> done_{false};
  std::atomic<bool> must_reopen_{false};
  std::thread thread_;
};

// What the server's thread leaves for the one that prints.
class LoadedReport {
 public:
  void Set(const LoadReport& report) {
    promise_.set_value(report);
    kill(getpid(), Signals::kLoaded);
  }
  // Once, when it has been set: such a signal may come from elsewhere too.
  std::optional<LoadReport> Take() {
    const bool is_set =
        report_.valid() && report_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (!is_set) return std::nullopt;
    return report_.get();
  }

 private:
  std::promise<LoadReport> promise_;
  std::future<LoadReport> report_ = promise_.get_future();
};

void PrintStart(const ServerAddresses& addresses, const Config& config, Output& output) {
  if (output.is_json()) {
    output.json()
        .Member("http", std::string_view(addresses.http))
        .Member("grpc", std::string_view(addresses.grpc))
        .Member("metrics", std::string_view(addresses.metrics))
        .Member("configuration", std::string_view(PrintConfig(config)));
  } else {
    const std::string scheme = config.server.tls_certificate.empty() ? "http://" : "https://";
    output.Line(PrintConfig(config));
    if (!addresses.http.empty()) output.Line("http     " + scheme + addresses.http + "/");
    if (!addresses.grpc.empty()) output.Line("grpc     " + addresses.grpc);
    if (!addresses.metrics.empty())
      output.Line("metrics  " + scheme + addresses.metrics + "/metrics");
  }
  output.Publish();
}

void PrintLoaded(const LoadReport& report, Output& output) {
  if (output.is_json()) return;
  const std::string models = absl::StrCat(report.models, report.models == 1 ? " model" : " models");
  if (report.status.ok()) {
    output.Line(absl::StrCat("ready after ", Fixed(report.seconds, 2), " s: ", models,
                             " (the store was open and recovered after ",
                             Fixed(report.open_seconds, 2), " s)"));
  } else {
    output.Line(absl::StrCat("not ready, with ", models, ": ", report.status.ToString()));
  }
  output.Publish();
}

// What fails is told where it can be: the log tells what the server could not read again.
void Reopen(Server& server) {
  const absl::Status log = ReopenLog();
  if (!log.ok()) std::fprintf(stderr, "hps: log: %s\n", log.ToString().c_str());
  server.Reopen().IgnoreError();
}

// Ends the process though some of its threads hang: they use what the destructors would take from
// them. Every answer has been sent, every line of the log is written, and the store needs no
// farewell.
void LeaveBehind(const absl::Status& closed) {
  std::fprintf(stderr, "hps: close: %s\n", closed.ToString().c_str());
  std::fflush(nullptr);
  std::_Exit(0);
}

// Comments that say what "auto" would be now.
std::string ChosenBudgets(const Config& config) {
  const Config chosen = WithChosenBudgets(config);
  std::string text;
  const auto add = [&](const char* setting, uint64_t given, uint64_t bytes) {
    if (given != kAutoBytes || bytes == kAutoBytes) return;
    absl::StrAppend(&text, "# ", setting, " = \"auto\": at most ",
                    ReadableBytes(static_cast<double>(bytes)), " on this machine now\n");
  };
  add("l2.bytes_max", config.l2.bytes_max, chosen.l2.bytes_max);
  add("l1.bytes_max", config.l1.bytes_max, chosen.l1.bytes_max);
  return text;
}

}  // namespace

absl::Status RunCommand(const ServeArguments& arguments, const Config& config, Output& output) {
  if (arguments.print_config) {
    const std::string printed = PrintConfig(config) + ChosenBudgets(config);
    if (output.is_json()) {
      output.json().Member("configuration", std::string_view(printed));
    } else {
      output.Print(printed);
    }
    return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(ConfigureLog(config.log));
  const Signals signals;
  LoadedReport loaded;  // outlives the server's threads
  bool must_reopen = false;
  const absl::StatusOr<std::unique_ptr<Server>> server = [&] {
    // A store may take long to open. It takes any end of the process, and there is nothing to
    // drain.
    const EndOnSignal end(signals, "while the store was opened", [](int) { return 0; });
    auto started =
        Server::Start(config, [&loaded](const LoadReport& report) { loaded.Set(report); });
    must_reopen = end.must_reopen();
    return started;
  }();
  if (!server.ok()) return server.status();
  PrintStart((*server)->addresses(), config, output);
  // The signal that tells of it may have been taken while the server started.
  if (const std::optional<LoadReport> report = loaded.Take()) PrintLoaded(*report, output);
  if (must_reopen) Reopen(**server);
  for (;;) {
    const int signal_number = signals.Next();
    if (const std::optional<LoadReport> report = loaded.Take()) PrintLoaded(*report, output);
    if (signal_number == SIGHUP) Reopen(**server);
    if (signal_number == SIGTERM || signal_number == SIGINT) break;
  }
  if (!output.is_json()) output.Line("draining");
  output.Publish();
  const EndOnSignal end(signals, "while it drained", [](int number) { return 128 + number; });
  const absl::Status drained = (*server)->Drain();
  if (!drained.ok()) std::fprintf(stderr, "hps: drain: %s\n", drained.ToString().c_str());
  if (const absl::Status closed = (*server)->Close(); !closed.ok()) LeaveBehind(closed);
  return absl::OkStatus();
}

}  // namespace hps::cli
