// hps inspect and verify: what a store holds, and whether it is whole.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "hps/store.h"
#include "types/names.h"

namespace hps::cli {
namespace {

// One number when all elements are the same, so that a reader need not know the dim.
bool IsUniform(const std::vector<float>& row) {
  return std::all_of(row.begin(), row.end(), [&](float value) {
    return value == row.front() || (value != value && row.front() != row.front());
  });
}

void WriteTable(const TableInfo& table, JsonWriter& json) {
  json.BeginObject().Member("name", std::string_view(table.spec.name));
  json.Member("dim", table.spec.dim).Member("dtype", DtypeName(table.spec.dtype));
  json.Member("rows", table.row_count).Member("bytes", table.bytes);
  const std::vector<float> row = DefaultRow(table.spec);
  json.Name("default");
  if (IsUniform(row)) {
    json.Value(row.empty() ? 0.0F : row.front());
  } else {
    json.BeginArray();
    for (const float value : row) json.Value(value);
    json.EndArray();
  }
  json.Member("incarnation", table.incarnation);
  json.Member("import_id", std::string_view(table.import_id));
  json.Name("positions").BeginArray();
  for (const StreamPosition& position : table.positions) {
    json.BeginObject().Member("partition", position.partition);
    json.Member("offset", position.offset);
    json.Member("generation", uint32_t{position.generation}).EndObject();
  }
  json.EndArray().EndObject();
}

void WriteNetwork(const std::string& model, const absl::StatusOr<ModelNetwork>& network,
                  JsonWriter& json) {
  json.BeginObject().Member("model", std::string_view(model));
  if (!network.ok()) {
    const absl::string_view why = network.status().message();
    json.Member("problem", std::string_view(why.data(), why.size())).EndObject();
    return;
  }
  json.Member("digest", std::string_view(network->digest));
  json.Member("bytes", static_cast<uint64_t>(network->onnx.size()));
  json.Name("inputs").BeginArray();
  for (const NetworkInput& input : network->inputs) {
    json.BeginObject().Member("name", std::string_view(input.name));
    if (!input.table.empty()) {
      json.Member("table", std::string_view(input.table));
      json.Member("pooling", std::string_view(PoolingName(input.pooling)));
    }
    json.EndObject();
  }
  json.EndArray().EndObject();
}

// The dense networks of the models that the tables are of, by model: each, or why it can't be read.
using Networks = std::map<std::string, absl::StatusOr<ModelNetwork>>;

Networks NetworksOf(Store& store, const std::vector<TableInfo>& tables) {
  Networks networks;
  std::set<std::string> models;
  for (const TableInfo& table : tables) models.insert(ModelOf(table.spec.name));
  for (const std::string& model : models) {
    auto network = store.models().ImportedNetwork(model);
    if (!network.ok()) {
      networks.emplace(model, network.status());
    } else if (network->has_value()) {
      networks.emplace(model, **std::move(network));
    }
  }
  return networks;
}

void PrintNetwork(const std::string& model, const absl::StatusOr<ModelNetwork>& network,
                  Output& output) {
  if (!network.ok()) {
    output.Line(PrintableText(
        absl::StrCat(model, ": dense network that can't be read: ", network.status().message())));
    return;
  }
  output.Line(absl::StrCat(model, ": dense network of ",
                           ReadableBytes(static_cast<double>(network->onnx.size())), ", digest ",
                           network->digest));
}

void WriteWaiting(const std::vector<PendingImport>& waiting, JsonWriter& json) {
  json.Name("staged").BeginArray();
  for (const PendingImport& import : waiting) {
    json.BeginObject().Name("tables").BeginArray();
    for (const TableInfo& table : import.tables) WriteTable(table, json);
    json.EndArray();
    if (!import.problem.empty()) json.Member("problem", std::string_view(import.problem));
    json.EndObject();
  }
  json.EndArray();
}

void PrintTable(const std::string& before, const TableInfo& table, Output& output) {
  const std::vector<float> row = DefaultRow(table.spec);
  output.Line(absl::StrCat(
      before, table.spec.name, ": ", table.row_count, " rows of dim ", table.spec.dim, " ",
      std::string(DtypeName(table.spec.dtype)), ", ",
      ReadableBytes(static_cast<double>(table.bytes)), ", default ",
      !IsUniform(row) ? "row of its own" : FormatFloat(row.empty() ? 0.0F : row.front()),
      ", incarnation ", table.incarnation,
      table.import_id.empty() ? "" : ", import id " + table.import_id));
}

void PrintWaiting(const std::vector<PendingImport>& waiting, Output& output) {
  if (waiting.empty()) return;
  output.Line(absl::StrCat(waiting.size(), waiting.size() == 1 ? " import" : " imports",
                           " staged, to be taken by a server at its next start or `load`:"));
  for (const PendingImport& import : waiting) {
    for (const TableInfo& table : import.tables) PrintTable("staged ", table, output);
    if (!import.problem.empty())
      output.Line(PrintableText("staged, but can't be read: " + import.problem));
  }
}

std::string Describe(const Damage& damage) {
  std::string text;
  if (!damage.table.empty()) absl::StrAppend(&text, "table ", damage.table, ", ");
  if (!damage.file.empty()) absl::StrAppend(&text, "file ", damage.file, ", ");
  if (damage.key.has_value()) absl::StrAppend(&text, "key ", *damage.key, ", ");
  if (!text.empty()) text.replace(text.size() - 2, 2, ": ");
  return text + damage.what;
}

void WriteReport(const VerifyReport& report, double seconds, JsonWriter& json) {
  json.Member("tables", report.tables).Member("rows", report.rows);
  json.Member("rows_lost", report.rows_lost)
      .Member("bytes", report.bytes)
      .Member("seconds", seconds);
  json.Name("damage").BeginArray();
  for (const Damage& damage : report.damage) {
    json.BeginObject().Member("table", std::string_view(damage.table));
    json.Member("file", std::string_view(damage.file));
    if (damage.key.has_value()) json.Member("key", *damage.key);
    json.Member("what", std::string_view(damage.what)).EndObject();
  }
  json.EndArray().Member("damage_count", report.damage_count);
  json.Name("networks_removed").BeginArray();
  for (const std::string& model : report.networks_removed) json.Value(std::string_view(model));
  json.EndArray();
}

}  // namespace

absl::Status RunCommand(const InspectArguments&, const Config& config, Output& output) {
  // First, so that an import which is being taken is not overlooked in both places.
  const absl::StatusOr<std::vector<PendingImport>> waiting = PendingImports(config);
  HPS_ASSIGN_OR_RETURN(const auto store, Store::Open(config, OpenMode::kReadOnly));
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> tables, store->Tables());
  if (!waiting.ok()) return waiting.status();
  const Networks networks = NetworksOf(*store, tables);
  if (output.is_json()) {
    output.json().Member("format_version", store->format_version());
    output.json().Name("tables").BeginArray();
    for (const TableInfo& table : tables) WriteTable(table, output.json());
    output.json().EndArray().Name("networks").BeginArray();
    for (const auto& [model, network] : networks) WriteNetwork(model, network, output.json());
    output.json().EndArray();
    WriteWaiting(*waiting, output.json());
  } else {
    output.Line(absl::StrCat(config.store.path, ": store of format ", store->format_version(),
                             " with ", tables.size(), " tables"));
    for (const TableInfo& table : tables) PrintTable("", table, output);
    for (const auto& [model, network] : networks) PrintNetwork(model, network, output);
    PrintWaiting(*waiting, output);
  }
  return absl::OkStatus();
}

absl::Status RunCommand(const VerifyArguments& arguments, const Config& config, Output& output) {
  const auto start = std::chrono::steady_clock::now();
  ProgressMeter meter("verify " + config.store.path);
  HPS_ASSIGN_OR_RETURN(const VerifyReport report,
                       VerifyStore(config, arguments.repair, meter.function()));
  meter.Clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (output.is_json()) {
    WriteReport(report, seconds, output.json());
  } else {
    for (const Damage& damage : report.damage) output.Line(PrintableText(Describe(damage)));
    output.Line(absl::StrCat(report.tables, " tables, ", report.rows, " rows, ", report.rows_lost,
                             " lost, ", ReadableBytes(static_cast<double>(report.bytes)),
                             " read in ", Fixed(seconds, 2), " s: ", report.damage_count,
                             " damaged"));
    for (const std::string& model : report.networks_removed)
      output.Line(absl::StrCat("removed the damaged dense network of model '", model, "'"));
  }
  if (report.damage_count == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(config.store.path, ": ", report.damage_count, " damaged places, the first: ",
                   report.damage.empty() ? "not listed" : Describe(report.damage[0])));
}

}  // namespace hps::cli
