#include "cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string_view>

#include "hps/log.h"
#include "inference/network_check.h"

namespace hps::cli {
namespace {

// A store of many tables has more files open than the usual soft limit allows; the hard limit is
// the administrator's word. A refusal only leaves things as they are.
void AllowManyOpenFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &files));
}

// A file that grows beyond what the user may write (ulimit -f) is a failed write with a sentence,
// as a full disk is, and not the end of the process, which would leave half-written files behind.
void OutliveFileSizeLimits() { signal(SIGXFSZ, SIG_IGN); }

// Where stdin, stdout or stderr is closed, the next file that is opened gets its number: one of the
// store, mostly, into which the log would be written then. What takes the place here can't be read
// or written, either, so that a closed stdout is still an error.
void HoldClosedStreams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // The lowest number that is free, which is this one.
    static_cast<void>(open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace

std::optional<int> PrepareProgram(int argc, const char* const* argv) {
  if (argc == 2 && std::string_view(argv[1]) == "check-network") return RunNetworkCheck();
  SetNetworkCheckProgram("/proc/self/exe");
  HoldClosedStreams();
  // A command says in one line why it failed; the log beside it is for processes that serve.
  SetLogLevel(LogLevel::kOff);
  AllowManyOpenFiles();
  OutliveFileSizeLimits();
  return std::nullopt;
}

bool AsksForJson(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") return true;
  }
  return false;
}

}  // namespace hps::cli
