#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "cli/command_parser.h"
#include "cli/option_helpers.h"
#include "cli/server_options.h"
#include "cli/values.h"
#include "hps/table_spec.h"
#include "types/names.h"
#include "types/units.h"
#include "types/update_start.h"

namespace hps::cli {
namespace {

absl::StatusOr<uint64_t> ParseImportMemory(const std::string& text) {
  absl::StatusOr<uint64_t> bytes = ParseByteSize(text);
  if (bytes.ok() && *bytes < kImportMemoryBytesMin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is less than sorting needs: ", FormatByteSize(kImportMemoryBytesMin)));
  }
  return bytes;
}

// One number for all tables, or one for each.
absl::StatusOr<std::vector<uint64_t>> ParseDims(const std::string& text) {
  return ParseList(text, [](const std::string& part) { return ParseCount(part, 1, kDimMax); });
}
absl::StatusOr<std::vector<double>> ParseNumbers(const std::string& text) {
  return ParseList(text, ParseNumber);
}

// The option for the tables of a model that are anywhere.
CLI::Option* AddTableSources(CLI::App& command, ImportArguments& arguments) {
  const auto check = [](const std::string& text) {
    return std::string(ParseTableSource(text).status().message());
  };
  const auto take = [&arguments](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) arguments.tables.push_back(*ParseTableSource(text));
  };
  return command
      .add_option_function<std::vector<std::string>>(
          "--table-from", take,
          "A table of the model and its files, instead of --from; once for each, in declared order")
      ->check(CLI::Validator(check, ""))
      ->allow_extra_args(false)
      ->type_name("NAME=PATH");
}

CLI::App* AddImport(CLI::App& app, ImportArguments& arguments) {
  CLI::App* command = app.add_subcommand("import", "Validate, then load a table or a whole model");
  ImportRequest& request = arguments.request;
  AddStore(*command, arguments.store);
  auto* table = AddTable(*command, request.name);
  AddModel(*command, request.name,
           "The model: PATH has a sub-folder or file per table; all switch together")
      ->excludes(table);
  auto* from = AddPath(*command, "--from PATH", request.from,
                       "Files of the table or the model; or redis://HOST:PORT, a Redis of HugeCTR");
  AddTableSources(*command, arguments)->excludes(from)->excludes(table);
  AddChoice(*command, "--format", kImportFormats, request.format, "Format of the files (auto)");
  AddChoice(*command, "--dtype", kDtypes, request.dtype,
            "Element type of the stored rows (that of the files)");
  AddParsed(*command, "--dim N", ParseDims, arguments.dims,
            "Elements of a row, where the files don't tell; N,N,...: of each --table-from");
  auto* value = AddParsed(
      *command, "--default VALUE", ParseNumbers, arguments.default_values,
      "Every element of the row that an absent key gets (0); V,V,...: of each --table-from");
  AddPath(*command, "--default-file F.npy", request.default_file, "The row that an absent key gets")
      ->excludes(value);
  AddTensor(*command, request.tensor);
  AddCount(*command, "--partitions", {1, kHugectrPartitionsMax}, request.partitions,
           "hugectr-redis: HugeCTR's num_partitions (8)");
  AddParsed(
      *command, "--stream-from import|earliest|latest|TIME", ParseUpdateStart, request.update_start,
      "Where reading of the update stream begins (import: at the time when this import begins)");
  AddText(
      *command, "--import-id ID", ValidateImportId, request.import_id,
      "Name of these rows on all nodes that share level 2; needs --stream-from earliest or TIME");
  AddParsed(*command, "--memory SIZE", ParseImportMemory, request.memory_bytes_max,
            "Memory that sorting may use (512MiB)");
  AddCount(*command, "--threads", {1}, request.threads, "Threads (the number of cores)");
  command->footer(
      "Example:\n  hps import --store store --table dlrm/user --from user_embedding --default 0\n"
      "  hps import --store store --model dlrm --from tables --format npy");
  return command;
}

CLI::App* AddLookup(CLI::App& app, LookupArguments& arguments) {
  CLI::App* command = app.add_subcommand("lookup", "Print the rows of keys as float32");
  AddStore(*command, arguments.store);
  AddTable(*command, arguments.table)->required();
  auto* keys = AddParsed(*command, "--keys 1,2,3", ParseKeys, arguments.keys,
                         "Keys, signed decimals; above 2^63 - 1 bit for bit");
  AddPath(*command, "--keys-file F.npy", arguments.keys_file,
          "Keys, [n] int64, uint64, int32 or uint32")
      ->excludes(keys);
  AddPath(*command, "--out F.npy", arguments.out, "Write the rows to this file, [n, dim] float32");
  AddDevice(*command, arguments.device, "GPU whose cache is used; -1 = none");
  command->footer(
      "Example:\n  hps lookup --store store --table dlrm/user --keys 1,2,-3\n"
      "  hps lookup --store store --table dlrm/user --keys-file keys.npy --out rows.npy --json");
  return command;
}

CLI::App* AddInspect(CLI::App& app, InspectArguments& arguments) {
  CLI::App* command = app.add_subcommand("inspect", "List the tables of a store");
  AddStore(*command, arguments.store);
  command->footer("Example:\n  hps inspect --store store --json");
  return command;
}

CLI::App* AddVerify(CLI::App& app, VerifyArguments& arguments) {
  CLI::App* command = app.add_subcommand("verify", "Read every row and checksum of a store");
  AddStore(*command, arguments.store);
  command->add_flag("--repair", arguments.repair,
                    "Mend what can be mended without the rows: remove damaged dense networks");
  command->footer("Example:\n  hps verify --store store\n  hps verify --store store --repair");
  return command;
}

CLI::App* AddExport(CLI::App& app, ExportArguments& arguments) {
  CLI::App* command =
      app.add_subcommand("export", "Write a table or a model to files: the inverse of import");
  AddStore(*command, arguments.store);
  auto* table = AddTable(*command, arguments.request.name);
  AddModel(*command, arguments.request.name,
           "The model: DIR gets a folder per table, its network and model.toml")
      ->excludes(table);
  AddPath(*command, "--to DIR", arguments.request.to, "Directory for the files")->required();
  AddChoice(*command, "--format", kOutputFormats, arguments.request.format, "Format of the files")
      ->required();
  command->footer(
      "Example:\n  hps export --store store --table dlrm/user --to user_embedding --format "
      "hugectr\n  hps export --store store --model dlrm --to dlrm --format hugectr");
  return command;
}

CLI::App* AddDrop(CLI::App& app, DropArguments& arguments) {
  CLI::App* command = app.add_subcommand("drop", "Remove a table or a model from a store");
  AddStore(*command, arguments.store);
  auto* table = AddTable(*command, arguments.name);
  AddModel(*command, arguments.name, "The model: all of its tables and its network")
      ->excludes(table);
  command->footer(
      "Example:\n  hps drop --store store --table dlrm/user\n"
      "  hps drop --store store --model dlrm");
  return command;
}

CLI::App* AddSplitOnnx(CLI::App& app, SplitOnnxArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "split-onnx", "Divide a trained ONNX model into its embedding tables and the dense network");
  AddPath(*command, "model MODEL.onnx", arguments.model, "The model, a file of ONNX")->required();
  AddPath(*command, "--out DIR", arguments.out,
          "Directory for tables, network and model.toml, made")
      ->required();
  command->footer(
      "Example:\n  hps split-onnx dlrm.onnx --out dlrm\n"
      "  hps import --store store --model dlrm --from dlrm");
  return command;
}

