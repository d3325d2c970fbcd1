#include "model/budget.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "hps/units.h"

namespace hps {
namespace {

absl::Status DoesNotFit(const std::string& table, uint64_t bytes, uint64_t bytes_left) {
  return absl::ResourceExhaustedError(absl::StrCat("level 2 has ", FormatByteSize(bytes_left),
                                                   " left, and table '", table, "' asks for ",
                                                   FormatByteSize(bytes), ": raise l2.bytes_max"));
}

std::optional<uint64_t> OwnBudget(const BudgetRequest& request) {
  if (request.fixed_bytes.has_value()) return request.fixed_bytes;
  if (!request.share.has_value()) return std::nullopt;
  // Exact at 1.0 for every need; rounded up, so that a share is never short of a row's part.
  const long double bytes = static_cast<long double>(request.needed_bytes) * *request.share;
  if (bytes <= 0) return 0;  // the table is not to be in the level
  return std::max(request.least_bytes, static_cast<uint64_t>(std::ceil(bytes)));
}

}  // namespace

absl::StatusOr<std::vector<uint64_t>> DivideBudget(uint64_t bytes_left,
                                                   std::span<const BudgetRequest> requests) {
  std::vector<uint64_t> budgets(requests.size(), 0);
  std::vector<size_t> sharing;  // those without a budget of their own
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::optional<uint64_t> own = OwnBudget(requests[i]);
    const uint64_t bytes = own.value_or(requests[i].least_bytes);
    if (bytes > bytes_left) return DoesNotFit(requests[i].table, bytes, bytes_left);
    budgets[i] = bytes;
    bytes_left -= bytes;
    if (!own.has_value()) sharing.push_back(i);
  }
  const auto wish = [&](size_t i) { return requests[i].needed_bytes - requests[i].least_bytes; };
  Uint128 wishes = 0;
  for (const size_t i : sharing) wishes += wish(i);
  for (const size_t i : sharing) {
    budgets[i] += wishes <= bytes_left
                      ? wish(i)
                      : static_cast<uint64_t>(Uint128{bytes_left} * wish(i) / wishes);
  }
  return budgets;
}

}  // namespace hps
