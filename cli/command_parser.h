// Parsing of a command line by CLI11, with errors in one sentence. For units that declare options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hps::cli {

// Parses `words` (argv without the program's name) with the subcommands of `app`. Returns the text
// that --help or --version asks for; empty text if the command is to be run.
// Errors: INVALID_ARGUMENT, one sentence that names the command and the option.
absl::StatusOr<std::string> ParseWords(CLI::App& app, const std::vector<std::string>& words);

}  // namespace hps::cli
