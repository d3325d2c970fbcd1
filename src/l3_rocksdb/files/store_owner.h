// Files of a store that processes of several users use: who may read and remove them.
//
// A server often runs as a user of its own, and an administrator imports as another. The owner of
// the store's folder is taken for the server's user. If the folder is writable for its group, or
// for all users, the server may also be one of these.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hps {

// Gives the folder `path` to the owner and the group of the folder `store`, as far as this process
// may, and lets all users read and remove it who may write to that folder. With `kWithFiles` also
// the files in it, which has no folders. Follows no symbolic link, and refuses a file with a second
// name, because that may be a file outside the store. Errors: PERMISSION_DENIED (the store's owner
// could not read or remove it), those of opening the files.
enum class GiveFiles { kNone, kWithFiles };
absl::Status GiveToStoreOwner(const std::string& store, const std::string& path, GiveFiles files);

// Whether this process may list, read and remove the folder `path` with its files. `name` is for
// remote clients: "the staged import 'staging/ID'". Errors: those of NotPermitted.
absl::Status CheckMayTake(const std::string& path, const std::string& name);

// This process may not `what` (as "read") the file `path`, which is or belongs to `name`. Returns
// FAILED_PRECONDITION, which is public and names the owner and this process's user. Logs the path.
absl::Status NotPermitted(const std::string& path, const std::string& name, const char* what);

}  // namespace hps
