#include "l2_redis/hugectr_names.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "tier/foreign_store.h"

namespace hps {
namespace {

constexpr std::string_view kBegin = "hps_et{";
constexpr std::string_view kEnd = "}v";
constexpr std::string_view kPartition = "/p";

}  // namespace

std::string HugectrHashName(const std::string& table, uint32_t partition) {
  std::string tag = "hps_et." + table;
  std::replace(tag.begin(), tag.end(), '/', '.');
  return absl::StrCat(std::string(kBegin), tag, std::string(kPartition), partition,
                      std::string(kEnd));
}

// Source: Pelle Evensen's mixer rrxmrrxmsx_0.
uint32_t HugectrPartition(Key key, uint32_t count) {
  auto mixed = static_cast<uint64_t>(key);
  mixed ^= std::rotr(mixed, 25) ^ std::rotr(mixed, 50);
  mixed *= 0xa24baed4963ee407;
  mixed ^= std::rotr(mixed, 24) ^ std::rotr(mixed, 49);
  mixed *= 0x9fb21c651e98df25;
  return static_cast<uint32_t>((mixed ^ (mixed >> 28)) % count);
}

std::optional<HugectrHash> ParseHugectrHashName(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  const size_t at = name.rfind(kPartition);
  if (at == name.npos) return std::nullopt;
  const std::string_view digits = name.substr(at + kPartition.size());
  const char* const end = digits.data() + digits.size();
  HugectrHash hash;
  const auto [parsed_to, error] = std::from_chars(digits.data(), end, hash.partition);
  const bool is_number = error == std::errc() && parsed_to == end;
  if (!is_number || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  std::optional<std::string> table = TableOfHugectrTag(name.substr(0, at));
  if (!table.has_value()) return std::nullopt;
  hash.table = *std::move(table);
  return hash;
}

}  // namespace hps
