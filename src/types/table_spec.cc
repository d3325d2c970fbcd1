#include "hps/table_spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

// Shortened and with unprintable characters replaced: a name in an error may be hostile.
std::string Printable(std::string_view name) {
  std::string text(name.substr(0, kNameBytesMax));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name.size() > kNameBytesMax ? text + "..." : text;
}

absl::Status ValidateNamePart(std::string_view part, std::string_view whole, const char* which) {
  const auto error = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("table name '", Printable(whole), "': the ", which, " name ", why));
  };
  if (part.empty()) return error("is empty");
  if (part.size() > kNameBytesMax)
    return error(absl::StrCat("has ", part.size(), " characters, at most ", kNameBytesMax));
  for (char c : part) {
    if (!IsNameCharacter(c))
      return error(absl::StrCat("holds '", Printable({&c, 1}), "'; allowed are a-z A-Z 0-9 _ -"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTableName(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("table name '", Printable(name), "' is not of the form MODEL/TABLE"));
  }
  HPS_RETURN_IF_ERROR(ValidateNamePart(name.substr(0, slash), name, "model"));
  return ValidateNamePart(name.substr(slash + 1), name, "table");
}

absl::Status ValidateImportId(std::string_view id) {
  const auto is_allowed = [](char c) { return IsNameCharacter(c) || c == '.'; };
  if (!id.empty() && id.size() <= kImportIdBytesMax &&
      std::all_of(id.begin(), id.end(), is_allowed))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("import id '", Printable(id), "': expected 1 to ",
                                                 kImportIdBytesMax,
                                                 " of the characters a-z A-Z 0-9 _ - ."));
}

absl::Status ValidateTableSpec(const TableSpec& spec) {
  HPS_RETURN_IF_ERROR(ValidateTableName(spec.name));
  if (DtypeName(spec.dtype) == "unknown") {
    return absl::InvalidArgumentError(
        absl::StrCat("table '", spec.name, "': unknown dtype ", static_cast<int>(spec.dtype)));
  }
  if (spec.dim == 0)
    return absl::InvalidArgumentError(absl::StrCat("table '", spec.name, "': dim is 0"));
  if (spec.row_bytes() > kRowBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("table '", spec.name, "': a row of dim ",
                                                   spec.dim, " has ", spec.row_bytes(),
                                                   " bytes, at most ", kRowBytesMax));
  }
  if (!spec.default_row.empty() && spec.default_row.size() != spec.row_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("table '", spec.name, "': the default row has ",
                                                   spec.default_row.size(), " bytes, expected ",
                                                   spec.row_bytes()));
  }
  return absl::OkStatus();
}

}  // namespace hps
