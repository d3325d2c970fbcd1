#include "tests/simulation/history.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "testing/fakes/stamped_row.h"

namespace hps {

std::optional<std::string> SessionView::Judge(std::span<const Answer> answers) {
  std::map<Key, size_t> seen = seen_;
  for (const Answer& answer : answers) {
    const auto before = seen_.find(answer.key);
    size_t now = before == seen_.end() ? 0 : before->second;
    std::optional<std::string> violation = JudgeOne(answer, now, &now);
    if (violation.has_value()) {
      return absl::StrCat("table ", history_.number(), ", key ", answer.key, ", ",
                          std::string(KeyStatusName(answer.status)), ": ", *violation);
    }
    seen[answer.key] = std::max(seen[answer.key], now);
  }
  seen_ = std::move(seen);
  return std::nullopt;
}

std::optional<std::string> SessionView::JudgeOne(const Answer& answer, size_t seen,
                                                 size_t* now) const {
  switch (answer.status) {
    case KeyStatus::kAbsent:
      return JudgeAbsent(answer, seen, now);
    case KeyStatus::kHitL1:
    case KeyStatus::kHitL2:
    case KeyStatus::kHitL3:
      return JudgeRow(answer, seen, now);
    case KeyStatus::kDefaultPending:
    case KeyStatus::kDefaultDegraded:
      if (!std::ranges::equal(answer.row, history_.default_row())) return "I3: not the default row";
      return std::nullopt;
  }
  return "I3: no status";
}

std::optional<std::string> SessionView::JudgeAbsent(const Answer& answer, size_t seen,
                                                    size_t* now) const {
  if (!std::ranges::equal(answer.row, history_.default_row())) return "I3: not the default row";
  const auto values = history_.values(answer.key);
  for (size_t i = seen; i < values.size(); ++i) {
    if (!values[i].absent) continue;
    *now = i;
    return std::nullopt;
  }
  const bool ever = std::ranges::any_of(values, [](const auto& value) { return value.absent; });
  return ever ? "I2: went back to a time before it was written" : "I3: the key always had a row";
}

std::optional<std::string> SessionView::JudgeRow(const Answer& answer, size_t seen,
                                                 size_t* now) const {
  const std::optional<Version> version =
      StampedRow::VersionOf(history_.number(), answer.key, answer.row);
  if (!version.has_value()) return "I1: torn or another key's row";
  const auto values = history_.values(answer.key);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].absent || values[i].version != *version) continue;
    if (i < seen) {
      return absl::StrCat("I2: went back to version ", *version, " from value ", seen, " of ",
                          values.size());
    }
    *now = i;
    return std::nullopt;
  }
  return absl::StrCat("I1: version ", *version, " was never written");
}

}  // namespace hps
