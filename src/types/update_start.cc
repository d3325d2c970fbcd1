#include "types/update_start.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace hps {
namespace {

constexpr size_t kQuotedBytesMax = 40;

}  // namespace

absl::StatusOr<std::optional<UpdateStart>> ParseUpdateStart(std::string_view text) {
  if (text == "import") return std::nullopt;
  if (text == "earliest") return UpdateStart{.kind = UpdateStart::Kind::kBeginning};
  if (text == "latest") return UpdateStart{.kind = UpdateStart::Kind::kEnd};
  absl::Time time;
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, absl::string_view(text.data(), text.size()), &time,
                      &error))
    return UpdateStart{.kind = UpdateStart::Kind::kTime, .time_ms = absl::ToUnixMillis(time)};
  const std::string quoted(text.substr(0, kQuotedBytesMax));
  return absl::InvalidArgumentError(
      absl::StrCat("'", quoted, text.size() > kQuotedBytesMax ? "..." : "",
                   "' is not import, earliest, latest or a time as in 2026-11-24T18:00:00Z"));
}

std::string FormatUpdateStart(const UpdateStart& start) {
  switch (start.kind) {
    case UpdateStart::Kind::kBeginning:
      return "earliest";
    case UpdateStart::Kind::kEnd:
      return "latest";
    case UpdateStart::Kind::kTime:
      break;
  }
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::FromUnixMillis(start.time_ms),
                          absl::UTCTimeZone());
}

}  // namespace hps
