// The process's log: one line per event on stderr, with time and level.
//
// Thread-safe. A line names what, where and why; it never holds a key's row or a secret, and a
// control character in it becomes a blank. Formatting is the caller's (absl::StrCat): logging is
// never on the read path. hps/log.h sets the level.
#pragma once

#include <string_view>

#include "hps/log.h"

namespace hps {

void LogDebug(std::string_view line);
void LogInfo(std::string_view line);
void LogWarning(std::string_view line);
void LogError(std::string_view line);

}  // namespace hps