CLI::App* AddGenerate(CLI::App& app, GenerateArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "generate", "Write synthetic tables whose rows are a known function of table and key");
  GenerateRequest& request = arguments.request;
  AddPath(*command, "--out DIR", request.out, "Directory, made")->required();
  AddCount(*command, "--tables", {1}, request.tables, "Number of tables")->required();
  AddCount(*command, "--rows", {1}, request.rows, "Rows of all tables together")->required();
  AddCount(*command, "--dim", {1}, request.dim, "Elements of a row")->required();
  AddParsed(*command, "--alpha X", ParseNumber, request.alpha, "Exponent of the power law (1.2)");
  AddCount(*command, "--seed", {0}, request.seed, "Seed (1)");
  AddCount(*command, "--requests", {0}, request.requests, "Lines of the request stream (1000)");
  AddChoice(*command, "--format", kOutputFormats, request.format, "Format of the files (hugectr)");
  command->footer(
      "Example:\n  hps generate --out tables --tables 26 --rows 1000000 --dim 16\n"
      "  hps import --store store --model demo --from tables");
  return command;
}

CLI::App* AddServe(CLI::App& app, ServeArguments& arguments) {
  CLI::App* command = app.add_subcommand("serve", "Answer lookups over HTTP and gRPC");
  AddStore(*command, arguments.store);
  const auto any = [](const std::string&) { return absl::OkStatus(); };
  AddText(*command, "--http HOST:PORT", any, arguments.http,
          "Where HTTP is served (127.0.0.1:8000); '' = off");
  AddText(*command, "--grpc HOST:PORT", any, arguments.grpc,
          "Where gRPC is served (127.0.0.1:8001); '' = off");
  AddText(*command, "--metrics HOST:PORT", any, arguments.metrics,
          "Where metrics are served (127.0.0.1:8002); '' = off");
  command->add_flag("--print-config", arguments.print_config,
                    "Print every setting with its value and where it came from, and end");
  command->footer(
      "Example:\n  hps serve --store store\n  hps serve --config hps.toml --http "
      "0.0.0.0:8000");
  return command;
}

