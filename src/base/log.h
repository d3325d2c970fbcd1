// The process's log: one line per event on stderr, with time and level.
//
// Thread-safe. A line names what, where and why; it never holds a key's row or a secret. Formatting
// is the caller's (absl::StrCat): logging is never on the read path.
#pragma once

#include <string_view>

namespace hps {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Lines below `level` are dropped. The default is kWarning: commands print their own results.
void SetLogLevel(LogLevel level);

void LogDebug(std::string_view line);
void LogInfo(std::string_view line);
void LogWarning(std::string_view line);
void LogError(std::string_view line);

}  // namespace hps
