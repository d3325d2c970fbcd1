// hps lookup: rows of keys, as float32.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "hps/store.h"
#include "import/formats/npy_files.h"

namespace hps::cli {
namespace {

// Keys of one call: bounds the memory that rows take.
constexpr size_t kChunkKeys = 16 << 10;
// A command waits for a slow disk rather than print default rows.
constexpr auto kTimeout = std::chrono::minutes(10);

// Takes the next keys, in their order, with their statuses and rows, packed. Errors: of what the
// rows are written to.
using AppendRows = absl::FunctionRef<absl::Status(
    std::span<const Key> keys, std::span<const KeyStatus> statuses, std::span<const float> rows)>;

// A session, and the one table of it that is asked.
struct OpenTable {
  std::unique_ptr<LookupSession> session;
  TableIndex table{};
  uint32_t dim = 0;
};

absl::StatusOr<OpenTable> Open(Store& store, const LookupArguments& arguments, size_t key_count) {
  const std::string model = arguments.table.substr(0, arguments.table.find('/'));
  HPS_ASSIGN_OR_RETURN(
      auto session,
      store.NewSession(model, {.device = arguments.device,
                               .output_dtype = Dtype::kFloat32,
                               .keys_max = std::clamp<size_t>(key_count, 1, kChunkKeys)}));
  HPS_ASSIGN_OR_RETURN(const TableIndex table, session->FindTable(arguments.table));
  const uint32_t dim = session->tables()[table.value].dim;
  return OpenTable{.session = std::move(session), .table = table, .dim = dim};
}

// Holds the rows of kChunkKeys keys at a time; `statuses`, of all keys, has a byte for each.
absl::Status LookUp(const OpenTable& open, std::span<const Key> keys, std::span<KeyStatus> statuses,
                    AppendRows append) {
  std::vector<float> buffer(std::min(keys.size(), kChunkKeys) * open.dim);
  for (size_t begin = 0; begin < keys.size(); begin += kChunkKeys) {
    const std::span<const Key> chunk =
        keys.subspan(begin, std::min(keys.size() - begin, kChunkKeys));
    const std::span<KeyStatus> chunk_statuses = statuses.subspan(begin, chunk.size());
    const std::span<float> rows(buffer.data(), chunk.size() * open.dim);
    const HostTableQuery query = {.table = open.table,
                                  .keys = chunk,
                                  .rows = std::as_writable_bytes(rows),
                                  .status = chunk_statuses};
    HPS_RETURN_IF_ERROR(open.session->Lookup(
        HostLookupRequest{.queries = {&query, 1}, .timeout = kTimeout, .hit_rate_threshold = 1.0},
        nullptr));
    HPS_RETURN_IF_ERROR(append(chunk, chunk_statuses, rows));
  }
  return absl::OkStatus();
}

void WriteStatuses(std::span<const KeyStatus> statuses, JsonWriter& json) {
  json.Name("status").BeginArray();
  for (const KeyStatus status : statuses) json.Value(KeyStatusName(status));
  json.EndArray();
}

// The object is complete, but for `error`, also when a lookup fails in the middle.
absl::Status AnswerInJson(const LookupArguments& arguments, const OpenTable& open,
                          std::span<const Key> keys, JsonWriter& json) {
  json.Member("table", std::string_view(arguments.table)).Member("dim", open.dim);
  json.Name("keys").BeginArray();
  for (const Key key : keys) json.Value(key);
  json.EndArray();
  json.Name("rows").BeginArray();
  std::vector<KeyStatus> statuses(keys.size());
  const auto append = [&](auto chunk, auto, std::span<const float> rows) {
    for (size_t i = 0; i < chunk.size(); ++i) {
      json.BeginArray();
      for (const float element : rows.subspan(i * open.dim, open.dim)) json.Value(element);
      json.EndArray();
    }
    return absl::OkStatus();
  };
  const absl::Status answered = LookUp(open, keys, statuses, append);
  json.EndArray();
  if (answered.ok()) WriteStatuses(statuses, json);
  return answered;
}

absl::Status AnswerInText(const OpenTable& open, std::span<const Key> keys, Output& output) {
  std::vector<KeyStatus> statuses(keys.size());
  return LookUp(open, keys, statuses, [&](auto chunk, auto chunk_statuses, auto rows) {
    for (size_t i = 0; i < chunk.size(); ++i) {
      std::string line = absl::StrCat(chunk[i], " ", std::string(KeyStatusName(chunk_statuses[i])));
      for (const float element : rows.subspan(i * open.dim, open.dim))
        absl::StrAppend(&line, " ", FormatFloat(element));
      output.Line(line);
    }
    return absl::OkStatus();
  });
}

void ReportFile(const LookupArguments& arguments, const OpenTable& open, std::span<const Key> keys,
                std::span<const KeyStatus> statuses, Output& output) {
  if (output.is_json()) {
    JsonWriter& json = output.json();
    json.Member("table", std::string_view(arguments.table)).Member("dim", open.dim);
    json.Name("keys").BeginArray();
    for (const Key key : keys) json.Value(key);
    json.EndArray().Member("out", std::string_view(arguments.out));
    WriteStatuses(statuses, json);
    return;
  }
  std::array<uint64_t, kKeyStatusCount> counts{};
  for (const KeyStatus status : statuses) ++counts[static_cast<size_t>(status)];
  std::string line = absl::StrCat(arguments.out, ": ", keys.size(), " rows of dim ", open.dim);
  for (size_t i = 0; i < kKeyStatusCount; ++i) {
    if (counts[i] != 0)
      absl::StrAppend(&line, ", ", counts[i], " ", std::string(kKeyStatusNames[i]));
  }
  output.Line(line);
}

absl::Status AnswerInFile(const LookupArguments& arguments, const OpenTable& open,
                          std::span<const Key> keys, Output& output) {
  HPS_ASSIGN_OR_RETURN(NpyRowWriter writer,
                       NpyRowWriter::Create(arguments.out, keys.size(), open.dim));
  std::vector<KeyStatus> statuses(keys.size());
  HPS_RETURN_IF_ERROR(
      LookUp(open, keys, statuses, [&](auto, auto, auto rows) { return writer.Append(rows); }));
  HPS_RETURN_IF_ERROR(writer.Commit());
  ReportFile(arguments, open, keys, statuses, output);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCommand(const LookupArguments& arguments, const Config& config, Output& output) {
  std::vector<Key> keys;
  if (arguments.keys.has_value()) {
    keys = *arguments.keys;
  } else {
    HPS_ASSIGN_OR_RETURN(keys, ReadNpyKeys(arguments.keys_file));
  }
  Config for_device = config;
  if (arguments.device >= 0) for_device.l1.devices = {arguments.device};
  HPS_ASSIGN_OR_RETURN(const auto store, Store::Open(for_device, OpenMode::kReadOnly));
  HPS_ASSIGN_OR_RETURN(const OpenTable open, Open(*store, arguments, keys.size()));
  if (!arguments.out.empty()) return AnswerInFile(arguments, open, keys, output);
  if (output.is_json()) return AnswerInJson(arguments, open, keys, output.json());
  return AnswerInText(open, keys, output);
}

}  // namespace hps::cli
