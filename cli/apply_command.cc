// hps apply: changes of rows from table files, to a store or over a server.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/macros.h"
#include "cli/client/server_client.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "hps/store.h"
#include "import/row_source.h"

namespace hps::cli {
namespace {

// Of the keys and rows of one change. The rest of kUpdateBytesMax is for the head of the request.
constexpr size_t kChangeBytesMax = kUpdateBytesMax - (size_t{64} << 10);

using ApplyFunction = std::function<absl::Status(const TableUpdate&)>;

std::string_view DatatypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "FP32";
    case Dtype::kFloat16:
      return "FP16";
    case Dtype::kBfloat16:
      return "BF16";
  }
  return "";
}

void WriteInput(std::string_view name, std::string_view datatype,
                const std::vector<uint64_t>& shape, size_t bytes, JsonWriter& json) {
  json.BeginObject();
  json.Member("name", name).Member("datatype", datatype);
  json.Name("shape").BeginArray();
  for (const uint64_t dim : shape) json.Value(dim);
  json.EndArray().Name("parameters").BeginObject();
  json.Member("binary_data_size", uint64_t{bytes});
  json.EndObject().EndObject();
}

// The JSON part of a request with binary tensors.
std::string HeadOf(const TableUpdate& update) {
  std::string head;
  JsonWriter json(&head);
  json.BeginObject().Name("inputs").BeginArray();
  WriteInput("keys", "INT64", {update.keys.size()}, update.keys.size_bytes(), json);
  if (!update.is_delete) {
    WriteInput("rows", DatatypeOf(update.dtype), {update.keys.size(), update.dim},
               update.rows.size(), json);
  }
  json.EndArray();
  if (update.is_delete) {
    json.Name("parameters").BeginObject();
    json.Member("delete", true);
    json.EndObject();
  }
  json.EndObject();
  return head;
}

absl::Status SendChange(const ServerClient& client, const TableUpdate& update,
                        std::chrono::nanoseconds timeout) {
  const std::string head = HeadOf(update);
  std::string body = head;
  body.reserve(head.size() + update.keys.size_bytes() + update.rows.size());
  body += AsText(AsBytes(update.keys));
  body += AsText(update.rows);
  const ServerClient::Post post = {
      .path = absl::StrCat("/v2/hps/tables/", update.table, "/rows"),
      .fields = absl::StrCat("Inference-Header-Content-Length: ", head.size(), "\r\n"),
      .body = body};
  return client.Send(post, timeout).status();
}

absl::Status ApplyAll(RowSource& source, bool is_delete, const ApplyFunction& apply,
                      const ProgressFunction& progress) {
  const TableSpec& spec = source.spec();
  const size_t row_bytes = is_delete ? 0 : spec.row_bytes();
  const size_t piece = std::max<size_t>(kChangeBytesMax / (sizeof(Key) + row_bytes), 1);
  std::vector<Key> keys;
  std::vector<std::byte> rows;
  for (uint64_t done = 0; done < source.row_count(); done += keys.size()) {
    progress({.step = "applying", .done = done, .total = source.row_count()});
    const size_t count = std::min<uint64_t>(piece, source.row_count() - done);
    absl::Status status = source.Read(done, count, &keys, &rows);
    if (status.ok()) {
      status = apply({.table = spec.name,
                      .keys = keys,
                      .rows = rows,
                      .dim = spec.dim,
                      .dtype = spec.dtype,
                      .is_delete = is_delete});
    }
    if (!status.ok() && done > 0) {
      return absl::Status(status.code(), absl::StrCat(status.message(), " (the first ", done,
                                                      " rows are applied)"));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ApplyToStore(const ApplyArguments& arguments, const Config& config, RowSource& source,
                          const ProgressFunction& progress) {
  const auto store = Store::Open(config, OpenMode::kMaintain);
  if (absl::IsUnavailable(store.status()) && ServerHasStore(config).value_or(false)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a server has the store '", config.store.path,
                     "': give --server URL in the place of --store, so that it makes the change"));
  }
  if (!store.ok()) return store.status();
  const auto apply = [&](const TableUpdate& update) {
    return (*store)->Apply(update, arguments.timeout);
  };
  return ApplyAll(source, arguments.is_delete, apply, progress);
}

absl::Status ApplyOverServer(const ApplyArguments& arguments, RowSource& source,
                             const ProgressFunction& progress) {
  HPS_ASSIGN_OR_RETURN(const ServerClient client, ServerClient::Open(arguments.server));
  const auto apply = [&](const TableUpdate& update) {
    return SendChange(client, update, arguments.timeout);
  };
  return ApplyAll(source, arguments.is_delete, apply, progress);
}

}  // namespace

absl::Status RunCommand(const ApplyArguments& arguments, const std::optional<Config>& config,
                        Output& output) {
  const auto start = std::chrono::steady_clock::now();
  const std::string& table = arguments.request.name;
  ProgressMeter meter("apply " + table);
  HPS_ASSIGN_OR_RETURN(RowSource source, RowSource::Open(arguments.request, arguments.is_delete));
  const absl::Status applied = config.has_value()
                                   ? ApplyToStore(arguments, *config, source, meter.function())
                                   : ApplyOverServer(arguments, source, meter.function());
  meter.Clear();
  if (!applied.ok()) return applied;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (output.is_json()) {
    output.json().Member("table", std::string_view(table)).Member("rows", source.row_count());
    output.json().Member("seconds", seconds);
  } else {
    output.Line(absl::StrCat(table, ": ", source.row_count(),
                             arguments.is_delete ? " keys deleted" : " rows changed", " in ",
                             Fixed(seconds, 2), " s"));
  }
  return absl::OkStatus();
}

}  // namespace hps::cli
