// The check of a file that has a secret: a token, a password or a private key.
//
// A secret that every user of the machine may read is none. Its owner and its group may read it:
// Kubernetes gives a pod its secrets by the group.
//
// Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace hps {

// `setting` is what names the file; an empty path is no file. `allowed` is
// [server.security] secrets_readable_by_all: if true, the finding is a warning in the log. Nullopt:
// nothing can allow it, where there is no such setting.
// Errors: FAILED_PRECONDITION if every user may read the file. A path that is not there, or is not
// a regular file, is left to its reader.
absl::Status CheckSecretFile(const std::string& setting, const std::string& path,
                             std::optional<bool> allowed = std::nullopt);

}  // namespace hps
