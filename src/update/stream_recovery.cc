#include "update/stream_recovery.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"

namespace hps {
namespace {

// Longest wait for the stream's answer to Committed: the reading thread does nothing else
// meanwhile.
constexpr auto kCommittedWaitMax = std::chrono::seconds(2);

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void StreamRecovery::Follow() {
  if (state_ == State::kAsking) AskHowFar();
  const Duration waited = RealClock().Now() - started_at_;
  const bool has_caught_up = state_ == State::kCatchingUp && HasCaughtUp();
  if (!has_caught_up && waited < wait_max_) return;
  if (!has_caught_up) {
    unverified_ = absl::StrCat("the update stream did not answer or was not caught up with within ",
                               Seconds(wait_max_), " s");
  }
  if (!unverified_.empty()) {
    LogWarning(
        absl::StrCat(unverified_, ": the last changes before the start may be missing for now"));
  }
  state_ = State::kDone;
  result_.is_unverified = !unverified_.empty();
  result_.seconds = Seconds(waited);
}

void StreamRecovery::AskHowFar() {
  unverified_.clear();
  for (auto& [name, table] : tables_) {
    const absl::StatusOr<bool> verifies = AskHowFarOf(table);
    // Asked again in the next step, unless the stream has said that the table has no topic.
    if (!verifies.ok() && std::ranges::count(source_.Statistics().missing_topics, name) == 0)
      return;
    if (verifies.value_or(false)) continue;
    unverified_ = absl::StrCat("the brokers have no offsets of this node for table '", name, "'");
  }
  state_ = State::kCatchingUp;
  for (const auto& [name, table] : tables_) {
    for (const auto& [partition, offset] : table.targets)
      result_.records += offset - table.table->positions().at(partition).offset;
  }
  if (result_.records == 0) return;
  LogWarning(absl::StrCat("the store had lost its last changes: ", result_.records,
                          " records of the update stream are applied again"));
}

// False: the stream was told nothing of the table.
absl::StatusOr<bool> StreamRecovery::AskHowFarOf(Table& table) {
  table.targets.clear();
  HPS_ASSIGN_OR_RETURN(
      const std::vector<StreamPosition> committed,
      source_.Committed(table.table->name(), DeadlineAfter(RealClock(), kCommittedWaitMax)));
  const std::map<uint32_t, StreamPosition>& positions = table.table->positions();
  for (const StreamPosition& hint : committed) {
    const auto position = positions.find(hint.partition);
    const bool is_ahead = position != positions.end() &&
                          position->second.generation == hint.generation &&
                          position->second.offset < hint.offset;
    if (is_ahead) table.targets[hint.partition] = hint.offset;
  }
  return !committed.empty();
}

bool StreamRecovery::HasCaughtUp() {
  bool has_caught_up = true;
  for (auto& [name, table] : tables_) {
    const std::map<uint32_t, StreamPosition>& positions = table.table->positions();
    std::erase_if(table.targets, [&](const auto& target) {
      return positions.at(target.first).offset >= target.second;
    });
    has_caught_up &= table.targets.empty();
  }
  return has_caught_up;
}

}  // namespace hps