CLI::App* AddConvertConfig(CLI::App& app, ConvertConfigArguments& arguments) {
  CLI::App* command =
      app.add_subcommand("convert-config", "Convert HugeCTR's ps.json to a configuration of hps");
  AddPath(*command, "file ps.json", arguments.file, "HugeCTR's configuration")->required();
  AddPath(*command, "--out F.toml", arguments.out,
          "Write the TOML to this file instead of printing it");
  command->footer("Example:\n  hps convert-config ps.json --out hps.toml");
  return command;
}

constexpr const char* kNameRequired = "--table MODEL/TABLE or --model MODEL is required";

// Why options that are right by themselves are wrong together; "" = they are not.
template <typename Arguments>
std::string WrongTogether(const Arguments& /*arguments*/) {
  return "";
}

std::string WrongTogether(const ImportArguments& arguments) {
  const size_t tables = arguments.tables.size();
  if (arguments.request.name.empty()) return kNameRequired;
  if (arguments.request.from.empty() && tables == 0)
    return "--from PATH, or --table-from NAME=PATH for each table of a model, is required";
  for (const size_t count : {arguments.dims.size(), arguments.default_values.size()}) {
    if (count <= 1 || count == tables) continue;
    return absl::StrCat("--dim and --default take one value, or one for each --table-from; found ",
                        count, " for ", tables);
  }
  return "";
}

std::string WrongTogether(const ExportArguments& arguments) {
  return arguments.request.name.empty() ? kNameRequired : "";
}

std::string WrongTogether(const DropArguments& arguments) {
  return arguments.name.empty() ? kNameRequired : "";
}

std::string WrongTogether(const LookupArguments& arguments) {
  const bool has_keys = arguments.keys.has_value() || !arguments.keys_file.empty();
  return has_keys ? "" : "--keys 1,2,3 or --keys-file F.npy is required";
}

std::string WrongTogether(const GenerateArguments& arguments) {
  return std::string(ValidateGenerateRequest(arguments.request).message());
}

// Likewise, about the store that a command works on.
template <typename Arguments>
std::string WrongStore(const Arguments& arguments) {
  if constexpr (requires { arguments.store; }) {
    if (!arguments.store.store.empty() || !arguments.store.config.empty()) return "";
    if constexpr (requires { arguments.server; }) {
      if (!arguments.server.url.empty()) return "";
      return "--store DIR, --config FILE or --server URL is required";
    }
    return "--store DIR or --config FILE is required";
  }
  return "";
}

