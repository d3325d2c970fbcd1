// The files that `hps bench` leaves: written beside their place and given their name when they are
// whole, so that a result of record is the old one or the new one, whatever ends the process. What
// is no regular file (/dev/stdout, a pipe) is written as it is.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hps::bench {

// Whether WriteReportFile can write there: a scenario runs for minutes, and its figures are not to
// be lost for a misspelt path. Touches nothing. Errors: those of WriteReportFile.
absl::Status CheckReportFile(const std::string& path);

// Follows symbolic links and keeps the mode of a file that is there.
// Errors: NOT_FOUND (its directory), PERMISSION_DENIED, INVALID_ARGUMENT (a directory),
// RESOURCE_EXHAUSTED, UNAVAILABLE; a file that is there stays as it is.
absl::Status WriteReportFile(const std::string& path, std::string_view text);

}  // namespace hps::bench
