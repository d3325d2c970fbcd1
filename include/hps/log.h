// The log of a process that uses hps: one line per event, as text or JSON, to stderr or a file.
//
// A line has the time, the level, what happened, to what, and why. It never contains rows or
// secrets. A place in the code that logs too often is limited to one line per second; that line
// has the number of lines that were left out.
//
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace hps {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };  // "debug", "info", ..., "off"
enum class LogFormat { kText, kJson };                          // "text", "json"

struct LogConfig {
  LogLevel level = LogLevel::kWarning;  // lines below it are not written
  LogFormat format = LogFormat::kText;
  // Opened for appending, created with mode 0640. Empty = stderr.
  std::string file;
};

// Number of lines since the process started.
struct LogCounts {
  std::array<uint64_t, 4> written{};  // by level: debug, info, warning, error
  uint64_t left_out = 0;
};

// Until the first call, warnings and errors are written to stderr as text.
// Errors: NOT_FOUND, PERMISSION_DENIED and others for the file; INVALID_ARGUMENT if it is neither a
// regular file nor a device such as /dev/null, because writing to it might block. The log is
// unchanged then.
absl::Status ConfigureLog(const LogConfig& config);

// Closes the configured file and opens it again by its name, for log rotation.
// Errors: as ConfigureLog; logging to the old file continues then.
absl::Status ReopenLog();

void SetLogLevel(LogLevel level);

LogCounts CountLogLines();

}  // namespace hps
