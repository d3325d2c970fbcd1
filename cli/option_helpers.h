// How the command line's options are declared: each with a check of its text, so that a wrong value
// is wrong usage. Only for the units that declare options (cli/arguments.h).
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/values.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "hps/types.h"

namespace hps::cli {

inline const std::map<std::string, TableFormat> kImportFormats = {
    {"auto", TableFormat::kAuto},
    {"hugectr", TableFormat::kHugectr},
    {"npy", TableFormat::kNpy},
    {"safetensors", TableFormat::kSafetensors},
    {"hugectr-bin", TableFormat::kHugectrBin},
    {"hugectr-rocksdb", TableFormat::kHugectrRocksdb},
    {"hugectr-redis", TableFormat::kHugectrRedis}};
inline const std::map<std::string, TableFormat> kOutputFormats = {
    {"hugectr", TableFormat::kHugectr}, {"npy", TableFormat::kNpy}};
inline const std::map<std::string, Dtype> kDtypes = {
    {"float32", Dtype::kFloat32}, {"float16", Dtype::kFloat16}, {"bfloat16", Dtype::kBfloat16}};

// An option whose text `parse` turns into a value for `target`, or into an error. `option` is as
// the help prints it, the name and the type of its value: "--out DIR".
template <typename Parse, typename Target>
CLI::Option* AddParsed(CLI::App& app, const std::string& option, Parse parse, Target& target,
                       const std::string& help) {
  const size_t blank = option.find(' ');
  const auto check = [parse](const std::string& text) {
    return std::string(parse(text).status().message());
  };
  const auto take = [parse, &target](const std::string& text) { target = *parse(text); };
  return app.add_option_function<std::string>(option.substr(0, blank), take, help)
      ->check(CLI::Validator(check, ""))
      ->type_name(option.substr(blank + 1));
}

// An option whose text is one of `names`, which are its type.
template <typename Value, typename Target>
CLI::Option* AddChoice(CLI::App& app, const std::string& option,
                       const std::map<std::string, Value>& names, Target& target,
                       const std::string& help) {
  std::string type;
  for (const auto& [name, value] : names) type += (type.empty() ? "" : "|") + name;
  const auto parse = [&names, type](const std::string& text) -> absl::StatusOr<Value> {
    if (const auto name = names.find(text); name != names.end()) return name->second;
    return absl::InvalidArgumentError("'" + text + "' is not one of " + type);
  };
  return AddParsed(app, option + " " + type, parse, target, help);
}

// The check of a text that must not be empty.
struct NotEmpty {
  const char* what;  // "a path"

  absl::Status operator()(const std::string& text) const {
    return text.empty() ? absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found ''"))
                        : absl::OkStatus();
  }
};

// A text for which check(text) is OK.
template <typename Check, typename Target>
CLI::Option* AddText(CLI::App& app, const std::string& option, Check check, Target& target,
                     const std::string& help) {
  const auto parse = [check](const std::string& text) -> absl::StatusOr<std::string> {
    const absl::Status status = check(text);
    return status.ok() ? absl::StatusOr<std::string>(text) : status;
  };
  return AddParsed(app, option, parse, target, help);
}

// A path; an empty one is a shell variable that was not set, and not "none".
template <typename Target>
CLI::Option* AddPath(CLI::App& app, const std::string& option, Target& target,
                     const std::string& help) {
  return AddText(app, option, NotEmpty{"a path"}, target, help);
}

inline void AddStore(CLI::App& app, StoreArguments& arguments) {
  auto* store = AddPath(app, "--store DIR", arguments.store, "Directory of the store");
  AddPath(app, "--config FILE", arguments.config, "Configuration file that names the store")
      ->excludes(store);
}

// The table that a command is about.
inline CLI::Option* AddTable(CLI::App& app, std::string& name) {
  return AddText(app, "--table MODEL/TABLE", ValidateTableName, name, "The table");
}

inline CLI::Option* AddModel(CLI::App& app, std::string& name, const std::string& help) {
  return AddText(app, "--model MODEL", CheckModelName, name, help);
}

template <typename Target>
void AddTensor(CLI::App& app, Target& tensor) {
  AddText(app, "--tensor NAME", NotEmpty{"a name"}, tensor,
          "safetensors: the [n, dim] tensor whose row numbers are the keys");
}

struct CountRange {
  uint64_t min;
  uint64_t max = std::numeric_limits<uint64_t>::max();  // or what the target can hold
};

// A whole number, or an optional one; its type is N.
template <typename Target>
CLI::Option* AddCount(CLI::App& app, const std::string& option, CountRange range, Target& target,
                      const std::string& help) {
  using Number = typename decltype(std::optional(target))::value_type;
  const uint64_t max = std::min<uint64_t>(range.max, std::numeric_limits<Number>::max());
  const auto parse = [min = range.min, max](const std::string& text) {
    return ParseCount(text, min, max);
  };
  return AddParsed(app, option + " N", parse, target, help);
}

inline CLI::Option* AddDevice(CLI::App& app, int& device, const std::string& help) {
  return AddParsed(app, "--device N", ParseDevice, device, help);
}

}  // namespace hps::cli
