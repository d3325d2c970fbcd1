#include "tests/faults/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

extern char** environ;

namespace hps {
namespace {

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int MillisecondsUntil(Deadline deadline) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - RealClock().Now());
  return static_cast<int>(std::clamp<int64_t>(rest.count(), 0, INT_MAX));
}

// As a shell says it of a program that can't be started.
constexpr int kNotStarted = 127;

// After a fork, so only with what a signal handler may do. A child whose parent is killed ends with
// it: nobody else would end it.
void BecomeChild(pid_t parent, int report_end) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotStarted);
  // The two may be the same descriptor, which must then stay open.
  if (report_end == kReportDescriptor) {
    fcntl(report_end, F_SETFD, 0);
  } else {
    dup2(report_end, kReportDescriptor);
  }
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::string& program,
                                                 const std::vector<std::string>& arguments,
                                                 const std::vector<std::string>& environment) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  std::vector<std::string> argument_texts = {program};
  argument_texts.insert(argument_texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment_texts;
  for (char** entry = environ; *entry != nullptr; ++entry) environment_texts.emplace_back(*entry);
  environment_texts.insert(environment_texts.end(), environment.begin(), environment.end());

  const std::vector<char*> argument_pointers = PointersTo(argument_texts);
  const std::vector<char*> environment_pointers = PointersTo(environment_texts);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) {
    BecomeChild(parent, ends[1]);
    execve(program.c_str(), argument_pointers.data(), environment_pointers.data());
    _exit(kNotStarted);
  }
  const int error = errno;
  close(ends[1]);
  if (process < 0) {
    close(ends[0]);
    return absl::InternalError(absl::StrCat(program, ": ", std::strerror(error)));
  }
  return ChildProcess(process, ends[0]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      partial_(std::move(other.partial_)),
      reports_(std::move(other.reports_)),
      wait_status_(other.wait_status_) {}

ChildProcess::~ChildProcess() {
  if (process_ >= 0) Kill();
  if (pipe_ >= 0) close(pipe_);
}

bool ChildProcess::ReadUntil(Deadline deadline) {
  for (;;) {
    pollfd ready{.fd = pipe_, .events = POLLIN};
    if (poll(&ready, 1, MillisecondsUntil(deadline)) <= 0) {
      if (RealClock().Now() >= deadline) return false;
      continue;
    }
    std::array<char, 4096> bytes{};
    const ssize_t count = read(pipe_, bytes.data(), bytes.size());
    if (count <= 0) return true;
    partial_.append(bytes.data(), static_cast<size_t>(count));
    const size_t whole = partial_.size() / sizeof(uint64_t);
    for (size_t i = 0; i < whole; ++i)
      reports_.push_back(LoadLittleEndian<uint64_t>(partial_.data() + i * sizeof(uint64_t)));
    partial_.erase(0, whole * sizeof(uint64_t));
    if (RealClock().Now() >= deadline) return false;
  }
}

void ChildProcess::Kill() {
  static_cast<void>(kill(process_, SIGKILL));
  // The pipe ends when the child is gone.
  ReadUntil(kNoDeadline);
  Reap();
}

bool ChildProcess::WaitForEnd(Deadline deadline) {
  const bool ended = ReadUntil(deadline);
  if (!ended) {
    Kill();
  } else {
    Reap();
  }
  return ended;
}

void ChildProcess::Reap() {
  while (waitpid(process_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

std::string ProgramBesideThisOne(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace hps
