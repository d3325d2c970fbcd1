// hps top: what a server does, in a terminal.
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "cli/client/http_client.h"
#include "cli/client/server_client.h"
#include "cli/commands.h"
#include "cli/top/top_figures.h"

namespace hps::cli {
namespace {

constexpr const char* kPath = "/api/overview";

std::atomic<bool> stopped{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

using SignalAction = struct sigaction;

// While it lives, SIGINT and SIGTERM end the loop instead of the process.
class StopSignals {
 public:
  StopSignals() {
    stopped = false;
    SignalAction action{};
    action.sa_handler = [](int) { stopped = true; };  // no SA_RESTART: a wait ends
    sigaction(SIGINT, &action, &former_interrupt_);
    sigaction(SIGTERM, &action, &former_terminate_);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() {
    sigaction(SIGINT, &former_interrupt_, nullptr);
    sigaction(SIGTERM, &former_terminate_, nullptr);
  }

 private:
  SignalAction former_interrupt_{};
  SignalAction former_terminate_{};
};

// A terminal's other screen, so that what was on it comes back.
class Screen {
 public:
  Screen(Output& output, bool used) : output_(output), used_(used) {
    if (used_) output_.Write("\x1b[?1049h\x1b[?25l");
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    if (used_) output_.Write("\x1b[?25h\x1b[?1049l");
  }

  void Show(const std::string& text) {
    if (!used_) {
      output_.Write(text + "\n\n");
      return;
    }
    std::string frame = "\x1b[H";
    for (const char c : text) frame += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    output_.Write(frame + "\x1b[K\x1b[J");
  }

 private:
  Output& output_;
  const bool used_;
};

struct Size {
  size_t columns = 1000;
  size_t lines = 0;  // 0 = any
};

Size TerminalSize() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

// False when it is time to end.
bool AwaitNext(std::chrono::nanoseconds interval) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(interval);
  const int ready = poll(nullptr, 0, static_cast<int>(milliseconds.count()));
  return ready == 0 && !stopped;
}

class Top {
 public:
  Top(const TopArguments& arguments, Output& output) : arguments_(arguments), output_(output) {}

  absl::Status Run();

 private:
  // The overview, once the server answers: a server that is started again is worth waiting for, but
  // not at the very beginning.
  absl::StatusOr<std::string> Ask() { return HttpGet(server_, kPath, options_); }
  absl::Status ShowNext(Screen& screen);
  absl::Status Loop(Screen& screen);

  const TopArguments& arguments_;
  Output& output_;
  HttpServerAddress server_;
  HttpOptions options_;
  bool on_terminal_ = false;
  std::string before_;  // the last overview; empty = none to compare with
  uint64_t shown_ = 0;
};

absl::Status Top::ShowNext(Screen& screen) {
  const absl::StatusOr<std::string> now = Ask();
  if (!now.ok()) {
    // On a terminal a person waits for it to come back; elsewhere a program wants to know.
    if (!on_terminal_ || absl::IsCancelled(now.status())) return now.status();
    screen.Show(absl::StrCat("no answer: ", std::string(now.status().message())));
    before_.clear();
    return absl::OkStatus();
  }
  if (!before_.empty()) {
    const absl::StatusOr<TopFigures> figures = ComputeTopFigures(before_, *now);
    if (figures.ok() && output_.is_json()) {
      output_.json().Value(*figures);
    } else if (figures.ok()) {
      const Size size = on_terminal_ ? TerminalSize() : Size();
      screen.Show(TopText(*figures, size.columns, size.lines));
    } else if (!absl::IsUnavailable(figures.status())) {
      return figures.status();
    }
    if (figures.ok()) ++shown_;
  }
  before_ = *now;
  return absl::OkStatus();
}

absl::Status Top::Loop(Screen& screen) {
  const uint64_t count = arguments_.count == 0 && output_.is_json() ? 1 : arguments_.count;
  while (true) {
    const absl::Status shown = ShowNext(screen);
    if (stopped) return absl::OkStatus();
    if (!shown.ok()) return shown;
    if (count > 0 && shown_ == count) return absl::OkStatus();
    if (!AwaitNext(arguments_.interval)) return absl::OkStatus();
  }
}

absl::Status Top::Run() {
  HPS_ASSIGN_OR_RETURN(const ServerClient client, ServerClient::Open(arguments_.server));
  server_ = client.address();
  options_ = client.options();
  HPS_ASSIGN_OR_RETURN(before_, Ask());
  on_terminal_ = isatty(STDOUT_FILENO) != 0 && !output_.is_json();

  const StopSignals signals;
  Screen screen(output_, on_terminal_);
  if (!AwaitNext(arguments_.interval)) return absl::OkStatus();
  if (output_.is_json()) output_.json().Name("samples").BeginArray();
  const absl::Status status = Loop(screen);
  if (output_.is_json()) output_.json().EndArray();
  return status;
}

}  // namespace

absl::Status RunCommand(const TopArguments& arguments, Output& output) {
  return Top(arguments, output).Run();
}

}  // namespace hps::cli
