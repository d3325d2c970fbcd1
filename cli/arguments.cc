#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

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

// The options that have one number for all tables, or one for each; returns that of the default.
CLI::Option* AddTableNumbers(CLI::App& command, ImportArguments& arguments) {
  AddParsed(
      command, "--dim",
      [](const std::string& text) {
        return ParseList(text,
                         [](const std::string& part) { return ParseCount(part, 1, kDimMax); });
      },
      [&arguments](const std::vector<uint64_t>& dims) {
        arguments.request.dim = static_cast<uint32_t>(dims.front());
        arguments.dims = dims;
      },
      "Elements of a row, where the files don't tell; N,N,...: of each --table-from")
      ->type_name("N");
  return AddParsed(
             command, "--default",
             [](const std::string& text) { return ParseList(text, ParseNumber); },
             [&arguments](const std::vector<double>& values) {
               arguments.request.default_value = values.front();
               arguments.default_values = values;
             },
             "Every element of the row that an absent key gets (0); V,V,...: of each --table-from")
      ->type_name("VALUE");
}

CLI::App* AddImport(CLI::App& app, ImportArguments& arguments) {
  CLI::App* command = app.add_subcommand("import", "Validate, then load a table or a whole model");
  ImportRequest& request = arguments.request;
  AddStore(*command, arguments.store);
  auto* table = AddTable(*command, request.name);
  AddChecked(
      *command, "--model",
      [](const std::string& text) { return std::string(CheckModelName(text).message()); },
      [&arguments](const std::string& name) {
        arguments.request.name = name;
        arguments.whole_model = true;
      },
      "The model: PATH has a sub-folder or file per table; all switch together")
      ->type_name("MODEL")
      ->excludes(table);
  auto* from = AddPath(*command, "--from", request.from,
                       "Files of the table or the model; or redis://HOST:PORT, a Redis of HugeCTR")
                   ->type_name("PATH");
  AddTableSources(*command, arguments)->excludes(from)->excludes(table);
  AddChoice<TableFormat>(
      *command, "--format", kImportFormats,
      [&request](TableFormat format) { request.format = format; }, "Format of the files (auto)");
  AddChoice<Dtype>(
      *command, "--dtype", kDtypes, [&request](Dtype dtype) { request.dtype = dtype; },
      "Element type of the stored rows (that of the files)");
  auto* value = AddTableNumbers(*command, arguments);
  AddPath(*command, "--default-file", request.default_file, "The row that an absent key gets")
      ->type_name("F.npy")
      ->excludes(value);
  AddText(*command, "--tensor", "a name", request.tensor,
          "safetensors: the [n, dim] tensor whose row numbers are the keys")
      ->type_name("NAME");
  AddCount(*command, "--partitions", {1, kHugectrPartitionsMax}, request.partitions,
           "hugectr-redis: HugeCTR's num_partitions (8)");
  AddParsed(
      *command, "--stream-from", ParseUpdateStart,
      [&request](const std::optional<UpdateStart>& start) { request.update_start = start; },
      "Where reading of the update stream begins (import: at the time when this import begins)")
      ->type_name("import|earliest|latest|TIME");
  AddChecked(
      *command, "--import-id",
      [](const std::string& text) { return std::string(ValidateImportId(text).message()); },
      [&request](const std::string& id) { request.import_id = id; },
      "Name of these rows on all nodes that share level 2; needs --stream-from earliest or TIME")
      ->type_name("ID");
  AddParsed(
      *command, "--memory", ParseImportMemory,
      [&request](uint64_t bytes) { request.memory_bytes_max = bytes; },
      "Memory that sorting may use (512MiB)")
      ->type_name("SIZE");
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
  auto* keys = AddParsed(
                   *command, "--keys", ParseKeys,
                   [&arguments](const std::vector<Key>& parsed) { arguments.keys = parsed; },
                   "Keys, signed decimals; above 2^63 - 1 bit for bit")
                   ->type_name("1,2,3");
  AddPath(*command, "--keys-file", arguments.keys_file, "Keys, [n] int64, uint64, int32 or uint32")
      ->type_name("F.npy")
      ->excludes(keys);
  AddPath(*command, "--out", arguments.out, "Write the rows to this file, [n, dim] float32")
      ->type_name("F.npy");
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
  AddChecked(
      *command, "--model",
      [](const std::string& text) { return std::string(CheckModelName(text).message()); },
      [&arguments](const std::string& name) { arguments.request.name = name; },
      "The model: DIR gets a folder per table, its network and model.toml")
      ->type_name("MODEL")
      ->excludes(table);
  AddPath(*command, "--to", arguments.request.to, "Directory for the files")
      ->required()
      ->type_name("DIR");
  AddChoice<TableFormat>(
      *command, "--format", kOutputFormats,
      [&arguments](TableFormat format) { arguments.request.format = format; },
      "Format of the files")
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
  AddChecked(
      *command, "--model",
      [](const std::string& text) { return std::string(CheckModelName(text).message()); },
      [&arguments](const std::string& name) { arguments.name = name; },
      "The model: all of its tables and its network")
      ->type_name("MODEL")
      ->excludes(table);
  command->footer(
      "Example:\n  hps drop --store store --table dlrm/user\n"
      "  hps drop --store store --model dlrm");
  return command;
}

