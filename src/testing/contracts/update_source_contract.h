// The contract suite of UpdateSource: tests that every implementation runs.
//
//   INSTANTIATE_TEST_SUITE_P(Memory, UpdateSourceContract, ::testing::Values(UpdateStreamFactory{
//       .name = "memory", .make = [] { return std::make_unique<MemoryStream>(); }}),
//       UpdateStreamName);
//
// A test makes its topics anew: a stream may be shared by all tests of a program, so table names
// are those of the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "testing/await.h"
#include "update/update_source.h"

namespace hps {

// A stream as its operator and its producers see it.
class ContractStream {
 public:
  virtual ~ContractStream() = default;
  virtual void MakeTopic(const std::string& table, uint32_t partition_count) = 0;
  virtual void DropTopic(const std::string& table) = 0;
  virtual void Grow(const std::string& table, uint32_t partition_count) = 0;
  // `producer_partitions` = UpdateRecord::partition_count.
  virtual void Append(const std::string& table, uint32_t partition, const std::string& payload,
                      int64_t time_ms, uint32_t producer_partitions) = 0;
  // Returns when the stream has everything that was appended.
  virtual void Settle() = 0;
  virtual void Expire(const std::string& table, uint32_t partition, uint64_t low) = 0;
  virtual std::unique_ptr<UpdateSource> NewSource(const std::string& node,
                                                  size_t batch_records_max) = 0;
};

struct UpdateStreamFactory {
  std::string name;
  std::function<std::unique_ptr<ContractStream>()> make;
};

inline std::string UpdateStreamName(const ::testing::TestParamInfo<UpdateStreamFactory>& info) {
  return info.param.name;
}

// A record without its memory: "partition:generation:offset=payload".
inline std::string RecordText(const UpdateRecord& record) {
  return absl::StrCat(record.position.partition, ":", record.position.generation, ":",
                      record.position.offset, "=", std::string(AsText(record.payload)));
}
inline std::string PositionsText(const std::vector<StreamPosition>& positions) {
  std::string text;
  for (const StreamPosition& position : positions) {
    absl::StrAppend(&text, text.empty() ? "" : " ", position.partition, ":", position.generation,
                    ":", position.offset);
  }
  return text;
}

class UpdateSourceContract : public ::testing::TestWithParam<UpdateStreamFactory> {
 protected:
  using Texts = std::vector<std::string>;

  void SetUp() override {
    stream_ = GetParam().make();
    table_ =
        absl::StrCat("contract/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::replace(table_.begin() + 9, table_.end(), '/', '_');
    NewSource(1000);
  }
  void NewSource(size_t batch_records_max) {
    source_.reset();
    texts_.clear();
    events_.clear();
    source_ = stream_->NewSource("node", batch_records_max);
  }

  void Append(uint32_t partition, const std::string& payload, uint32_t producer_partitions = 0,
              int64_t time_ms = 1'700'000'000'000) {
    stream_->Append(table_, partition, payload, time_ms, producer_partitions);
  }
  void AppendMany(uint32_t partition, uint64_t first, uint64_t count,
                  uint32_t producer_partitions = 0) {
    for (uint64_t i = first; i < first + count; ++i) {
      Append(partition, absl::StrCat("r", i), producer_partitions);
    }
  }
  absl::Status Subscribe(std::vector<StreamPosition> positions = {}, UpdateStart start = {}) {
    stream_->Settle();
    return source_->Subscribe({.table = table_, .positions = std::move(positions), .start = start});
  }

  // Polls until `is_done` is true of what has come since the source was made.
  template <typename IsDone>
  testing::AssertionResult PollUntil(const IsDone& is_done) {
    return AwaitCondition([&] {
             if (is_done()) return true;
             const TimePoint now = RealClock().Now();
             absl::StatusOr<UpdateBatch> batch =
                 source_->Poll(now + std::chrono::milliseconds(200));
             EXPECT_TRUE(batch.ok()) << batch.status();
             if (!batch.ok()) return true;
             for (UpdateEvent& event : batch->events) {
               texts_.push_back(absl::StrCat("event ", std::string(UpdateEventName(event.kind)),
                                             " ", PositionsText(event.positions)));
               events_.push_back(std::move(event));
             }
             largest_batch_ = std::max(largest_batch_, batch->records.size());
             for (const UpdateRecord& record : batch->records) {
               EXPECT_EQ(record.table, table_);
               texts_.push_back(RecordText(record));
             }
             return is_done();
           })
           << texts_.size() << " records and " << events_.size() << " events came";
  }
  testing::AssertionResult PollRecords(size_t count) {
    return PollUntil([&] { return texts_.size() - events_.size() >= count; });
  }
  // The first record that comes.
  testing::AssertionResult PollOne(std::vector<UpdateRecord>* records) {
    return AwaitCondition([&] {
      absl::StatusOr<UpdateBatch> batch =
          source_->Poll(RealClock().Now() + std::chrono::milliseconds(200));
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok()) return true;
      *records = std::move(batch->records);
      return !records->empty();
    });
  }
  testing::AssertionResult PollEvents(size_t count) {
    return PollUntil([&] { return events_.size() >= count; });
  }
  size_t IndexOf(const std::string& text) const {
    return static_cast<size_t>(std::find(texts_.begin(), texts_.end(), text) - texts_.begin());
  }

