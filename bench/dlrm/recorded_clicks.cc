#include "bench/dlrm/recorded_clicks.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::bench {
namespace {

constexpr size_t kLogFields = 40;
constexpr size_t kLogTables = 26;  // the last fields

// Cuts off what is before the first separator, or all; the separator is gone, too.
std::string_view TakePart(std::string_view* text, char separator) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

// False if the field is no 32-bit number in hexadecimal digits.
bool ParseKey(std::string_view field, Key* key) {
  *key = kNoValue;
  if (field.empty()) return true;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
  *key = static_cast<Key>(value);
  return error == std::errc() && end == field.data() + field.size();
}

absl::Status BadLine(size_t number, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("click log: line ", number, ": ", what));
}

// Appends the keys of one sample.
absl::Status ParseLine(std::string_view line, size_t number, std::vector<Key>* keys) {
  const auto field_count = static_cast<size_t>(std::ranges::count(line, '\t')) + 1;
  if (field_count != kLogFields) {
    return BadLine(number, absl::StrCat(field_count, " fields, expected ", kLogFields));
  }
  for (size_t i = 0; i < kLogFields; ++i) {
    const std::string_view field = TakePart(&line, '\t');
    if (i < kLogFields - kLogTables || ParseKey(field, &keys->emplace_back())) continue;
    return BadLine(number, absl::StrCat("field ", i + 1, " is '", std::string(field),
                                        "', expected a 32-bit number in hexadecimal digits"));
  }
  return absl::OkStatus();
}

// The keys of all samples: [sample, table].
absl::StatusOr<std::vector<Key>> ParseKeys(std::string_view text) {
  std::vector<Key> keys;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = TakePart(&text, '\n');
    if (!line.empty()) HPS_RETURN_IF_ERROR(ParseLine(line, number, &keys));
  }
  return keys;
}

// Ranks the keys of a table, which are those of `samples` at table, table + kLogTables, and so on.
void RankKeys(const std::vector<Key>& samples, size_t table, RecordedClicks* clicks) {
  std::unordered_map<Key, uint64_t> counts;
  for (size_t i = table; i < samples.size(); i += kLogTables) ++counts[samples[i]];
  std::vector<std::pair<Key, uint64_t>> ranked(counts.begin(), counts.end());
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::vector<Key>& keys = clicks->keys.emplace_back();
  std::vector<uint64_t>& asked = clicks->counts.emplace_back();
  for (const auto& [key, count] : ranked) {
    keys.push_back(key);
    asked.push_back(count);
    counts[key] = keys.size();  // its rank from here on
  }
  for (size_t i = table; i < samples.size(); i += kLogTables)
    clicks->ranks[i] = static_cast<uint32_t>(counts[samples[i]]);
}

}  // namespace

absl::StatusOr<RecordedClicks> ParseCriteoClicks(const std::string& text) {
  HPS_ASSIGN_OR_RETURN(const std::vector<Key> samples, ParseKeys(text));
  if (samples.empty()) return absl::InvalidArgumentError("click log: it has no line");
  RecordedClicks clicks;
  clicks.ranks.resize(samples.size());
  for (size_t table = 0; table < kLogTables; ++table) RankKeys(samples, table, &clicks);
  return clicks;
}

absl::StatusOr<RecordedClicks> ReadCriteoClicks(const std::string& directory) {
  std::string text;
  for (const char* const name : {"train.tsv", "dev.tsv", "test.tsv"}) {
    const std::string path = absl::StrCat(directory, "/", name);
    std::ifstream file(path, std::ios::binary);
    if (!file) return absl::NotFoundError(absl::StrCat("click log: can't read ", path));
    text.append(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  return ParseCriteoClicks(text);
}

}  // namespace hps::bench
