#include "cli/command_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "types/names.h"

namespace hps::cli {
namespace {

// The words in reverse order, as CLI11 takes them. CLI11 would take the next option as the value of
// "--option="; its value is an empty word instead.
std::vector<std::string> Reversed(const std::vector<std::string>& words) {
  std::vector<std::string> reversed;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    std::string argument = *word;
    const bool is_empty = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (is_empty) {
      reversed.emplace_back();
      argument.pop_back();
    }
    reversed.push_back(std::move(argument));
  }
  return reversed;
}

// The error for words that a command does not take: names the first, and the option that is
// nearest.
absl::Status NotTaken(const CLI::App& command, const CLI::ExtrasError& error) {
  const std::vector<std::string> words = command.remaining();
  if (words.empty()) return absl::InvalidArgumentError(command.get_name() + ": " + error.what());
  const auto option = std::find_if(words.begin(), words.end(),
                                   [](const std::string& word) { return word.starts_with("-"); });
  const std::string word = option == words.end() ? words.front() : *option;
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options()) names.push_back(known->get_name());
  return absl::InvalidArgumentError(
      absl::StrCat(command.get_name(), ": '", word, "' is not ",
                   option == words.end() ? "expected" : "an option of this command",
                   NearestNameHint(word, names)));
}

}  // namespace

absl::StatusOr<std::string> ParseWords(CLI::App& app, const std::vector<std::string>& words) {
  try {
    app.parse(Reversed(words));
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what()) + "\n";
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return (chosen.empty() ? app.help() : chosen.front()->help(app.get_name())) + "\n";
  } catch (const CLI::ExtrasError& error) {
    const auto chosen = app.get_subcommands();
    return NotTaken(chosen.empty() ? app : *chosen.front(), error);
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const std::string where = chosen.empty() ? "" : chosen.front()->get_name() + ": ";
    return absl::InvalidArgumentError(where + error.what());
  }
  return std::string();
}

}  // namespace hps::cli
