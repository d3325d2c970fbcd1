#include "l3_rocksdb/family.h"

#include <cinttypes>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "l3_rocksdb/rocks_options.h"

namespace hps {
namespace {

std::string WithDigits(const char* prefix, Incarnation incarnation) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%013" PRIx64, incarnation);
  return std::string(prefix) + digits;
}

}  // namespace

std::string FamilyName(const FamilyId& id) {
  std::string name = WithDigits(kRowFamilyPrefix, id.incarnation);
  if (id.first_file != 0) absl::StrAppend(&name, "-", id.first_file);
  return name;
}

std::string NetworkFamilyName(Incarnation id) { return WithDigits(kNetworkFamilyPrefix, id); }

std::optional<Incarnation> IncarnationOf(const std::string& family) {
  FamilyId id;
  const std::string digits =
      family.starts_with(kRowFamilyPrefix) ? family.substr(sizeof(kRowFamilyPrefix) - 1) : "";
  if (std::sscanf(digits.c_str(), "%" SCNx64 "-%" SCNu64, &id.incarnation, &id.first_file) < 1)
    return std::nullopt;
  if (FamilyName(id) != family) return std::nullopt;
  return id.incarnation;
}

}  // namespace hps
