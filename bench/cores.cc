#include "bench/cores.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hps::bench {

std::vector<int> CoresOf(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(process, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

bool MoveToCores(pid_t process, const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  std::error_code error;
  const std::filesystem::directory_iterator threads(absl::StrCat("/proc/", process, "/task"),
                                                    error);
  if (error) return false;
  for (const auto& entry : threads) {
    pid_t thread = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &thread)) return false;
    // A thread that has just ended needs no core.
    if (sched_setaffinity(thread, sizeof(set), &set) != 0 && errno != ESRCH) return false;
  }
  return true;
}

CoreSplit::CoreSplit(pid_t other) : other_(other), all_(CoresOf(0)), own_(all_), others_(all_) {
  if (all_.size() < 2) return;
  const auto middle = all_.begin() + static_cast<ptrdiff_t>(all_.size() / 2);
  own_.assign(all_.begin(), middle);
  others_.assign(middle, all_.end());
  is_split_ = MoveToCores(getpid(), own_) && MoveToCores(other_, others_);
  if (is_split_) return;
  MoveToCores(getpid(), all_);
  MoveToCores(other_, all_);
  own_ = all_;
  others_ = all_;
}

CoreSplit::~CoreSplit() {
  if (!is_split_) return;
  MoveToCores(getpid(), all_);
  MoveToCores(other_, all_);
}

}  // namespace hps::bench
