// The check of a file that has a secret: a token, a password or a private key.
//
// A file that every user of the machine may read keeps no secret. The file's owner and its group
// may read it: Kubernetes gives a pod its secrets by the group.
//
// Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace hps {

// `setting` is the setting that names the file; an empty path names no file. `allowed` is
// [server.security] secrets_readable_by_all: if true, the finding is a warning in the log. Nullopt:
// the caller has no such setting, so nothing can allow it.
// Errors: FAILED_PRECONDITION if every user may read the file. A path that is not there, or is not
// a regular file, is left to its reader.
absl::Status CheckSecretFile(const std::string& setting, const std::string& path,
                             std::optional<bool> allowed = std::nullopt);

}  // namespace hps