  std::unique_ptr<ContractStream> stream_;
  std::unique_ptr<UpdateSource> source_;
  std::string table_;
  Texts texts_;  // events and records in their order
  std::vector<UpdateEvent> events_;
  size_t largest_batch_ = 0;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UpdateSourceContract);

TEST_P(UpdateSourceContract, ReadsATopicFromItsBeginningInOrder) {
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 100);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(100));
  ASSERT_EQ(texts_.size(), 101u);
  EXPECT_EQ(texts_[0], "event started 0:1:0");
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(texts_[i + 1], absl::StrCat("0:1:", i, "=r", i));
  }
}

TEST_P(UpdateSourceContract, GivesARecordsTimeAndProducer) {
  stream_->MakeTopic(table_, 2);
  Append(1, "x", 2, 1'700'000'000'123);
  ASSERT_TRUE(Subscribe().ok());
  std::vector<UpdateRecord> records;
  ASSERT_TRUE(PollOne(&records));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].time_ms, 1'700'000'000'123);
  EXPECT_EQ(records[0].partition_count, 2u);
  EXPECT_EQ(AsText(records[0].payload), "x");
}

TEST_P(UpdateSourceContract, RecordsOutliveTheirPollAndTheSubscription) {
  stream_->MakeTopic(table_, 1);
  Append(0, std::string(100'000, 'a'));
  ASSERT_TRUE(Subscribe().ok());
  std::vector<UpdateRecord> records;
  ASSERT_TRUE(PollOne(&records));
  ASSERT_EQ(records.size(), 1u);
  ASSERT_TRUE(source_->Unsubscribe(table_).ok());
  EXPECT_EQ(records[0].table, table_);
  EXPECT_EQ(AsText(records[0].payload), std::string(100'000, 'a'));
  EXPECT_EQ(source_->Unsubscribe(table_).code(), absl::StatusCode::kNotFound);
}

TEST_P(UpdateSourceContract, BeginsAtThePositionsOfTheCaller) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 10);
  AppendMany(1, 0, 10);
  ASSERT_TRUE(Subscribe({{1, 3, 9}, {0, 3, 7}}).ok());
  ASSERT_TRUE(PollRecords(4));
  std::sort(texts_.begin(), texts_.end());
  EXPECT_EQ(texts_, (Texts{"0:3:7=r7", "0:3:8=r8", "0:3:9=r9", "1:3:9=r9"}));
}

TEST_P(UpdateSourceContract, BeginsAtTheEnd) {
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 10);
  ASSERT_TRUE(Subscribe({}, {.kind = UpdateStart::Kind::kEnd}).ok());
  ASSERT_TRUE(PollEvents(1));
  AppendMany(0, 10, 2);
  ASSERT_TRUE(PollRecords(2));
  EXPECT_EQ(texts_, (Texts{"event started 0:1:10", "0:1:10=r10", "0:1:11=r11"}));
}

TEST_P(UpdateSourceContract, BeginsAtATime) {
  stream_->MakeTopic(table_, 2);
  for (uint64_t i = 0; i < 10; ++i) {
    Append(0, absl::StrCat("r", i), 0, 1'700'000'000'000 + static_cast<int64_t>(i) * 1000);
  }
  Append(1, "old", 0, 1'700'000'000'000);
  ASSERT_TRUE(Subscribe({}, {.kind = UpdateStart::Kind::kTime, .time_ms = 1'700'000'007'500}).ok());
  ASSERT_TRUE(PollRecords(2));
  EXPECT_EQ(texts_, (Texts{"event started 0:1:8 1:1:1", "0:1:8=r8", "0:1:9=r9"}));
}

TEST_P(UpdateSourceContract, FindsATopicThatAppearsAndReadsItFromItsBeginning) {
  ASSERT_TRUE(Subscribe({}, {.kind = UpdateStart::Kind::kEnd}).ok());
  ASSERT_TRUE(PollUntil([&] { return !source_->Statistics().missing_topics.empty(); }));
  EXPECT_EQ(source_->Statistics().missing_topics, Texts{table_});
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 3);
  ASSERT_TRUE(PollRecords(3));
  EXPECT_EQ(texts_, (Texts{"event topic_appeared 0:1:0", "0:1:0=r0", "0:1:1=r1", "0:1:2=r2"}));
  EXPECT_TRUE(source_->Statistics().missing_topics.empty());
}

