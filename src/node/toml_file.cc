#include "node/toml_file.h"

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"

namespace hps {
namespace {

// The end of the line that `at` is in.
size_t LineEnd(std::string_view text, size_t at) {
  return std::min(text.find('\n', at), text.size());
}

// The position after the string that begins at `at`. An unclosed one ends with its line, or, if it
// may have several lines, with the text.
size_t BehindString(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool has_escapes = quote == '"';
  const auto is_quote = [&](size_t i) { return i < text.size() && text[i] == quote; };
  const bool many_lines = is_quote(at + 1) && is_quote(at + 2);
  const size_t end = many_lines ? text.size() : LineEnd(text, at);
  for (size_t i = at + (many_lines ? 3 : 1); i < end; ++i) {
    if (has_escapes && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote && !many_lines) {
      return i + 1;
    } else if (text[i] == quote && is_quote(i + 1) && is_quote(i + 2)) {
      // Up to two quotes right before the closing three are content.
      for (i += 3; is_quote(i);) ++i;
      return i;
    }
  }
  return end;
}

// Characters of a dotted key outside its strings. The parser judges bytes beyond ASCII.
bool IsInKey(char character) {
  const auto byte = static_cast<unsigned char>(character);
  const bool is_letter = (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
  return is_letter || (byte >= '0' && byte <= '9') || byte >= 0x80 || byte == '_' || byte == '-' ||
         byte == ' ' || byte == '\t';
}

}  // namespace

std::optional<toml::source_position> FindDeepKey(std::string_view text, uint32_t parts_max) {
  uint32_t parts = 1;
  for (size_t at = 0; at < text.size();) {
    const char character = text[at];
    if (character == '"' || character == '\'') {
      at = BehindString(text, at);
      continue;
    }
    if (character == '#') {
      at = LineEnd(text, at);
      continue;
    }
    if (character == '.') {
      if (++parts > parts_max) {
        const std::string_view before = text.substr(0, at);
        const auto breaks = static_cast<uint32_t>(std::count(before.begin(), before.end(), '\n'));
        return toml::source_position{
            .line = breaks + 1, .column = static_cast<uint32_t>(at - (before.rfind('\n') + 1)) + 1};
      }
    } else if (!IsInKey(character)) {
      parts = 1;
    }
    ++at;
  }
  return std::nullopt;
}

absl::Status WithPlace(const std::string& path, const toml::source_position& place,
                       const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ":", place.line, ":", place.column, ": ",
                                                  status.message()));
}

absl::StatusOr<std::string> ReadTomlText(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const File file, File::OpenForReading(path));
  if (file.bytes_at_open() > kConfigBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a configuration file has at most ", kConfigBytesMax, " bytes"));
  }
  return file.ReadAll();
}

absl::StatusOr<toml::table> ParseToml(const std::string& path, const std::string& text) {
  if (const auto place = FindDeepKey(text, kTomlKeyPartsMax)) {
    return WithPlace(
        path, *place,
        absl::InvalidArgumentError(absl::StrCat("a key of more than ", kTomlKeyPartsMax,
                                                " parts; no setting has so many")));
  }
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    // It quotes the text, also a line break.
    return WithPlace(path, error.source().begin,
                     absl::InvalidArgumentError(PrintableText(error.description())));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace hps
