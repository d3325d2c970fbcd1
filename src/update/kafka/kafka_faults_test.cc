// Producer and source while brokers end and topics grow: every published value of every key comes
// once, in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "hps/update_producer.h"
#include "testing/await.h"
#include "testing/trials.h"
#include "update/kafka/test_kafka_brokers.h"
#include "update/kafka_source_options.h"
#include "update/update_message.h"

namespace hps {
namespace {

constexpr auto kFaultPatience = std::chrono::minutes(3);
constexpr size_t kKeys = 64;

// Fewer do not meet every way in which a broker goes.
size_t BounceCount() { return std::max<size_t>(10, Trials(40)); }

// The values of the keys, in the order in which the stream gave them.
class Verifier {
 public:
  explicit Verifier(const TableSpec& spec) : spec_(spec), next_(kKeys, 0) {}

  void Take(const UpdateRecord& record) {
    const auto update = DecodeUpdate(record.payload, spec_);
    ASSERT_TRUE(update.ok()) << update.status();
    for (size_t i = 0; i < update->count; ++i) {
      const auto key = static_cast<size_t>(update->key(i));
      ASSERT_LT(key, kKeys);
      const auto value = LoadLittleEndian<float>(update->row(i));
      EXPECT_EQ(value, static_cast<float>(next_[key])) << "key " << key;
      next_[key] = static_cast<uint64_t>(value) + 1;
    }
  }
  // How many values every key has got.
  uint64_t complete() const { return *std::min_element(next_.begin(), next_.end()); }

 private:
  const TableSpec& spec_;
  std::vector<uint64_t> next_;
};

class KafkaFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    spec_ = {.name = absl::StrCat("faults/",
                                  ::testing::UnitTest::GetInstance()->current_test_info()->name()),
             .dim = 1};
    topic_ = UpdateTopic(spec_.name);
    std::iota(keys_.begin(), keys_.end(), 0);
  }

  std::unique_ptr<UpdateProducer> NewProducer(const TestKafkaBrokers& kafka) {
    auto producer = UpdateProducer::Create({.brokers = kafka.addresses(),
                                            .table = spec_,
                                            .linger = std::chrono::milliseconds(2),
                                            .delivery_timeout = kFaultPatience});
    EXPECT_TRUE(producer.ok()) << producer.status();
    return *std::move(producer);
  }
  // Gives every key the value `round`.
  absl::Status Publish(UpdateProducer& producer, uint64_t round) {
    const std::vector<float> values(kKeys, static_cast<float>(round));
    return producer.Upsert(keys_, AsBytes(std::span<const float>(values)), kFaultPatience);
  }
  std::unique_ptr<UpdateSource> NewSource(const TestKafkaBrokers& kafka) {
    auto source = MakeKafkaSource({.brokers = kafka.addresses(),
                                   .group = "node",
                                   .look_every = std::chrono::milliseconds(300)});
    EXPECT_TRUE(source.ok()) << source.status();
    EXPECT_TRUE((*source)->Subscribe({.table = spec_.name}).ok());
    return *std::move(source);
  }
  // Polls until every key has `rounds` values.
  static void ReadUntil(UpdateSource& source, uint64_t rounds, Verifier* verifier) {
    while (verifier->complete() < rounds) {
      // Each batch has the whole time.
      absl::StatusOr<UpdateBatch> batch;
      const auto has_come = [&] {
        batch = source.Poll(RealClock().Now() + std::chrono::milliseconds(100));
        return !batch.ok() || !batch->records.empty();
      };
      ASSERT_TRUE(AwaitCondition(has_come, kFaultPatience))
          << verifier->complete() << " of " << rounds;
      ASSERT_TRUE(batch.ok()) << batch.status();
      for (const UpdateRecord& record : batch->records) verifier->Take(record);
    }
  }

  TableSpec spec_;
  std::string topic_;
  std::vector<Key> keys_ = std::vector<Key>(kKeys);
};

TEST_F(KafkaFaults, ThreeBrokersBounced) {
  TestKafkaBrokers kafka(3);
  kafka.MakeTopic(topic_, 3);
  const auto producer = NewProducer(kafka);
  const auto source = NewSource(kafka);
  std::atomic<bool> bounced{false};
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> rounds{0};
  std::thread publisher([&] {
    while (!stopping.load()) {
      const absl::Status status = Publish(*producer, rounds.load());
      ASSERT_TRUE(status.ok()) << status;
      ++rounds;
      // A pause that lets the messages be small and many.
      const absl::Status flushed =
          rounds.load() % 16 == 0 ? producer->Flush(kFaultPatience) : status;
      ASSERT_TRUE(flushed.ok()) << flushed;
    }
  });
  std::thread operator_thread([&] {
    for (size_t i = 0; i < BounceCount(); ++i) {
      if (i % 2 == 0) {
        kafka.Kill(i % 3);
      } else {
        kafka.Stop(i % 3);
      }
      kafka.Start(i % 3);
    }
    bounced = true;
  });
  Verifier verifier(spec_);
  // Values are published until this has ended, so that each one waited for comes.
  while (!bounced.load()) ReadUntil(*source, verifier.complete() + 1, &verifier);
  operator_thread.join();
  stopping = true;
  publisher.join();
  const absl::Status flushed = producer->Flush(kFaultPatience);
  ASSERT_TRUE(flushed.ok()) << flushed;
  ReadUntil(*source, rounds.load(), &verifier);
  EXPECT_EQ(verifier.complete(), rounds.load());
  std::cout << rounds.load() << " values of " << kKeys << " keys in "
            << producer->Statistics().messages_delivered << " messages\n";
  EXPECT_EQ(producer->Statistics().messages_failed, 0u);
  uint64_t written = 0;
  for (const uint64_t end : kafka.Ends(topic_, 3)) written += end;
  EXPECT_EQ(written, producer->Statistics().messages_delivered);  // none twice
}

