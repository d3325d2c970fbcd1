#include "tier/foreign_store.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "hps/table_spec.h"

namespace hps {
namespace {

constexpr std::string_view kTagPrefix = "hps_et.";

}  // namespace

bool IsRedisUrl(std::string_view text) {
  return text.starts_with("redis://") || text.starts_with("rediss://");
}

absl::Status CheckRedisUrlHasNoPassword(std::string_view url) {
  if (url.find_first_of("@?") == url.npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a URL of Redis must not have a user, a password or parameters in it: set [l2.redis] user "
      "and password_file in the configuration file (--config)");
}

std::optional<std::string> TableOfHugectrTag(std::string_view tag) {
  if (!tag.starts_with(kTagPrefix)) return std::nullopt;
  std::string table(tag.substr(kTagPrefix.size()));
  const size_t dot = table.find('.');
  if (dot == std::string::npos) return std::nullopt;
  table[dot] = '/';
  return ValidateTableName(table).ok() ? std::optional(table) : std::nullopt;
}

absl::Status CheckHugectrSizes(const std::string& what, size_t key_bytes, size_t row_bytes) {
  if (key_bytes != sizeof(uint32_t) && key_bytes != sizeof(Key)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected keys of 8 or 4 bytes, found ", key_bytes));
  }
  if (row_bytes > 0 && row_bytes % sizeof(float) == 0 && row_bytes / sizeof(float) <= kDimMax)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected rows of 1 to ", kDimMax,
                                                 " float32, found ", row_bytes, " bytes"));
}

Key HugectrKey(std::string_view bytes) {
  return bytes.size() == sizeof(Key) ? LoadLittleEndian<Key>(bytes.data())
                                     : Key{LoadLittleEndian<uint32_t>(bytes.data())};
}

}  // namespace hps
