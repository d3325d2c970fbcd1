// The configuration that a command works with: that of its file or the defaults, and what its
// options say.
#pragma once

#include "absl/status/statusor.h"
#include "cli/arguments.h"
#include "hps/config.h"

namespace hps::cli {

// Of a command that looks at a store once: no level above the store, since one call would only fill
// it, and those on devices would take memory that a server needs. Errors: those of LoadConfig.
absl::StatusOr<Config> ConfigOfCommand(const StoreArguments& arguments);

// Of a server: all levels, and the addresses of its command line. Errors: those of LoadConfig and
// Server::Check; where it is only printed, those of ValidateConfig instead.
absl::StatusOr<Config> ConfigOfServer(const ServeArguments& arguments);

}  // namespace hps::cli