// All commands. The line that it returns is filled by the options of the command that is parsed.
class Parser {
 public:
  Parser() {
    app_.require_subcommand(1);
    app_.footer(
        "Example:\n  hps generate --out tables --tables 26 --rows 1000000 --dim 16\n"
        "  hps import --store store --model demo --from tables\n"
        "  hps lookup --store store --table demo/t0 --keys 0,1,2\n"
        "`hps COMMAND --help` tells more.");
    app_.set_version_flag("--version", "hps " HPS_VERSION);
    app_.add_flag("--json", line_.json, "Print one JSON object instead of text");
    Add(AddImport);
    Add(AddLookup);
    Add(AddInspect);
    Add(AddVerify);
    Add(AddExport);
    Add(AddDrop);
    Add(AddSplitOnnx);
    Add(AddGenerate);
    // Only for the list of commands: hps-bench parses the words behind it.
    app_.add_subcommand("bench", "Measure a figure beside its bound, in one run (hps-bench)");
    Add(AddPublish);
    Add(AddServe);
    Add(AddApply);
    Add(AddRefresh);
    Add(AddSnapshot);
    Add(AddParked);
    Add(AddTop);
    Add(AddConvertConfig);
  }

  absl::StatusOr<CommandLine> Parse(int argc, const char* const* argv);

 private:
  template <typename Arguments>
  void Add(CLI::App* (*add)(CLI::App&, Arguments&)) {
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* const command = add(app_, *arguments);
    command->add_flag("--json", line_.json, "Print one JSON object instead of text");
    command->callback([this, arguments] { line_.command = *arguments; });
  }
  absl::StatusOr<size_t> CommandPlace(const std::vector<std::string>& words) const;

  CLI::App app_{"hps: a hierarchical parameter server for recommendation inference", "hps"};
  CommandLine line_;
};

absl::StatusOr<CommandLine> Parser::Parse(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // Before the parser, for which an unknown command beside --help is not an error.
  HPS_ASSIGN_OR_RETURN(const size_t command, CommandPlace(words));
  const auto is_json = [](const std::string& word) { return word == "--json"; };
  if (command < words.size() && words[command] == "bench" &&
      std::all_of(words.begin(), words.begin() + static_cast<ptrdiff_t>(command), is_json)) {
    BenchArguments bench = {.words = words};
    bench.words.erase(bench.words.begin() + static_cast<ptrdiff_t>(command));
    line_.json = std::any_of(words.begin(), words.end(), is_json);
    line_.command = std::move(bench);
    return line_;
  }
  HPS_ASSIGN_OR_RETURN(line_.text, ParseWords(app_, words));
  if (!line_.text.empty()) return line_;
  const std::string wrong = std::visit(
      [](const auto& arguments) {
        const std::string store = WrongStore(arguments);
        return store.empty() ? WrongTogether(arguments) : store;
      },
      line_.command);
  if (wrong.empty()) return line_;
  return absl::InvalidArgumentError(absl::StrCat(words[command], ": ", wrong));
}

// The index of the command among the words; the number of words if they ask for help or the version
// of hps itself. Error if no word is a command: it names the word that stands in its place.
absl::StatusOr<size_t> Parser::CommandPlace(const std::vector<std::string>& words) const {
  const std::set<std::string> instead = {"--help", "-h", "--version"};
  std::vector<std::string> names;
  for (const CLI::App* command : app_.get_subcommands(nullptr))
    names.push_back(command->get_name());
  std::string message = "a command is required";
  std::string nearest;
  bool is_asked = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (std::find(names.begin(), names.end(), word) != names.end()) return i;
    is_asked |= instead.contains(word);
    if (instead.contains(word) || word.substr(0, word.find('=')) == "--json") continue;
    const char* const what = word.starts_with("-") ? "an option of hps" : "a command";
    message = absl::StrCat("'", word, "' is not ", what);
    nearest = NearestNameHint(word, names);
    is_asked = false;
    break;
  }
  if (is_asked) return words.size();
  return absl::InvalidArgumentError(
      absl::StrCat(message, "; commands are: ", absl::StrJoin(names, " "), nearest));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  return Parser().Parse(argc, argv);
}

}  // namespace hps::cli
