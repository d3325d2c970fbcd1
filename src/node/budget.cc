#include "node/budget.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/logging.h"
#include "types/names.h"
#include "types/units.h"

namespace hps {
namespace {

std::optional<uint64_t> OwnBudget(const BudgetRequest& request) {
  if (request.fixed_bytes.has_value()) return request.fixed_bytes;
  if (!request.share.has_value()) return std::nullopt;
  // Exact at 1.0 for every need; rounded up, so that a share is never a fraction of a row short.
  const long double bytes = static_cast<long double>(request.needed_bytes) * *request.share;
  if (bytes <= 0) return 0;  // kept out of the level
  return std::max(request.least_bytes, static_cast<uint64_t>(std::ceil(bytes)));
}

// For the end of a sentence: how a table of the model gets more of a level. Empty text if all of
// the level was there to be divided.
std::string WhatGivesRoom(const std::string& model, std::set<std::string> holders) {
  if (holders.empty()) return {};
  holders.erase(model);
  std::string others = absl::StrJoin(holders, ", ");
  if (!others.empty()) others = " and others that hold the level (" + others + ")";
  return absl::StrCat("; a restart divides the level among all models. Without a restart: unload ",
                      "model ", model, others, ", then load ", model, " first");
}

}  // namespace

std::vector<uint64_t> DivideBudget(uint64_t bytes_max, std::span<const BudgetRequest> requests) {
  std::vector<uint64_t> parts(requests.size(), 0);
  uint64_t bytes_left = bytes_max;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::optional<uint64_t> own = OwnBudget(requests[i]);
    if (!own.has_value()) continue;
    const uint64_t bytes = std::min(*own, bytes_left);
    if (bytes < requests[i].least_bytes) continue;
    parts[i] = bytes;
    bytes_left -= bytes;
  }
  std::vector<size_t> sharing;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (OwnBudget(requests[i]).has_value() || requests[i].least_bytes > bytes_left) continue;
    parts[i] = requests[i].least_bytes;
    bytes_left -= parts[i];
    sharing.push_back(i);
  }
  // The smallest wishes first: what they leave of an equal part goes to those after them.
  const auto wish = [&](size_t i) { return requests[i].needed_bytes - requests[i].least_bytes; };
  std::stable_sort(sharing.begin(), sharing.end(),
                   [&](size_t a, size_t b) { return wish(a) < wish(b); });
  for (size_t done = 0; done < sharing.size(); ++done) {
    const size_t i = sharing[done];
    const uint64_t bytes = std::min(wish(i), bytes_left / (sharing.size() - done));
    parts[i] += bytes;
    bytes_left -= bytes;
  }
  return parts;
}

std::vector<uint64_t> DivideRoom(const LevelRoom& room, std::span<const BudgetRequest> requests) {
  std::vector<uint64_t> parts = DivideBudget(room.bytes_left, requests);
  const std::vector<uint64_t> fair = DivideBudget(room.bytes_max, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const BudgetRequest& request = requests[i];
    if (request.waits || !request.wants_any()) continue;
    std::string what;
    if (parts[i] == 0) {
      what = absl::StrCat(room.without, ": it needs at least ", FormatByteSize(request.least_bytes),
                          ", and less of ", room.setting, " = ", FormatByteSize(room.bytes_max),
                          " is left");
    } else if (parts[i] < fair[i] / 2) {
      what =
          absl::StrCat("has only ", FormatByteSize(parts[i]), " of ", room.level, ": no more of ",
                       room.setting, " = ", FormatByteSize(room.bytes_max), " is left");
    }
    if (what.empty()) continue;
    LogWarning(absl::StrCat("table '", request.table, "' ", what,
                            WhatGivesRoom(ModelOf(request.table), room.holders)));
  }
  return parts;
}

uint64_t NeedOf(uint64_t bytes, uint64_t row_count, size_t row_bytes) {
  if (bytes != UINT64_MAX) return bytes;
  return row_count <= UINT64_MAX / row_bytes ? row_count * row_bytes : UINT64_MAX;
}

uint64_t RowsThatFit(
    uint64_t bytes, size_t row_bytes,
    const std::function<uint64_t(uint64_t row_count, size_t row_bytes)>& bytes_for) {
  uint64_t least = 0;  // known to fit
  uint64_t most = bytes / row_bytes;
  while (least < most) {
    const uint64_t rows = most - (most - least) / 2;
    bytes_for(rows, row_bytes) <= bytes ? least = rows : most = rows - 1;
  }
  return least;
}

}  // namespace hps
