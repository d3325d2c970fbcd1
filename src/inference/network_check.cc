#include "inference/network_check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/macros.h"

extern char** environ;

namespace hps {
namespace {

constexpr Duration kTimeMax = std::chrono::seconds(60);
constexpr size_t kMessageBytesMax = 2000;

std::atomic<const char*> check_program{nullptr};

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat(
      "the check of the network could not be started: ", what, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("writing the network");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Reads to the end, but at most `bytes_max`. False when `deadline` has passed.
bool ReadUntil(int descriptor, Deadline deadline, size_t bytes_max, std::string& text) {
  char buffer[512];
  for (;;) {
    const Duration left = deadline - RealClock().Now();
    if (left <= Duration::zero()) return false;
    pollfd event{.fd = descriptor, .events = POLLIN, .revents = 0};
    const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
    const int ready = ::poll(&event, 1, static_cast<int>(left_ms));
    if (ready <= 0) continue;  // the loop looks at the time
    const ssize_t count = ::read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    if (text.size() < bytes_max) text.append(buffer, static_cast<size_t>(count));
  }
}

absl::StatusOr<pid_t> Start(const char* program, int network, int report) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, network, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, report, STDOUT_FILENO);
  std::string name = "hps";
  std::string command = "check-network";
  char* arguments[] = {name.data(), command.data(), nullptr};
  // It hears signals, also where the thread that starts it blocks them.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int error = posix_spawn(&child, program, &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return child;
  errno = error;
  return Failed(program);
}

std::string DescribeEnd(int status) {
  if (WIFSIGNALED(status))
    return absl::StrCat("it ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                        ")");
  return absl::StrCat("it ended with status ", WEXITSTATUS(status));
}

absl::Status Refused(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the network failed when it was compiled and run in a process of its own: ", why));
}

}  // namespace

void SetNetworkCheckProgram(const char* path) {
  check_program.store(path, std::memory_order_release);
}

absl::Status CheckNetworkApart(const ModelNetwork& network) {
  const char* const program = check_program.load(std::memory_order_acquire);
  if (program == nullptr) return absl::OkStatus();
  const Descriptor file(::memfd_create("hps-network", MFD_CLOEXEC));
  if (file.number() < 0) return Failed("memfd_create");
  HPS_RETURN_IF_ERROR(WriteAll(file.number(), network.onnx));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Failed("pipe");
  const Descriptor report(ends[0]);
  Descriptor child_report(ends[1]);
  HPS_ASSIGN_OR_RETURN(const pid_t child, Start(program, file.number(), child_report.number()));
  child_report.Close();
  std::string message;
  const bool ended =
      ReadUntil(report.number(), DeadlineAfter(RealClock(), kTimeMax), kMessageBytesMax, message);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  do {
    waited = ::waitpid(child, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (!ended) {
    return Refused(absl::StrCat("it took more than ",
                                std::chrono::duration_cast<std::chrono::seconds>(kTimeMax).count(),
                                " s"));
  }
  if (waited != child) {
    return absl::UnavailableError(
        absl::StrCat("the check of the network ended, but its result is not known: waitpid: ",
                     std::strerror(errno), "; this process must not ignore SIGCHLD"));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS) return absl::OkStatus();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return Refused(message.empty() ? DescribeEnd(status) : message);
}

}  // namespace hps
