// How the command line's options are declared: each with a check of its text, so that a wrong value
// is wrong usage. Only for the units that declare options (cli/arguments.h).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "cli/values.h"
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

// An option whose text `check` accepts ("" = yes, else why not) before `take` gets it.
inline CLI::Option* AddChecked(CLI::App& app, const std::string& option,
                               std::function<std::string(const std::string&)> check,
                               const std::function<void(const std::string&)>& take,
                               const std::string& help) {
  return app.add_option_function<std::string>(option, take, help)
      ->check(CLI::Validator(std::move(check), ""));
}

// An option whose text is one of `names`.
template <typename Value>
CLI::Option* AddChoice(CLI::App& app, const std::string& option,
                       const std::map<std::string, Value>& names, std::function<void(Value)> take,
                       const std::string& help) {
  std::string type;
  for (const auto& [name, value] : names) type += (type.empty() ? "" : "|") + name;
  const auto check = [&names, type](const std::string& text) {
    return names.contains(text) ? "" : "'" + text + "' is not one of " + type;
  };
  const auto take_value = [&names, take](const std::string& text) { take(names.at(text)); };
  return AddChecked(app, option, check, take_value, help)->type_name(type);
}

// An option whose text `parse` turns into a value or an error.
template <typename Parse, typename Take>
CLI::Option* AddParsed(CLI::App& app, const std::string& option, Parse parse, Take take,
                       const std::string& help) {
  const auto check = [parse](const std::string& text) {
    return std::string(parse(text).status().message());
  };
  const auto take_value = [parse, take](const std::string& text) { take(*parse(text)); };
  return AddChecked(app, option, check, take_value, help);
}

// The number that an optional, or plain, member holds.
template <typename Target>
struct CountOf {
  using Type = Target;
};
template <typename Number>
struct CountOf<std::optional<Number>> {
  using Type = Number;
};

// A text; an empty one is a shell variable that was not set, and not "none". `what`: "a path".
template <typename Target>
CLI::Option* AddText(CLI::App& app, const std::string& option, const std::string& what,
                     Target& target, const std::string& help) {
  const auto check = [what](const std::string& text) {
    return text.empty() ? "expected " + what + ", found ''" : "";
  };
  return AddChecked(
      app, option, check, [&target](const std::string& text) { target = text; }, help);
}

template <typename Target>
CLI::Option* AddPath(CLI::App& app, const std::string& option, Target& target,
                     const std::string& help) {
  return AddText(app, option, "a path", target, help);
}

inline void AddStore(CLI::App& app, StoreArguments& arguments) {
  auto* store =
      AddPath(app, "--store", arguments.store, "Directory of the store")->type_name("DIR");
  AddPath(app, "--config", arguments.config, "Configuration file that names the store")
      ->type_name("FILE")
      ->excludes(store);
}

// The table that a command is about, MODEL/TABLE.
inline CLI::Option* AddTable(CLI::App& app, std::string& name) {
  const auto check = [](const std::string& text) {
    return std::string(ValidateTableName(text).message());
  };
  return AddChecked(
             app, "--table", check, [&name](const std::string& text) { name = text; }, "The table")
      ->type_name("MODEL/TABLE");
}

struct CountRange {
  uint64_t min;
  uint64_t max = std::numeric_limits<uint64_t>::max();  // or what the target can hold
};

// A whole number; `Target` is what holds it.
template <typename Target>
CLI::Option* AddCount(CLI::App& app, const std::string& option, CountRange range, Target& target,
                      const std::string& help) {
  using Number = typename CountOf<Target>::Type;
  const uint64_t max = std::min<uint64_t>(range.max, std::numeric_limits<Number>::max());
  return AddParsed(
             app, option,
             [min = range.min, max](const std::string& text) { return ParseCount(text, min, max); },
             [&target](uint64_t count) { target = static_cast<Number>(count); }, help)
      ->type_name("N");
}

inline CLI::Option* AddDevice(CLI::App& app, int& device, const std::string& help) {
  return AddParsed(
             app, "--device", ParseDevice, [&device](int number) { device = number; }, help)
      ->type_name("N");
}

}  // namespace hps::cli