CLI::App* AddSplitOnnx(CLI::App& app, SplitOnnxArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "split-onnx", "Divide a trained ONNX model into its embedding tables and the dense network");
  AddPath(*command, "model", arguments.model, "The model, a file of ONNX")
      ->required()
      ->type_name("MODEL.onnx");
  AddPath(*command, "--out", arguments.out, "Directory for tables, network and model.toml, made")
      ->required()
      ->type_name("DIR");
  command->footer(
      "Example:\n  hps split-onnx dlrm.onnx --out dlrm\n"
      "  hps import --store store --model dlrm --from dlrm");
  return command;
}

CLI::App* AddGenerate(CLI::App& app, GenerateArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "generate", "Write synthetic tables whose rows are a known function of table and key");
  AddPath(*command, "--out", arguments.out, "Directory, made")->required()->type_name("DIR");
  AddCount(*command, "--tables", {1}, arguments.tables, "Number of tables")->required();
  AddCount(*command, "--rows", {1}, arguments.rows, "Rows of all tables together")->required();
  AddCount(*command, "--dim", {1}, arguments.dim, "Elements of a row")->required();
  AddParsed(
      *command, "--alpha", ParseNumber, [&arguments](double alpha) { arguments.alpha = alpha; },
      "Exponent of the power law (1.2)")
      ->type_name("X");
  AddCount(*command, "--seed", {0}, arguments.seed, "Seed (1)");
  AddCount(*command, "--requests", {0}, arguments.requests, "Lines of the request stream (1000)");
  AddChoice<TableFormat>(
      *command, "--format", kOutputFormats,
      [&arguments](TableFormat format) { arguments.format = format; },
      "Format of the files (hugectr)");
  command->footer(
      "Example:\n  hps generate --out tables --tables 26 --rows 1000000 --dim 16\n"
      "  hps import --store store --model demo --from tables");
  return command;
}

// Only for the list of commands: hps-bench parses the words behind it.
CLI::App* AddBench(CLI::App& app) {
  return app.add_subcommand("bench", "Measure a figure beside its bound, in one run (hps-bench)");
}

