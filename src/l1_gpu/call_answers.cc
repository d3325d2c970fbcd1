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

void CallAnswers::Check(const DeviceRowPiece& piece) const {
  HPS_CHECK(piece.query < queries_.size());
  const size_t miss_count = queries_[piece.query].answers.size();
  const size_t count = piece.statuses.size();
  HPS_CHECK(piece.first <= miss_count && count <= miss_count - piece.first);
  HPS_CHECK(piece.rows.row_count == 0 ||
            piece.rows.row_bytes == records_.queries()[piece.query].table.row_bytes);
  const auto answers = queries_[piece.query].answers.subspan(piece.first, count);
  if (TakesRow(StatusOfAll(piece.statuses)) && piece.rows.row_count >= count &&
      answers[0] == kUnanswered && AreEqual(answers)) {
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    if (piece.statuses[i] == kUnanswered) continue;
    HPS_CHECK(answers[i] == kUnanswered);
    HPS_CHECK(i < piece.rows.row_count || !TakesRow(piece.statuses[i]));
  }
}

void CallAnswers::Add(const DeviceRowPiece& piece) {
  Check(piece);
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
    return;
  }
  for (size_t i = 0; i < answers.size(); ++i)
    if (piece.statuses[i] != kUnanswered) answers[i] = count_keys(piece.statuses[i], 1);
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
