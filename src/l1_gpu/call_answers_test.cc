#include "l1_gpu/call_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "l1_gpu/test_recorded_misses.h"
#include "testing/trials.h"
#include "tier/direct_rows.h"

namespace hps {
namespace {

constexpr size_t kKeysMax = 600;
constexpr uint32_t kRowBytes = 8;
// Statuses that a piece may have.
constexpr std::array kAnswers = {KeyStatus::kAbsent, KeyStatus::kHitL2, KeyStatus::kHitL3,
                                 KeyStatus::kDefaultPending, KeyStatus::kDefaultDegraded};

class CallAnswersTest : public testing::Test {
 protected:
  // Lists the misses of the next query. `positions`: of each missing key the number of its
  // positions. The query's other keys hit.
  void AddQuery(const std::vector<uint32_t>& positions, uint32_t hit_count,
                const DirectRows* direct = nullptr) {
    const size_t first = records_.key_count();
    uint32_t position = 0;
    size_t duplicate_index = first;
    for (size_t unique = 0; unique < positions.size(); ++unique) {
      const uint32_t answered = direct == nullptr ? 0 : kAnsweredOnDevice;
      misses_.List(first + unique, static_cast<Key>(1000 + unique), position | answered,
                   generation_);
      // Up to 32 in a record.
      for (uint32_t left = positions[unique] - 1; left > 0;) {
        const uint32_t count = std::min(left, 32u);
        misses_.ListDuplicates(
            duplicate_index++,
            {.position = position, .count = count, .generation = generation_, .open_count = 0});
        left -= count;
      }
      position += positions[unique];
    }
    QueryView view = {.key_count = position + hit_count, .direct = direct};
    view.table.row_bytes = kRowBytes;
    records_.AddQuery(view);
  }

  void Begin() {
    records_.set_generation(generation_++);
    for (size_t q = 0; q < records_.queries().size(); ++q) records_.Read(q, SIZE_MAX);
    answers_.Begin();
  }

  HostRows Rows(size_t count) { return {rows_.data(), count, kRowBytes, kRowBytes}; }

  void Add(size_t query, size_t first, const std::vector<KeyStatus>& statuses) {
    answers_.Add(
        {.query = query, .first = first, .statuses = statuses, .rows = Rows(statuses.size())});
  }

  uint32_t generation_ = 1;
  RecordedMisses misses_{kKeysMax};
  CallRecords records_{misses_.buffers(), kKeysMax};
  CallAnswers answers_{records_, kKeysMax};
  std::vector<std::byte> rows_ = std::vector<std::byte>(kKeysMax * kRowBytes);
};

TEST_F(CallAnswersTest, IsCompleteWhenEachMissHasAnAnswer) {
  AddQuery({1, 1, 1}, 2);
  AddQuery({1}, 0);
  Begin();
  EXPECT_EQ(answers_.CheckComplete().message(), "gpu cache: 4 misses were not answered");
  Add(0, 1, {KeyStatus::kAbsent});
  const std::vector<KeyStatus> around = {KeyStatus::kHitL3, kUnanswered, KeyStatus::kAbsent};
  answers_.Add({.query = 0, .statuses = around, .rows = Rows(1)});
  EXPECT_EQ(answers_.CheckComplete().code(), absl::StatusCode::kFailedPrecondition);
  Add(1, 0, {KeyStatus::kHitL2});
  EXPECT_EQ(answers_.CheckComplete(), absl::OkStatus());
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kAbsent], 2u);
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kHitL3], 1u);
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kHitL1], 2u);
}

TEST_F(CallAnswersTest, EndsTheProcessAtAPieceThatIsABug) {
  AddQuery({1, 1, 1}, 2);
  Begin();
  const std::vector<KeyStatus> three(3, KeyStatus::kHitL3);
  EXPECT_DEATH(answers_.Add({.query = 1}), "call_answers.cc");
  EXPECT_DEATH(answers_.Add({.query = 0, .first = 1, .statuses = three, .rows = Rows(3)}),
               "call_answers.cc");
  EXPECT_DEATH(answers_.Add({.query = 0, .statuses = three, .rows = Rows(2)}), "call_answers.cc");
  Add(0, 1, {KeyStatus::kAbsent});
  EXPECT_DEATH(Add(0, 0, three), "call_answers.cc") << "the second key is answered twice";
}

