// A child process that reports what it has done through a pipe, and is killed at will.
//
// The child finds the pipe as file descriptor kReportDescriptor and writes whole 64-bit numbers to
// it: what the parent has read was done before the child died. For one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace hps {

inline constexpr int kReportDescriptor = 3;

class ChildProcess {
 public:
  // Starts `program` with these arguments; `environment` ("NAME=value") is added to the parent's.
  // It is killed when the thread that started it ends. Errors: INTERNAL, with the system's text; a
  // program that can't be started is a child that ends with status 127.
  static absl::StatusOr<ChildProcess> Start(const std::string& program,
                                            const std::vector<std::string>& arguments,
                                            const std::vector<std::string>& environment);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills and reaps the child if that has not happened.
  ~ChildProcess();

  // Reads reports until the deadline, or until the child has ended (true).
  bool ReadUntil(Deadline deadline);
  // kill -9, then reads what the child had still reported, and reaps it.
  void Kill();
  // Reads until the child has ended, and reaps it; one that has not ended by the deadline is
  // killed (false).
  bool WaitForEnd(Deadline deadline);

  const std::vector<uint64_t>& reports() const { return reports_; }
  // After Kill or WaitForEnd: what waitpid says.
  int wait_status() const { return wait_status_; }

 private:
  ChildProcess(pid_t process, int pipe) : process_(process), pipe_(pipe) {}
  void Reap();

  pid_t process_;  // -1 = reaped
  int pipe_;
  std::string partial_;  // bytes of a report that has not arrived whole
  std::vector<uint64_t> reports_;
  int wait_status_ = 0;
};

// A program that lies beside the running one.
std::string ProgramBesideThisOne(const std::string& name);

}  // namespace hps
