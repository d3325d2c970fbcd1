// Which cores a process runs on: load and server measured apart on one machine.
#pragma once

#include <sys/types.h>

#include <vector>

namespace hps::bench {

// The cores that the process may run on, ascending. Empty when the system doesn't say.
std::vector<int> CoresOf(pid_t process);

// Keeps all threads of a process on these cores; threads that they start follow. False when the
// system refuses; some threads may have moved then. REQUIRES: cores is not empty.
bool MoveToCores(pid_t process, const std::vector<int>& cores);

// Gives one half of this process's cores to another process and keeps the other half, until it is
// destroyed. Does nothing where there is one core only, or the system refuses: is_split() tells.
class CoreSplit {
 public:
  explicit CoreSplit(pid_t other);
  ~CoreSplit();
  CoreSplit(const CoreSplit&) = delete;
  CoreSplit& operator=(const CoreSplit&) = delete;

  bool is_split() const { return is_split_; }
  size_t own_cores() const { return own_.size(); }
  size_t other_cores() const { return others_.size(); }

 private:
  const pid_t other_;
  const std::vector<int> all_;
  std::vector<int> own_;     // all of them when not split
  std::vector<int> others_;  // all of them when not split
  bool is_split_ = false;
};

}  // namespace hps::bench
