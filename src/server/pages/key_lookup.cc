#include "server/pages/key_lookup.h"

#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "base/text.h"
#include "types/key_text.h"

namespace hps::server {
namespace {

constexpr int kAnswerVersion = 1;

std::optional<char> HexByte(std::string_view digits) {
  unsigned value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [read, error] = std::from_chars(digits.data(), end, value, 16);
  if (digits.size() != 2 || error != std::errc() || read != end) return std::nullopt;
  return static_cast<char>(value);
}

absl::StatusOr<std::string> Decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const std::optional<char> byte = HexByte(text.substr(i + 1, 2));
    if (!byte.has_value()) {
      return absl::InvalidArgumentError("the query has a '%' without two hexadecimal digits");
    }
    decoded += *byte;
    i += 2;
  }
  return decoded;
}

}  // namespace

absl::StatusOr<KeyQuestion> ParseKeyQuestion(std::string_view query) {
  std::optional<std::string> table;
  std::optional<std::string> key;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t name_end = std::min(pair.size(), pair.find('='));
    const std::string_view name = pair.substr(0, name_end);
    std::optional<std::string>* const wanted = name == "table" ? &table
                                               : name == "key" ? &key
                                                               : nullptr;
    if (wanted == nullptr || wanted->has_value()) {
      return absl::InvalidArgumentError("expected ?table=MODEL/TABLE&key=N, each once");
    }
    HPS_ASSIGN_OR_RETURN(*wanted, Decode(pair.substr(std::min(pair.size(), name_end + 1))));
  }
  if (!table.has_value() || !key.has_value()) {
    return absl::InvalidArgumentError("expected ?table=MODEL/TABLE&key=N");
  }
  HPS_RETURN_IF_ERROR(ValidateTableName(*table));
  const std::optional<Key> number = ParseKey(*key);
  if (number.has_value()) return KeyQuestion{.table = *std::move(table), .key = *number};
  return absl::InvalidArgumentError(absl::StrCat(
      "'key' is to be a decimal number from -2^63 to 2^64 - 1, found '", PrintableText(*key), "'"));
}

absl::StatusOr<std::string> AnswerKeyQuestion(Store& store, const KeyQuestion& question) {
  const std::string model = question.table.substr(0, question.table.find('/'));
  const absl::StatusOr<std::unique_ptr<LookupSession>> made =
      store.NewSession(model, {.output_dtype = Dtype::kFloat32, .keys_max = 1});
  if (!made.ok()) return ForClients(made.status());
  LookupSession* const session = made->get();
  HPS_ASSIGN_OR_RETURN(const TableIndex table, session->FindTable(question.table));
  std::vector<float> row(session->output_row_bytes(table) / sizeof(float));
  std::array<KeyStatus, 1> status{};
  const std::array<Key, 1> keys = {question.key};
  const HostTableQuery query = {.table = table,
                                .keys = keys,
                                .rows = std::as_writable_bytes(std::span(row)),
                                .status = status};
  const TimePoint start = RealClock().Now();
  HPS_RETURN_IF_ERROR(session->Lookup({.queries = {&query, 1}}, nullptr));
  const std::chrono::duration<double> seconds = RealClock().Now() - start;

  std::string text;
  JsonWriter json(&text, NonFinite::kText);
  json.BeginObject().Member("version", kAnswerVersion);
  json.Member("table", std::string_view(question.table));
  json.Member("key", std::string_view(absl::StrCat(question.key)));
  json.Member("status", KeyStatusName(status[0])).Member("dim", row.size());
  json.Member("seconds", seconds.count()).Name("row").BeginArray();
  for (const float element : row) json.Value(element);
  json.EndArray().EndObject();
  return text;
}

}  // namespace hps::server
