// Marks error messages that remote clients may see.
//
// The message of a status is for logs and for local users: it may name files of this machine or
// quote a library. A status marked here names only what a client knows: models and tables. Every
// other status reaches clients as its code and one fixed sentence. The mark is a payload of the
// status, so that no code has to search messages for paths.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hps {

// Returns the same status, marked as visible to remote clients.
absl::Status Public(absl::Status status);

bool IsPublic(const absl::Status& status);

// The message of a marked status; for any other status a sentence that refers to the server's log.
std::string MessageForClients(const absl::Status& status);

// Code and message, without the payloads that ToString() prints.
std::string TextForLog(const absl::Status& status);

}  // namespace hps