TEST_P(UpdateSourceContract, ATopicThatEndsBeforeThePositionWasMadeAgain) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 5);
  ASSERT_TRUE(Subscribe({{0, 4, 6}, {1, 4, 0}}).ok());
  ASSERT_TRUE(PollRecords(5));
  EXPECT_EQ(texts_, (Texts{"event topic_made_again 0:5:0 1:5:0", "0:5:0=r0", "0:5:1=r1", "0:5:2=r2",
                           "0:5:3=r3", "0:5:4=r4"}));
}

TEST_P(UpdateSourceContract, ATopicMadeAgainWhileItIsRead) {
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 3);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(3));
  stream_->DropTopic(table_);
  ASSERT_TRUE(PollUntil([&] { return !source_->Statistics().missing_topics.empty(); }));
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 100, 4);
  ASSERT_TRUE(PollRecords(7));
  EXPECT_EQ(Texts(texts_.begin() + 4, texts_.end()),
            (Texts{"event topic_made_again 0:2:0", "0:2:0=r100", "0:2:1=r101", "0:2:2=r102",
                   "0:2:3=r103"}));
}

TEST_P(UpdateSourceContract, RetentionThatPassedThePositionIsSaid) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 10);
  AppendMany(1, 0, 10);
  stream_->Expire(table_, 0, 6);
  ASSERT_TRUE(Subscribe({{0, 1, 2}, {1, 1, 9}}).ok());
  ASSERT_TRUE(PollRecords(5));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(texts_[0], "event retention_passed 0:1:6 1:1:9");
  EXPECT_EQ(events_[0].records_lost, 4u);
  std::sort(texts_.begin(), texts_.end());
  EXPECT_EQ(Texts(texts_.begin(), texts_.begin() + 5),
            (Texts{"0:1:6=r6", "0:1:7=r7", "0:1:8=r8", "0:1:9=r9", "1:1:9=r9"}));
}

TEST_P(UpdateSourceContract, RetentionThatPassesWhileAPartitionIsPaused) {
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 10);
  NewSource(2);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(2));
  ASSERT_TRUE(source_->SetPaused(table_, 0, true).ok());
  stream_->Expire(table_, 0, 8);
  ASSERT_TRUE(source_->SetPaused(table_, 0, false).ok());
  ASSERT_TRUE(PollUntil([&] { return !texts_.empty() && texts_.back() == "0:1:9=r9"; }));
  // Records that the source held already may still come.
  if (events_.size() == 2) {
    EXPECT_EQ(events_[1].kind, UpdateEvent::Kind::kRetentionPassed);
    EXPECT_EQ(events_[1].records_lost + texts_.size() - 2, 10u);
  } else {
    EXPECT_EQ(texts_.size(), 11u);
  }
}

TEST_P(UpdateSourceContract, ANewGenerationWaitsForTheOldOne) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 50, 2);
  AppendMany(1, 0, 50, 2);
  stream_->Grow(table_, 3);
  for (uint32_t partition = 0; partition < 3; ++partition) AppendMany(partition, 1000, 20, 3);
  NewSource(7);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(160));
  ASSERT_EQ(texts_.size(), 162u);
  EXPECT_EQ(texts_[0], "event started 0:1:0 1:1:0");
  EXPECT_EQ(texts_[101], "event partitions_grew 0:2:50 1:2:50 2:2:0");
  for (size_t i = 1; i < texts_.size(); ++i) {
    EXPECT_EQ(texts_[i].substr(1, 3), i < 101 ? ":1:" : i == 101 ? "ven" : ":2:") << texts_[i];
  }
}

