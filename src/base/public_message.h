// What remote clients see of an error.
//
// The message of a status is for logs and for local users: it may name files of this machine or
// quote a library. A public status names only what a client knows: models and tables. Every other
// status reaches clients as its code and a fixed sentence. A status may also say that the disk is
// full. Both are payloads of the status, so that no code has to search messages.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hps {

// Returns the same status, marked as visible to remote clients.
absl::Status Public(absl::Status status);

bool IsPublic(const absl::Status& status);

// Returns the same status, marked as that of a write for which the disk has no room.
absl::Status DiskFull(absl::Status status);

bool IsDiskFull(const absl::Status& status);

// The message of a public status; for any other status a sentence that names the full disk or
// refers to the server's log.
std::string MessageForClients(const absl::Status& status);

// The code, MessageForClients, and whether the disk is full.
absl::Status ForClients(const absl::Status& status);

// The same code and marks with another message.
absl::Status Reworded(const absl::Status& status, const std::string& message);

// Code and message, without the payloads that ToString() prints.
std::string TextForLog(const absl::Status& status);

}  // namespace hps
