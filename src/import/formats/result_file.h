// Result files of commands: a benchmark's report, a converted configuration. Each is written under
// another name in its directory and renamed when it is complete. So the file is the old one or the
// new one, whatever ends the process. A special file (/dev/stdout, a pipe) is written directly.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hps {

// Whether WriteResultFile can write there, for commands that run for minutes before they write.
// Touches nothing. Errors: those of WriteResultFile.
absl::Status CheckResultFile(const std::string& path);

// Follows symbolic links and keeps the mode of a file that is there.
// Errors: NOT_FOUND (its directory), PERMISSION_DENIED, INVALID_ARGUMENT (a directory),
// RESOURCE_EXHAUSTED, UNAVAILABLE; a file that is there stays as it is.
absl::Status WriteResultFile(const std::string& path, std::string_view text);

}  // namespace hps