CLI::App* AddServe(CLI::App& app, ServeArguments& arguments) {
  CLI::App* command = app.add_subcommand("serve", "Answer lookups over HTTP and gRPC");
  AddStore(*command, arguments.store);
  const auto add_address = [&](const char* option, std::optional<std::string>& address,
                               const char* help) {
    command
        ->add_option_function<std::string>(
            option, [&address](const std::string& text) { address = text; }, help)
        ->type_name("HOST:PORT");
  };
  add_address("--http", arguments.http, "Where HTTP is served (127.0.0.1:8000); '' = off");
  add_address("--grpc", arguments.grpc, "Where gRPC is served (127.0.0.1:8001); '' = off");
  add_address("--metrics", arguments.metrics,
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
  AddPath(*command, "file", arguments.file, "HugeCTR's configuration")
      ->required()
      ->type_name("ps.json");
  AddPath(*command, "--out", arguments.out, "Write the TOML to this file instead of printing it")
      ->type_name("F.toml");
  command->footer("Example:\n  hps convert-config ps.json --out hps.toml");
  return command;
}

// All commands and the values that their options fill.
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
    app_.add_flag("--json", json_, "Print one JSON object instead of text");
    Add(AddImport(app_, import_), import_);
    Add(AddLookup(app_, lookup_), lookup_);
    Add(AddInspect(app_, inspect_), inspect_);
    Add(AddVerify(app_, verify_), verify_);
    Add(AddExport(app_, export_), export_);
    Add(AddDrop(app_, drop_), drop_);
    Add(AddSplitOnnx(app_, split_onnx_), split_onnx_);
    Add(AddGenerate(app_, generate_), generate_);
    AddBench(app_);
    Add(AddPublish(app_, publish_), publish_);
    Add(AddServe(app_, serve_), serve_);
    Add(AddApply(app_, apply_), apply_);
    Add(AddRefresh(app_, refresh_), refresh_);
    Add(AddSnapshot(app_, snapshot_), snapshot_);
    Add(AddParked(app_, parked_), parked_);
    Add(AddTop(app_, top_), top_);
    Add(AddConvertConfig(app_, convert_config_), convert_config_);
  }

  absl::StatusOr<CommandLine> Parse(int argc, const char* const* argv);

 private:
  template <typename Arguments>
  void Add(CLI::App* command, Arguments& arguments) {
    command->add_flag("--json", json_, "Print one JSON object instead of text");
    take_.emplace_back(command, [this, &arguments] { line_.command = arguments; });
  }
  absl::Status CheckTogether() const;
  absl::StatusOr<size_t> CommandPlace(const std::vector<std::string>& words) const;

  CLI::App app_{"hps: a hierarchical parameter server for recommendation inference", "hps"};
  bool json_ = false;
  CommandLine line_;
  std::vector<std::pair<CLI::App*, std::function<void()>>> take_;
  ImportArguments import_;
  LookupArguments lookup_;
  InspectArguments inspect_;
  VerifyArguments verify_;
  ExportArguments export_;
  DropArguments drop_;
  SplitOnnxArguments split_onnx_;
  GenerateArguments generate_;
  PublishArguments publish_;
  ServeArguments serve_;
  ApplyArguments apply_;
  RefreshArguments refresh_;
  SnapshotArguments snapshot_;
  ParkedArguments parked_;
  TopArguments top_;
  ConvertConfigArguments convert_config_;
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
  line_.json = json_;
  for (const auto& [chosen, take] : take_) {
    if (chosen->parsed()) take();
  }
  if (const absl::Status status = CheckTogether(); !status.ok()) return status;
  return line_;
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

// What options must be given together.
absl::Status Parser::CheckTogether() const {
  const std::string command = app_.get_subcommands().front()->get_name();
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(command + ": " + what);
  };
  const StoreArguments* store = std::visit(
      [](const auto& arguments) -> const StoreArguments* {
        if constexpr (requires { arguments.store; }) {
          return &arguments.store;
        } else {
          return nullptr;
        }
      },
      line_.command);
  const bool asks_server = command == "apply" && !apply_.server.url.empty();
  if (store != nullptr && store->store.empty() && store->config.empty() && !asks_server) {
    return error(command == "apply" ? "--store DIR, --config FILE or --server URL is required"
                                    : "--store DIR or --config FILE is required");
  }
  if (command == "import" && import_.request.name.empty())
    return error("--table MODEL/TABLE or --model MODEL is required");
  if (command == "import" && import_.request.from.empty() && import_.tables.empty())
    return error("--from PATH, or --table-from NAME=PATH for each table of a model, is required");
  for (const size_t count : {import_.dims.size(), import_.default_values.size()}) {
    if (count <= 1 || count == import_.tables.size()) continue;
    return error(absl::StrCat("--dim and --default take one value, or one for each --table-from; ",
                              "found ", count, " for ", import_.tables.size()));
  }
  if (command == "export" && export_.request.name.empty())
    return error("--table MODEL/TABLE or --model MODEL is required");
  if (command == "drop" && drop_.name.empty())
    return error("--table MODEL/TABLE or --model MODEL is required");
  if (command == "lookup" && !lookup_.keys.has_value() && lookup_.keys_file.empty())
    return error("--keys 1,2,3 or --keys-file F.npy is required");
  if (command == "generate") {
    const absl::Status valid = ValidateGenerateRequest(generate_.Request());
    if (!valid.ok()) return error(std::string(valid.message()));
  }
  return absl::OkStatus();
}

}  // namespace

GenerateRequest GenerateArguments::Request() const {
  return {.out = out,
          .tables = tables,
          .rows = rows,
          .dim = dim,
          .alpha = alpha,
          .seed = seed,
          .format = format,
          .requests = requests};
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  return Parser().Parse(argc, argv);
}

}  // namespace hps::cli