TEST_P(UpdateSourceContract, AnotherNumberOfPartitionsWhileItIsRead) {
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 10);  // these producers don't say how many partitions they use
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(10));
  stream_->Grow(table_, 2);
  ASSERT_TRUE(PollEvents(2));
  EXPECT_EQ(texts_.back(), "event partitions_grew 0:2:10 1:2:0");
  Append(1, "a");
  Append(0, "b");
  ASSERT_TRUE(PollRecords(12));
  EXPECT_LT(IndexOf("1:2:0=a"), texts_.size());
  EXPECT_LT(IndexOf("0:2:10=b"), texts_.size());
}

// Else one record with such a header would stop the table's stream for ever.
TEST_P(UpdateSourceContract, AClaimOfMorePartitionsThanThereAreIsNotBelieved) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 2, 2);
  AppendMany(1, 0, 2, 2);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(4));
  Append(0, "claims", 1'094'795'585);
  AppendMany(0, 3, 2, 2);
  Append(1, "claims too", 1'094'795'585);
  ASSERT_TRUE(PollRecords(8));
  EXPECT_EQ(events_.size(), 1u) << "no generation begins";
  EXPECT_LT(IndexOf("0:1:2=claims"), IndexOf("0:1:3=r3"));
  EXPECT_LT(IndexOf("1:1:2=claims too"), texts_.size());
}

TEST_P(UpdateSourceContract, ARestartInTheMiddleOfGrowthKeepsTheOrder) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 30, 2);
  AppendMany(1, 0, 30, 2);
  stream_->Grow(table_, 4);
  for (uint32_t partition = 0; partition < 4; ++partition) AppendMany(partition, 1000, 5, 4);
  ASSERT_TRUE(Subscribe({{0, 1, 28}, {1, 1, 3}}).ok());
  ASSERT_TRUE(PollRecords(2 + 27 + 20));
  EXPECT_EQ(texts_[29], "event partitions_grew 0:2:30 1:2:30 2:2:0 3:2:0");
}

TEST_P(UpdateSourceContract, APausedPartitionGivesNothingAndLosesNothing) {
  stream_->MakeTopic(table_, 2);
  NewSource(3);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollEvents(1));
  for (int round = 0; round < 5; ++round) {
    AppendMany(0, static_cast<uint64_t>(round) * 10, 10);
    AppendMany(1, static_cast<uint64_t>(round) * 10, 10);
    ASSERT_TRUE(source_->SetPaused(table_, 0, true).ok());
    const auto count_of = [&](char partition) {
      return static_cast<uint64_t>(std::count_if(
          texts_.begin(), texts_.end(), [&](const auto& text) { return text[0] == partition; }));
    };
    const uint64_t before = count_of('0');
    ASSERT_TRUE(PollUntil([&] { return count_of('1') == static_cast<uint64_t>(round) * 10 + 10; }));
    EXPECT_EQ(count_of('0'), before);
    ASSERT_TRUE(source_->SetPaused(table_, 0, false).ok());
    // Paused again in the middle of what was fetched.
    ASSERT_TRUE(PollUntil([&] { return count_of('0') > before; }));
  }
  ASSERT_TRUE(PollRecords(100));
  EXPECT_EQ(texts_.size(), 101u);
  std::map<char, uint64_t> next;
  for (const std::string& text : texts_) {
    if (text[0] == 'e') continue;
    EXPECT_EQ(text.substr(1), absl::StrCat(":1:", next[text[0]], "=r", next[text[0]]));
    ++next[text[0]];
  }
  EXPECT_LE(largest_batch_, 3u);
}

TEST_P(UpdateSourceContract, PausingAllPartitionsCoversThoseToCome) {
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(source_->SetPaused(table_, UpdateSource::kAllPartitions, true).ok());
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 3);
  ASSERT_TRUE(PollUntil([&] { return !source_->Statistics().partitions.empty(); }));
  EXPECT_TRUE(source_->Statistics().partitions[0].paused);
  EXPECT_EQ(texts_.size(), events_.size());
  ASSERT_TRUE(source_->SetPaused(table_, UpdateSource::kAllPartitions, false).ok());
  ASSERT_TRUE(PollRecords(3));
  EXPECT_EQ(source_->SetPaused(table_, 1, true).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(source_->SetPaused("no/table", 0, false).code(), absl::StatusCode::kNotFound);
}

