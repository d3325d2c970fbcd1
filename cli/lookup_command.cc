// hps lookup: rows of keys, as float32.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "hps/store.h"
#include "import/formats/npy_files.h"

namespace hps::cli {
namespace {

// Keys of one call: bounds the memory of a look-up that writes to a file.
constexpr size_t kChunkKeys = 16 << 10;
// A command waits for a slow disk rather than print default rows.
constexpr auto kTimeout = std::chrono::minutes(10);

struct Answer {
  uint32_t dim = 0;
  std::vector<KeyStatus> statuses{};  // [keys]
  std::vector<float> rows{};          // [keys, dim]; empty when they went to a file
};

absl::StatusOr<Answer> LookUp(Store& store, const LookupArguments& arguments,
                              std::span<const Key> keys) {
  const std::string model = arguments.table.substr(0, arguments.table.find('/'));
  const auto session =
      store.NewSession(model, {.device = arguments.device,
                               .output_dtype = Dtype::kFloat32,
                               .keys_max = std::clamp<size_t>(keys.size(), 1, kChunkKeys)});
  if (!session.ok()) return session.status();
  const absl::StatusOr<TableIndex> table = (*session)->FindTable(arguments.table);
  if (!table.ok()) return table.status();
  Answer answer = {.dim = (*session)->tables()[table->value].dim};
  answer.statuses.resize(keys.size());
  std::unique_ptr<NpyRowWriter> writer;
  if (!arguments.out.empty()) {
    auto created = NpyRowWriter::Create(arguments.out, keys.size(), answer.dim);
    if (!created.ok()) return created.status();
    writer = *std::move(created);
  }
  answer.rows.resize((writer != nullptr ? std::min(keys.size(), kChunkKeys) : keys.size()) *
                     answer.dim);
  for (size_t begin = 0; begin < keys.size(); begin += kChunkKeys) {
    const size_t count = std::min(keys.size() - begin, kChunkKeys);
    const std::span<float> rows(answer.rows.data() + (writer != nullptr ? 0 : begin) * answer.dim,
                                count * answer.dim);
    const HostTableQuery query = {.table = *table,
                                  .keys = keys.subspan(begin, count),
                                  .rows = std::as_writable_bytes(rows),
                                  .status = std::span(answer.statuses).subspan(begin, count)};
    const absl::Status status = (*session)->Lookup(
        HostLookupRequest{.queries = {&query, 1}, .timeout = kTimeout, .hit_rate_threshold = 1.0},
        nullptr);
    if (!status.ok()) return status;
    if (writer == nullptr) continue;
    if (absl::Status written = writer->Append(rows); !written.ok()) return written;
  }
  if (writer == nullptr) return answer;
  answer.rows = {};
  if (absl::Status status = writer->Commit(); !status.ok()) return status;
  return answer;
}

void WriteJson(const LookupArguments& arguments, std::span<const Key> keys, const Answer& answer,
               JsonWriter& json) {
  json.Member("table", std::string_view(arguments.table)).Member("dim", answer.dim);
  json.Name("keys").BeginArray();
  for (const Key key : keys) json.Value(key);
  json.EndArray();
  if (arguments.out.empty()) {
    json.Name("rows").BeginArray();
    for (size_t i = 0; i < keys.size(); ++i) {
      json.BeginArray();
      for (size_t j = 0; j < answer.dim; ++j) json.Value(answer.rows[i * answer.dim + j]);
      json.EndArray();
    }
    json.EndArray();
  } else {
    json.Member("out", std::string_view(arguments.out));
  }
  json.Name("status").BeginArray();
  for (const KeyStatus status : answer.statuses) json.Value(KeyStatusName(status));
  json.EndArray();
}

void PrintText(const LookupArguments& arguments, std::span<const Key> keys, const Answer& answer,
               Output& output) {
  if (arguments.out.empty()) {
    for (size_t i = 0; i < keys.size(); ++i) {
      std::string line = absl::StrCat(keys[i], " ", std::string(KeyStatusName(answer.statuses[i])));
      for (size_t j = 0; j < answer.dim; ++j)
        absl::StrAppend(&line, " ", FormatFloat(answer.rows[i * answer.dim + j]));
      output.Line(line);
    }
    return;
  }
  std::array<uint64_t, kKeyStatusCount> counts{};
  for (const KeyStatus status : answer.statuses) ++counts[static_cast<size_t>(status)];
  std::string line = absl::StrCat(arguments.out, ": ", keys.size(), " rows of dim ", answer.dim);
  for (size_t i = 0; i < kKeyStatusCount; ++i) {
    if (counts[i] != 0)
      absl::StrAppend(&line, ", ", counts[i], " ", std::string(kKeyStatusNames[i]));
  }
  output.Line(line);
}

}  // namespace

absl::Status RunLookup(const LookupArguments& arguments, const Config& config, Output& output) {
  std::vector<Key> keys;
  if (arguments.keys.has_value()) {
    keys = *arguments.keys;
  } else {
    absl::StatusOr<std::vector<Key>> read = ReadNpyKeys(arguments.keys_file);
    if (!read.ok()) return read.status();
    keys = *std::move(read);
  }
  Config for_device = config;
  if (arguments.device >= 0) for_device.l1.devices = {arguments.device};
  const auto store = Store::Open(for_device, OpenMode::kReadOnly);
  if (!store.ok()) return store.status();
  const absl::StatusOr<Answer> answer = LookUp(**store, arguments, keys);
  if (!answer.ok()) return answer.status();
  if (output.is_json()) {
    WriteJson(arguments, keys, *answer, output.json());
  } else {
    PrintText(arguments, keys, *answer, output);
  }
  return absl::OkStatus();
}

}  // namespace hps::cli
