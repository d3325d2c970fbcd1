#include "l2_redis/redis_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace hps {

RedisError RedisErrorOf(std::string_view text) {
  const std::string_view code = text.substr(0, text.find(' '));
  if (code == "MOVED") return RedisError::kMoved;
  if (code == "ASK") return RedisError::kAsk;
  if (code == "TRYAGAIN") return RedisError::kTryAgain;
  if (code == "NOSCRIPT") return RedisError::kNoScript;
  if (code == "OOM" || code == "MISCONF") return RedisError::kOutOfMemory;
  return RedisError::kNode;
}

std::optional<RedisAddress> RedirectOf(std::string_view text, const RedisAddress& asked) {
  const RedisError error = RedisErrorOf(text);
  if (error != RedisError::kMoved && error != RedisError::kAsk) return std::nullopt;
  const size_t blank = text.rfind(' ');
  const size_t colon = text.rfind(':');
  if (blank == text.npos || colon == text.npos || colon < blank) return std::nullopt;
  const std::string_view host = text.substr(blank + 1, colon - blank - 1);
  // An IPv6 number comes without brackets, which the form of an address has.
  const std::string address = absl::StrCat("[", host.empty() ? asked.host : std::string(host), "]",
                                           std::string(text.substr(colon)));
  const auto parsed = ParseRedisAddress(address);
  return parsed.ok() ? std::optional(*parsed) : std::nullopt;
}

absl::Status StatusOfRedisError(std::string_view text) {
  const std::string why = absl::StrCat("the server answers: ", PrintableText(text.substr(0, 200)));
  const std::string_view code = text.substr(0, text.find(' '));
  for (const std::string_view denied : {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"})
    if (code == denied) return absl::PermissionDeniedError(why);
  for (const std::string_view later :
       {"LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK"})
    if (code == later) return absl::UnavailableError(why);
  return absl::FailedPreconditionError(why);
}

}  // namespace hps
