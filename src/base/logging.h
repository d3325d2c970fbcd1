// Writing to the process's log (hps/log.h says where it goes and how it looks).
//
// A line names what, where and why; it never holds a key's row or a secret. A control character in
// it becomes a blank, and a byte that is no UTF-8 a question mark. Formatting is the caller's
// (absl::StrCat): logging is never on the read path.
//
// The place of the call is the last two arguments, which nobody passes: the rate is limited by it.
// A function that logs what others say (RocksDB's texts) passes on as many places as it likes.
//
// Thread-safe; takes one lock while it writes the line.
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
