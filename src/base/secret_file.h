// A file that has a secret, a token, a password or a private key: its check and its reading.
//
// A file that every user of the machine may read keeps no secret. The file's owner and its group
// may read it: Kubernetes gives a pod its secrets by the group.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

// `setting` is the setting that names the file; an empty path names no file. `allowed` is
// [server.security] secrets_readable_by_all: if true, the finding is a warning in the log. Nullopt:
// the caller has no such setting, so nothing can allow it.
// Errors: FAILED_PRECONDITION if every user may read the file. A path that is not there, or is not
// a regular file, is left to its reader.
absl::Status CheckSecretFile(const std::string& setting, const std::string& path,
                             std::optional<bool> allowed = std::nullopt);

// The first line of a file, without its end, or as much of it as shows that it is longer than
// `bytes_max`. Neither a pipe that no program writes to nor a file without end may keep the caller
// waiting.
// Errors, which begin with `where`: NOT_FOUND (can't be read), INVALID_ARGUMENT (no regular file).
absl::StatusOr<std::string> ReadSecretLine(const std::string& path, const std::string& where,
                                           size_t bytes_max);

inline constexpr size_t kTokenBytesMax = 4096;

// A bearer token of a request to the server. Errors: INVALID_ARGUMENT, which begins with `where`.
absl::Status CheckToken(const std::string& token, const std::string& where);

}  // namespace hps
