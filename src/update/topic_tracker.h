// The state of one subscribed topic: which partitions are to be read from which offset, and to
// which generation a record belongs. Every UpdateSource has one per subscription. It passes the
// stream's answers to the tracker, and reads the partitions that the tracker wants.
//
// A generation is a number of partitions that producers distribute keys over. With another number a
// key may move to another partition, where its offsets begin below those of its old records. So
// records of the next generation are held back until every partition has reached its end of this
// one. A record belongs to the next generation
//   - if its producer says that it uses more partitions (UpdateRecord::partition_count), or
//   - if it lies behind the end that its partition had when the growth was found (producers that do
//     not say how many partitions they use).
// A held partition is not read; it is read again from the held record on.
//
// A producer that claims more partitions than the topic has, as the stream says after the record,
// is not believed.
//
// At the very beginning of a topic the number of partitions of its oldest records is unknown, so
// every partition is held at its first record, and the smallest number begins. So a topic that is
// read for the first time begins when all of its partitions have a leader. Later each partition is
// read as soon as it has one.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "update/update_source.h"

namespace hps {

// The stream's answer about a topic at one moment.
struct TopicView {
  struct Range {
    uint64_t low = 0;    // offset of the first record that is kept
    uint64_t high = 0;   // offset after the last record
    uint64_t start = 0;  // of UpdateStart::kTime; `high` if no record is as young
    // False: the partition has no leader that could say it.
    bool is_known = true;
  };
  bool exists = false;
  uint32_t partition_count = 0;
  // One for each partition, or empty: no tracker asked. They were asked for after `question` was.
  std::vector<Range> ranges{};
  uint64_t question = 0;
};

class TopicTracker {
 public:
  struct Partition {
    uint64_t next = 0;        // offset of the next record to deliver
    bool is_held = false;     // the record at `next` belongs to a later generation
    bool is_paused = false;   // by the caller, who may also pause all
    bool is_lost = false;     // the stream does not have `next`; the ranges will say why
    uint32_t held_count = 0;  // partitions that the held record's producer uses; 0 = unknown
    std::optional<uint64_t> bound{};  // where this generation ends at the latest
  };
  enum class Verdict {
    kDeliver,
    kHold,  // belongs to a later generation: not delivered, and read again later
    kSkip,  // the partition is not to be read, or the record came before
  };
  struct Taken {
    Verdict verdict = Verdict::kSkip;
    uint16_t generation = 0;  // of the record
  };

  // Errors: INVALID_ARGUMENT: the table's name; positions that are not those of partitions 0, 1,
  // ..., each once.
  static absl::Status Check(const UpdateSubscription& subscription);
  // REQUIRES: Check is OK.
  // A topic that was read counts as gone once the stream has said so for `missing_min`.
  explicit TopicTracker(const UpdateSubscription& subscription, Duration missing_min = kMissingMin);
  static constexpr auto kMissingMin = std::chrono::seconds(5);

  const std::string& table() const { return subscription_.table; }
  const UpdateStart& start() const { return subscription_.start; }
  bool is_missing() const { return state_ == State::kMissing; }
  uint16_t generation() const { return generation_; }
  const std::vector<Partition>& partitions() const { return partitions_; }

  // The question for ranges that is open; nullopt: none is needed.
  std::optional<uint64_t> question() const;

  // Whether the partition is to be read now, from partitions()[partition].next on.
  bool IsWanted(uint32_t partition) const;
  bool IsPaused(uint32_t partition) const;

  // The answer of the stream. Appends what has happened.
  void Learn(const TopicView& view, std::vector<UpdateEvent>* events);

  // A record has arrived, from a producer that uses `producer_partitions`. The events come after
  // the record.
  Taken Take(uint32_t partition, uint64_t offset, uint32_t producer_partitions,
             std::vector<UpdateEvent>* events);

  // There is no record between `next` and `offset`, the end of the partition.
  void ReachEnd(uint32_t partition, uint64_t offset, std::vector<UpdateEvent>* events);

  // The stream does not have the record at `next`.
  void LosePosition(uint32_t partition);

  // Errors: NOT_FOUND.
  absl::Status SetPaused(uint32_t partition, bool is_paused);

  // Those of the generation, ascending.
  std::vector<StreamPosition> Positions() const;

 private:
  enum class State { kUnknown, kMissing, kReading };

  bool IsDraining() const;
  // Whether the partition has no record of the generation left.
  bool IsDrained(const Partition& partition) const;
  void Ask() { ++question_; }
  void Drain();
  void LearnMissing();
  void Begin(const TopicView& view, std::vector<UpdateEvent>* events);
  void BeginAtStart(const TopicView& view);
  void CountLossAtStart(uint32_t partition, const TopicView::Range& range);
  void BeginAgain(const TopicView& view, const std::string& why);
  // Whether the topic was made again.
  bool CheckPosition(uint32_t partition, const TopicView::Range& range, uint64_t* lost);
  void LearnRanges(const TopicView& view, std::vector<UpdateEvent>* events);
  void Advance(std::vector<UpdateEvent>* events);
  void DistrustClaims(uint32_t partition_count);
  uint32_t NextCount() const;
  void AddEvent(UpdateEvent::Kind kind, std::string message,
                std::vector<UpdateEvent>* events) const;
  void AddLoss(uint64_t records_lost, const std::string& what,
               std::vector<UpdateEvent>* events) const;

  const UpdateSubscription subscription_;
  State state_ = State::kUnknown;
  const Duration missing_min_;
  std::optional<TimePoint> missing_since_{};
  uint16_t generation_ = 1;
  uint32_t base_count_ = 0;  // partitions of the generation; 0 = not known yet
  uint64_t question_ = 1;    // the newest
  uint64_t answered_ = 0;    // the newest that was answered
  UpdateEvent::Kind first_event_ = UpdateEvent::Kind::kStarted;  // when base_count_ is known
  std::string first_message_;
  uint64_t lost_at_start_ = 0;  // records; see UpdateEvent::records_lost
  bool all_are_paused_ = false;
  uint32_t false_count_ = 0;  // producers that claim as many partitions are not believed; 0 = none
  std::vector<Partition> partitions_;  // all that the topic has
};

}  // namespace hps
