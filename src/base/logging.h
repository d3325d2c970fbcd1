// Writes to the process's log (hps/log.h documents its destination and format).
//
// A line says what failed, where and why. It never contains a key's row or a secret. Control
// characters are replaced by blanks, bytes that are not UTF-8 by question marks. The caller formats
// the text (absl::StrCat): the read path never logs.
//
// The last two arguments are the place of the call. Callers leave them at their defaults; the rate
// is limited per place. A function that forwards messages of others (RocksDB's) may pass any place.
//
// Thread-safe; holds one lock while it writes the line.
#pragma once

#include <string_view>

#include "hps/log.h"

namespace hps {

void LogDebug(std::string_view line, const char* file = __builtin_FILE(),
              int line_number = __builtin_LINE());
void LogInfo(std::string_view line, const char* file = __builtin_FILE(),
             int line_number = __builtin_LINE());
void LogWarning(std::string_view line, const char* file = __builtin_FILE(),
                int line_number = __builtin_LINE());
void LogError(std::string_view line, const char* file = __builtin_FILE(),
              int line_number = __builtin_LINE());

}  // namespace hps
