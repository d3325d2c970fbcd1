#include "l1_gpu/call_answers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "l1_gpu/kernels/statuses.h"

namespace hps {
namespace {

// Answers besides statuses and kUnanswered.
constexpr KeyStatus kCountedOnDevice{0xfe};  // the device counts the key's positions
constexpr KeyStatus kDifferent{0xfd};        // of a query: its keys have different answers
static_assert(kKeyStatusCount <= 0xfd);

template <typename... Parts>
absl::Status Refused(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("gpu cache: ", parts...));
}

}  // namespace

CallAnswers::CallAnswers(CallRecords& records, size_t keys_max)
    : records_(records), answers_(new KeyStatus[keys_max]) {
  queries_.reserve(kTablesPerCallMax);
  positions_.reserve(kTablesPerCallMax);
  direct_.reserve(kTablesPerCallMax);
}

void CallAnswers::Begin() {
  queries_.clear();
  positions_.clear();
  direct_.clear();
  unanswered_count_ = 0;
  for (size_t q = 0; q < records_.queries().size(); ++q) {
    const QueryView& view = records_.queries()[q];
    Query& query = queries_.emplace_back();
    query.answers = {answers_.get() + view.first_key, records_.keys()[q].size()};
    std::ranges::fill(query.answers, kUnanswered);
    for (const DuplicateRecord& record : records_.Duplicates(q))
      query.duplicate_count += record.count;
    positions_.push_back(query.answers.size() + query.duplicate_count);
    query.counts[KeyStatus::kHitL1] = view.key_count - positions_[q];
    direct_.push_back(records_.AreAnsweredOnDevice(q) ? 1 : 0);
    if (direct_[q] != 0) {
      query.counts[KeyStatus::kHitL2] = positions_[q];
    } else {
      unanswered_count_ += query.answers.size();
    }
  }
}

absl::Status CallAnswers::Validate(const DeviceRowPiece& piece) const {
  if (piece.query >= queries_.size()) {
    return Refused("a piece for query ", piece.query, " of a call with ", queries_.size(),
                   " queries");
  }
  const std::span<const Key> keys = records_.keys()[piece.query];
  const size_t count = piece.statuses.size();
  if (piece.first > keys.size() || count > keys.size() - piece.first) {
    return Refused("a piece of ", count, " answers from index ", piece.first,
                   ", the number of misses is ", keys.size());
  }
  const uint32_t row_bytes = records_.queries()[piece.query].table.row_bytes;
  if (piece.rows.row_count > 0 && piece.rows.row_bytes != row_bytes) {
    return Refused("a piece with rows of ", piece.rows.row_bytes, " bytes, expected ", row_bytes);
  }
  const auto answers = queries_[piece.query].answers.subspan(piece.first, count);
  if (TakesRow(StatusOfAll(piece.statuses)) && piece.rows.row_count >= count &&
      answers[0] == kUnanswered && AreEqual(answers)) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < count; ++i) {
    if (piece.statuses[i] == kUnanswered) continue;
    if (answers[i] != kUnanswered) {
      return Refused("key ", keys[piece.first + i], " is answered twice");
    }
    if (TakesRow(piece.statuses[i]) && i >= piece.rows.row_count) {
      return Refused("a piece of ", count, " answers with ", piece.rows.row_count, " rows");
    }
  }
  return absl::OkStatus();
}

absl::Status CallAnswers::Add(const DeviceRowPiece& piece) {
  HPS_RETURN_IF_ERROR(Validate(piece));
  Query& query = queries_[piece.query];
  if (std::exchange(direct_[piece.query], 0) != 0) {
    query.counts[KeyStatus::kHitL2] = 0;
    unanswered_count_ += query.answers.size();
  }
  // Counts one position of each of `count` keys. Returns their answer.
  const auto count_keys = [&](KeyStatus status, size_t count) {
    const KeyStatus answer = piece.reprobe ? kCountedOnDevice : status;
    if (query.common_answer == kUnanswered) query.common_answer = answer;
    if (query.common_answer != answer) query.common_answer = kDifferent;
    unanswered_count_ -= count;
    if (!piece.reprobe) query.counts[status] += count;
    return answer;
  };
  const auto answers = query.answers.subspan(piece.first, piece.statuses.size());
  if (const KeyStatus status = StatusOfAll(piece.statuses); status != kUnanswered) {
    std::ranges::fill(answers, count_keys(status, answers.size()));
    return absl::OkStatus();
  }
  for (size_t i = 0; i < answers.size(); ++i)
    if (piece.statuses[i] != kUnanswered) answers[i] = count_keys(piece.statuses[i], 1);
  return absl::OkStatus();
}

absl::Status CallAnswers::CheckComplete() const {
  if (unanswered_count_ == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("gpu cache: ", unanswered_count_, " misses were not answered"));
}

void CallAnswers::CountDuplicates() {
  if (unanswered_count_ > 0) return;
  for (size_t q = 0; q < queries_.size(); ++q)
    if (direct_[q] == 0 && !std::exchange(queries_[q].duplicates_counted, true)) CountDuplicates(q);
}

// In most calls all misses have the same answer; then it does not matter which key a position waits
// for.
void CallAnswers::CountDuplicates(size_t q) {
  Query& query = queries_[q];
  const KeyStatus common = query.common_answer;
  if (query.duplicate_count == 0 || common == kCountedOnDevice) return;
  if (common != kDifferent) {
    query.counts[common] += query.duplicate_count;
    return;
  }
  records_.ForEachDuplicate(q, [&](size_t unique, uint32_t count) {
    const KeyStatus answer = query.answers[unique];
    if (answer != kCountedOnDevice) query.counts[answer] += count;
  });
}

void CallAnswers::AddDeviceCounts(const uint32_t* counts) {
  for (Query& query : queries_)
    for (uint64_t& count : query.counts.by_status) count += *counts++;
}

}  // namespace hps