// Catches: a source that reads nothing of a topic while one of its partitions has no leader.
TEST_F(KafkaFaults, APartitionWithoutALeaderWaitsAlone) {
  TestKafkaBrokers kafka(3);
  kafka.MakeUnreplicatedTopic(topic_, 3);
  {
    const auto producer = NewProducer(kafka);
    for (uint64_t round = 0; round < 3; ++round) {
      ASSERT_TRUE(Publish(*producer, round).ok());
      ASSERT_TRUE(producer->Flush(kFaultPatience).ok());
    }
  }
  const std::vector<uint64_t> ends = kafka.Ends(topic_, 3);
  kafka.Kill(0);
  const auto source = MakeKafkaSource({.brokers = kafka.addresses(),
                                       .group = "node",
                                       .look_every = std::chrono::milliseconds(300)});
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_TRUE((*source)
                  ->Subscribe({.table = spec_.name, .positions = {{0, 1, 1}, {1, 1, 1}, {2, 1, 1}}})
                  .ok());
  std::vector<uint64_t> next = {1, 1, 1};
  const auto read_until = [&](const std::vector<uint64_t>& wanted) {
    const auto has_all = [&] {
      const auto batch = (*source)->Poll(RealClock().Now() + std::chrono::milliseconds(100));
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok()) return true;
      EXPECT_TRUE(batch->events.empty());
      for (const UpdateRecord& record : batch->records) {
        EXPECT_EQ(record.position.offset, next[record.position.partition]++);
      }
      return next == wanted;
    };
    return AwaitCondition(has_all, kFaultPatience);
  };
  ASSERT_TRUE(read_until({1, ends[1], ends[2]}));
  kafka.Start(0);
  ASSERT_TRUE(read_until(ends));
}

TEST_F(KafkaFaults, ATopicGrowsWhileItIsRead) {
  TestKafkaBrokers& kafka = TestKafkaBrokers::Shared();
  kafka.MakeTopic(topic_, 2);
  auto producer = NewProducer(kafka);
  const auto source = NewSource(kafka);
  Verifier verifier(spec_);
  uint64_t round = 0;
  for (const uint32_t partition_count : {3u, 5u, 8u}) {
    for (int i = 0; i < 50; ++i, ++round) ASSERT_TRUE(Publish(*producer, round).ok());
    ASSERT_TRUE(producer->Flush(kFaultPatience).ok());
    ReadUntil(*source, round - 20, &verifier);  // the rest is still to be read
    kafka.Grow(topic_, partition_count);
    // The old producer ends by itself; what follows is the next one's.
    absl::Status status;
    while (status.ok()) status = producer->Flush(kFaultPatience);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    producer = NewProducer(kafka);
    EXPECT_EQ(producer->partition_count(), partition_count);
  }
  for (int i = 0; i < 50; ++i, ++round) ASSERT_TRUE(Publish(*producer, round).ok());
  ASSERT_TRUE(producer->Flush(kFaultPatience).ok());
  ReadUntil(*source, round, &verifier);
  // A node that begins now reads the four generations in order as well.
  Verifier late(spec_);
  ReadUntil(*NewSource(kafka), round, &late);
}

TEST_F(KafkaFaults, ABrokerThatIsAloneRestarts) {
  TestKafkaBrokers kafka(1);
  kafka.MakeTopic(topic_, 2);
  const auto producer = NewProducer(kafka);
  const auto source = NewSource(kafka);
  Verifier verifier(spec_);
  uint64_t round = 0;
  for (int restart = 0; restart < 2; ++restart) {
    for (int i = 0; i < 20; ++i, ++round) ASSERT_TRUE(Publish(*producer, round).ok());
    if (restart == 0) {
      kafka.Kill(0);
    } else {
      kafka.Stop(0);
    }
    for (int i = 0; i < 20; ++i, ++round) ASSERT_TRUE(Publish(*producer, round).ok());
    // A broker that is slow to end may leave a question without an answer first: DEADLINE_EXCEEDED.
    const auto is_away = [&] {
      const auto batch = source->Poll(RealClock().Now() + std::chrono::milliseconds(50));
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok()) return true;
      EXPECT_TRUE(batch->events.empty() || batch->events[0].kind == UpdateEvent::Kind::kStarted);
      for (const UpdateRecord& record : batch->records) verifier.Take(record);
      return source->Statistics().health.code() == absl::StatusCode::kUnavailable;
    };
    ASSERT_TRUE(AwaitCondition(is_away, kFaultPatience));
    kafka.Start(0);
    const absl::Status flushed = producer->Flush(kFaultPatience);
    ASSERT_TRUE(flushed.ok()) << flushed;
    ReadUntil(*source, round, &verifier);
  }
  // One of the partitions may have had nothing left to bring, and still be on its way.
  const auto is_well = [&] {
    EXPECT_TRUE(source->Poll(RealClock().Now() + std::chrono::milliseconds(50)).ok());
    return HasFailure() || source->Statistics().health.ok();
  };
  EXPECT_TRUE(AwaitCondition(is_well, kFaultPatience)) << source->Statistics().health;
}

}  // namespace
}  // namespace hps
