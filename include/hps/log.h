// How much of its log a process that uses hps wants: one line per event on stderr, with time and
// level.
//
// Thread-safe.
#pragma once

namespace hps {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Lines below `level` are dropped. The default is kWarning.
void SetLogLevel(LogLevel level);

}  // namespace hps
