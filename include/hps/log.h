// The log of a process that uses hps: one line per event, as text or JSON, on stderr or in a file.
//
// A line tells time, level, and what happened where and why; never a secret or a row. One place in
// the code that would write too many lines writes some and then one a second, each with the number
// of those left out.
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
  LogLevel level = LogLevel::kWarning;  // lines below it are dropped
  LogFormat format = LogFormat::kText;
  std::string file;  // appended to, made with mode 0640; no pipe; empty = stderr
};

// Lines since the process began.
struct LogCounts {
  std::array<uint64_t, 4> written{};  // by level: debug, info, warning, error
  uint64_t left_out = 0;
};

// Before it is called: text on stderr, from kWarning.
// Errors: NOT_FOUND, PERMISSION_DENIED, ... for the file, INVALID_ARGUMENT for what is neither a
// regular file nor a device like /dev/null: writing could wait; the log stays as it was then.
absl::Status ConfigureLog(const LogConfig& config);

// Opens the configured file anew by its name: what log rotation asks for after it has renamed the
// old one. Errors: as ConfigureLog; lines go on to the old file then.
absl::Status ReopenLog();

// Changes the level alone.
void SetLogLevel(LogLevel level);

LogCounts CountLogLines();

}  // namespace hps
