#include "base/log_limiter.h"

#include <algorithm>

namespace hps {

std::optional<uint64_t> LogLimiter::Admit(const char* file, int line, TimePoint now) {
  const auto [found, is_new] = sites_.try_emplace({file, line});
  Site& site = found->second;
  if (is_new) site.next_line = now + kLineEvery;
  if (now >= site.next_line) {
    const auto more = (now - site.next_line) / kLineEvery + 1;
    site.lines_left = static_cast<uint32_t>(
        std::min<int64_t>(kBurstLines, static_cast<int64_t>(site.lines_left) + more));
    site.next_line += more * kLineEvery;
  }
  if (site.lines_left == 0) {
    ++site.left_out;
    return std::nullopt;
  }
  --site.lines_left;
  return std::exchange(site.left_out, 0);
}

}  // namespace hps