TEST_F(CallAnswersTest, APieceReplacesTheDevicesAnswers) {
  const DirectRows direct;
  AddQuery({3, 1}, 1, &direct);
  AddQuery({2}, 0, &direct);
  Begin();
  EXPECT_EQ(answers_.misses().direct[0], 1);
  EXPECT_EQ(answers_.misses().positions[0], 4u);
  EXPECT_EQ(answers_.CheckComplete(), absl::OkStatus());
  answers_.CountDuplicates();
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kHitL2], 4u);
  Add(0, 0, {KeyStatus::kAbsent});
  EXPECT_EQ(answers_.misses().direct[0], 0);
  EXPECT_EQ(answers_.CheckComplete().message(), "gpu cache: 1 misses were not answered");
  answers_.CountDuplicates();
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kAbsent], 1u) << "not before all have been answered";
  Add(0, 1, {KeyStatus::kHitL3});
  answers_.CountDuplicates();
  answers_.CountDuplicates();
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kAbsent], 3u);
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kHitL3], 1u);
  EXPECT_EQ(answers_.counts(0)[KeyStatus::kHitL2], 0u);
  EXPECT_EQ(answers_.counts(1)[KeyStatus::kHitL2], 2u);
}

// Random misses, answered by random pieces in a random order, against counts made key by key.
class RandomAnswersTest : public CallAnswersTest {
 protected:
  size_t Draw(size_t below) { return static_cast<size_t>(random_() % below); }

  void AddRandomQuery() {
    std::vector<uint32_t> positions(Draw(10));
    uint32_t sum = 0;
    for (uint32_t& count : positions) {
      count = static_cast<uint32_t>(Draw(4) == 0 ? 1 + Draw(16) : 1);
      sum += count;
    }
    const auto hit_count = static_cast<uint32_t>(Draw(5));
    AddQuery(positions, hit_count);
    positions_.push_back(positions);
    left_.emplace_back(positions.size(), true);
    expected_.emplace_back();
    expected_.back()[KeyStatus::kHitL1] = hit_count;
    on_device_.insert(on_device_.end(), kKeyStatusCount, 0);
  }

  // Answers some of a query's keys that are left, in one piece.
  void AnswerSome(size_t query, KeyStatus common) {
    std::vector<bool>& left = left_[query];
    const size_t first = Draw(left.size());
    std::vector<KeyStatus> statuses(1 + Draw(left.size() - first));
    const bool reprobe = Draw(5) == 0;
    const bool mixes = Draw(2) == 0;
    for (size_t i = 0; i < statuses.size(); ++i) {
      statuses[i] = kUnanswered;
      if (!left[first + i] || (mixes && Draw(3) == 0)) continue;
      statuses[i] = mixes ? kAnswers[Draw(kAnswers.size())] : common;
      left[first + i] = false;
      const uint32_t count = positions_[query][first + i];
      const auto status = static_cast<size_t>(statuses[i]);
      expected_[query].by_status[status] += count;
      if (reprobe) on_device_[query * kKeyStatusCount + status] += count;
    }
    answers_.Add({.query = query,
                  .first = first,
                  .statuses = statuses,
                  .rows = Rows(statuses.size()),
                  .reprobe = reprobe});
  }

  std::mt19937_64 random_{TestSeed()};
  std::vector<std::vector<uint32_t>> positions_;  // [query][unique]
  std::vector<std::vector<bool>> left_;           // [query][unique]
  std::vector<LookupCounts> expected_;            // [query]
  std::vector<uint32_t> on_device_;               // [query][status]
};

TEST_F(RandomAnswersTest, CountsEveryPositionOnce) {
  for (uint64_t trial = 0; trial < Trials(2000); ++trial) {
    records_.Clear();
    positions_.clear();
    left_.clear();
    expected_.clear();
    on_device_.clear();
    for (size_t q = 0; q < 3; ++q) AddRandomQuery();
    Begin();
    const KeyStatus common = kAnswers[Draw(kAnswers.size())];
    while (!answers_.CheckComplete().ok()) {
      const size_t query = Draw(left_.size());
      if (!left_[query].empty()) AnswerSome(query, common);
      if (HasFatalFailure()) return;
      answers_.CountDuplicates();
    }
    answers_.AddDeviceCounts(on_device_.data());
    for (size_t q = 0; q < left_.size(); ++q) {
      EXPECT_EQ(answers_.counts(q).by_status, expected_[q].by_status) << q;
      EXPECT_EQ(answers_.counts(q).total(), records_.queries()[q].key_count);
      EXPECT_EQ(answers_.duplicate_count(q), answers_.misses().positions[q] - left_[q].size());
    }
  }
}

}  // namespace
}  // namespace hps