TEST_P(UpdateSourceContract, StatisticsSayHowFarItIs) {
  stream_->MakeTopic(table_, 1);
  AppendMany(0, 0, 10);
  NewSource(4);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(4));
  const UpdateSourceStatistics statistics = source_->Statistics();
  EXPECT_TRUE(statistics.health.ok()) << statistics.health;
  ASSERT_EQ(statistics.partitions.size(), 1u);
  EXPECT_EQ(statistics.partitions[0].table, table_);
  EXPECT_EQ(statistics.partitions[0].position, (StreamPosition{0, 1, texts_.size() - 1}));
  EXPECT_EQ(statistics.partitions[0].end, 10u);
  EXPECT_EQ(statistics.records, texts_.size() - 1);
  EXPECT_GE(statistics.bytes, 8u);
}

// Catches: ends that are known from what was read only.
TEST_P(UpdateSourceContract, StatisticsShowTheLagOfAPausedPartition) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 10);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(10));
  ASSERT_TRUE(source_->SetPaused(table_, UpdateSource::kAllPartitions, true).ok());
  for (const uint64_t end : {20, 30}) {
    AppendMany(0, end - 10, 10);
    stream_->Settle();
    ASSERT_TRUE(PollUntil([&] { return source_->Statistics().partitions[0].end == end; }));
    EXPECT_EQ(source_->Statistics().partitions[0].position.offset, 10u);
  }
  EXPECT_EQ(source_->Statistics().partitions[1].end, 0u);
}

// Catches: what was deleted before the first read is passed over in silence.
TEST_P(UpdateSourceContract, RetentionThatPassedBeforeTheFirstReadIsSaid) {
  stream_->MakeTopic(table_, 2);
  AppendMany(0, 0, 10);
  AppendMany(1, 0, 10);
  stream_->Expire(table_, 0, 6);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollRecords(14));
  EXPECT_EQ(texts_[0], "event retention_passed 0:1:6 1:1:0");
  EXPECT_EQ(events_[0].records_lost, 6u);
  EXPECT_EQ(texts_[1], "event started 0:1:6 1:1:0");
}

TEST_P(UpdateSourceContract, RetentionThatPassedTheStartTimeIsSaid) {
  constexpr int64_t kFirst = 1'700'000'000'000;
  stream_->MakeTopic(table_, 1);
  for (int64_t i = 0; i < 10; ++i) Append(0, absl::StrCat("r", i), 0, kFirst + i * 1000);
  stream_->Expire(table_, 0, 6);
  const auto begin_at = [&](int64_t time_ms) {
    NewSource(1000);
    ASSERT_TRUE(Subscribe({}, {.kind = UpdateStart::Kind::kTime, .time_ms = time_ms}).ok());
    ASSERT_TRUE(PollUntil([&] { return !texts_.empty() && texts_.back() == "0:1:9=r9"; }));
  };
  begin_at(kFirst + 7000);
  EXPECT_EQ(texts_[0], "event started 0:1:7");
  begin_at(kFirst + 3000);
  EXPECT_EQ(texts_[0], "event retention_passed 0:1:6");
  EXPECT_GT(events_[0].records_lost, 0u);
  EXPECT_EQ(texts_[1], "event started 0:1:6");
}

TEST_P(UpdateSourceContract, HintsComeBack) {
  stream_->MakeTopic(table_, 2);
  ASSERT_TRUE(Subscribe().ok());
  ASSERT_TRUE(PollEvents(1));
  const auto committed = [&] {
    auto positions = source_->Committed(table_, RealClock().Now() + kAwaitMax);
    return positions.ok() ? PositionsText(*positions) : std::string(positions.status().message());
  };
  EXPECT_EQ(committed(), "");
  ASSERT_TRUE(source_->CommitHint(table_, std::vector<StreamPosition>{{1, 1, 7}}).ok());
  ASSERT_TRUE(source_->CommitHint(table_, std::vector<StreamPosition>{{0, 2, 9}}).ok());
  ASSERT_TRUE(PollUntil([&] { return committed() == "0:2:9 1:1:7"; }));
  EXPECT_EQ(source_->CommitHint("no/table", {}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(source_->Committed("no/table", RealClock().Now()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_P(UpdateSourceContract, RefusesWhatItCannotSubscribe) {
  EXPECT_EQ(source_->Subscribe({.table = "no slash"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Subscribe({{0, 1, 5}, {0, 1, 6}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Subscribe({{1, 1, 5}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Subscribe().ok());
  EXPECT_EQ(Subscribe().code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace hps
