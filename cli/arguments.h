// The command line as values: what each command of `hps` was asked to do.
//
// Only this unit, and those that declare options for it, know the command line parser. Parsing
// touches nothing: whether files exist and names are known is for the commands to find out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/client/server_client.h"
#include "hps/model_import.h"
#include "hps/publish.h"
#include "hps/transfer.h"
#include "hps/types.h"
#include "import/generate.h"

namespace hps::cli {

// Where the store is: a directory, or a configuration file that names it.
struct StoreArguments {
  std::string store;
  std::string config;
};

struct ImportArguments {
  StoreArguments store;
  ImportRequest request;
  std::vector<TableSource> tables;  // of the model, instead of request.from
  // One for each of `tables`, or one for all that the request imports.
  std::vector<uint64_t> dims;
  std::vector<double> default_values;
};

struct LookupArguments {
  StoreArguments store;
  std::string table;
  std::optional<std::vector<Key>> keys{};
  std::string keys_file;
  std::string out;
  int device = -1;
};

struct InspectArguments {
  StoreArguments store;
};

struct VerifyArguments {
  StoreArguments store;
  bool repair = false;
};

struct ExportArguments {
  StoreArguments store;
  ExportRequest request;
};

struct DropArguments {
  StoreArguments store;
  std::string name;  // MODEL/TABLE or MODEL
};

struct SplitOnnxArguments {
  std::string model;
  std::string out;
};

struct GenerateArguments {
  GenerateRequest request;
};

// What hps-bench parses.
struct BenchArguments {
  std::vector<std::string> words;  // of the command line, without the command
};

struct PublishArguments {
  PublishRequest request;
};

struct ServeArguments {
  StoreArguments store;
  // In the place of the configuration's; empty text = off.
  std::optional<std::string> http{};
  std::optional<std::string> grpc{};
  std::optional<std::string> metrics{};
  bool print_config = false;
};

struct ApplyArguments {
  StoreArguments store;
  ServerArguments server;  // without an address: the store
  ImportRequest request;   // table and files
  bool is_delete = false;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of one change
};

struct RefreshArguments {
  ServerArguments server;
  std::string model;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

struct SnapshotArguments {
  ServerArguments server;
  std::string name;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
};

struct ParkedArguments {
  StoreArguments store;
  bool replay = false;
  bool undecided = false;
};

struct TopArguments {
  ServerArguments server;
  std::chrono::nanoseconds interval = std::chrono::seconds(2);
  uint64_t count = 0;  // 0 = until a signal comes; once in JSON
};

struct ConvertConfigArguments {
  std::string file;
  std::string out;  // empty: standard output
};

struct CommandLine {
  bool json = false;
  // Not empty: this text (help, version) is all that is to be printed.
  std::string text;
  std::variant<ImportArguments, LookupArguments, InspectArguments, VerifyArguments, ExportArguments,
               DropArguments, SplitOnnxArguments, GenerateArguments, BenchArguments,
               PublishArguments, ServeArguments, ApplyArguments, RefreshArguments,
               SnapshotArguments, ParkedArguments, TopArguments, ConvertConfigArguments>
      command;
};

// Errors: INVALID_ARGUMENT for wrong usage, one sentence that names the command and the option.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

}  // namespace hps::cli
