// Which error messages remote clients may see.
//
// The message of a status is for logs and for the local user: it may name files of this machine, or
// quote what a library says. A status that is marked here names nothing but what a client knows,
// models and tables. Every other one reaches clients as its code and one sentence. The mark is a
// payload of the status, so that nobody has to search texts for paths.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hps {

// The same status, whose message remote clients may see.
absl::Status Public(absl::Status status);

bool IsPublic(const absl::Status& status);

// The message of a public status; for any other one a sentence that refers to the server's log.
std::string MessageForClients(const absl::Status& status);

// Code and message, without the payloads that ToString() would print.
std::string TextForLog(const absl::Status& status);

}  // namespace hps
