// Where a node reads the update stream of its tables from: a transport without names of its own.
//
// A stream has one topic per table, and a topic has partitions. A record is one update message
// (update/update_message.h); the source does not decode it. One record is at one offset of one
// partition, and the offsets of a partition grow.
//
// The caller keeps the positions: it passes them to Subscribe, and stores the position of a record
// together with the rows of the record. The source never decides where to begin by itself, except
// where the caller has no position: then UpdateSubscription::start says it.
//
// Order: records of a partition come in the order of their offsets, each once. Records of different
// partitions come in any order, with one exception. When a topic gets another number of partitions
// or is made again, a new generation begins: no record of generation g + 1 comes before every
// partition has reached its end of generation g. Events come in order with the records: an event of
// a Poll happened before the records of that Poll, and after those of earlier Polls.
//
// Threads: one thread calls everything but Statistics, which any thread may call. Records may be
// destroyed on any thread, and must be destroyed before the source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "tier/durable_tier.h"

namespace hps {

struct UpdateSubscription {
  std::string table;  // "<model>/<table>"
  // One for each partition of the newest generation that the table has begun to read, in any order.
  // Empty: `start` decides. A topic that does not exist yet is then read from its beginning.
  std::vector<StreamPosition> positions{};
  UpdateStart start{};
};

// One message of the stream. Owns its payload; movable.
struct UpdateRecord {
  using Owner = std::unique_ptr<void, void (*)(void*)>;

  std::string_view table;   // valid as long as the source
  StreamPosition position;  // of this record; the table's next position is offset + 1
  int64_t time_ms = 0;      // of publishing, by the stream's time stamp; 0 = unknown
  // The number of partitions that the producer distributed keys over; 0 = unknown.
  uint32_t partition_count = 0;
  std::span<const std::byte> payload;
  Owner owner{nullptr, [](void*) {}};
};

// What happened to a table's topic. The caller stores `positions` in one write before it applies
// the records of the same Poll: from then on these are the table's positions.
struct UpdateEvent {
  enum class Kind {
    kStarted,          // no positions were given: reading begins at these
    kTopicAppeared,    // as kStarted; the topic did not exist at first and is read from its start
    kTopicMadeAgain,   // the topic ends before a position: deleted and created again. A generation
                       // begins, at the start of every partition
    kPartitionsGrew,   // a generation begins: producers distribute keys over more partitions
    kRetentionPassed,  // records were deleted before they were read: the table is stale until its
                       // next import. Comes before kStarted if the first read is too late
  };
  Kind kind = Kind::kStarted;
  std::string table;
  std::vector<StreamPosition> positions{};  // of every partition, ascending; offset = next to read
  // Of kRetentionPassed. At the start by a time the number is not known: one for each partition.
  uint64_t records_lost = 0;
  std::string message;  // for the log: what happened and what to do
};
constexpr std::string_view UpdateEventName(UpdateEvent::Kind kind) {
  constexpr std::array<std::string_view, 5> kNames = {
      "started", "topic_appeared", "topic_made_again", "partitions_grew", "retention_passed"};
  return kNames[static_cast<size_t>(kind)];
}

struct UpdateBatch {
  std::vector<UpdateEvent> events{};
  std::vector<UpdateRecord> records{};
};

// How far the source is in one partition.
struct PartitionProgress {
  std::string table;
  StreamPosition position;  // of the next record that Poll gives
  uint64_t end = 0;         // offset after the last record, as of the last answer of the stream
  bool paused = false;
};

struct UpdateSourceStatistics {
  // OK, or why nothing can be read now (UNAVAILABLE: no broker answers).
  absl::Status health;
  std::vector<PartitionProgress> partitions{};
  std::vector<std::string> missing_topics{};  // tables that are subscribed and have no topic
  uint64_t records = 0;                       // that Poll has given
  uint64_t bytes = 0;
};

class UpdateSource {
 public:
  virtual ~UpdateSource() = default;

  // Begins to read a table's topic. Does not wait for the stream: what it finds out later comes as
  // events. Errors: INVALID_ARGUMENT (the name, or a partition twice), ALREADY_EXISTS.
  virtual absl::Status Subscribe(const UpdateSubscription& subscription) = 0;

  // No record or event of the table comes after this. Errors: NOT_FOUND.
  virtual absl::Status Unsubscribe(std::string_view table) = 0;

  // The records and events that are there, at most as many records and bytes as the source was
  // made for. Waits until `deadline` for the first. An empty batch at the deadline is OK. A stream
  // that does not answer is no error: Statistics().health says so.
  // Errors: PERMISSION_DENIED, UNAUTHENTICATED, INVALID_ARGUMENT (settings): an operator has to
  // act. Poll may be called again.
  virtual absl::StatusOr<UpdateBatch> Poll(Deadline deadline) = 0;

  // Stops or restarts the delivery of one partition, or of all, also those to come, with
  // kAllPartitions. A paused partition keeps its position. Errors: NOT_FOUND.
  static constexpr uint32_t kAllPartitions = UINT32_MAX;
  virtual absl::Status SetPaused(std::string_view table, uint32_t partition, bool is_paused) = 0;

  // Tells the stream what has been applied, for lag tools and for Committed. Never waits; a hint
  // may be lost. Reading never begins there. Errors: NOT_FOUND.
  virtual absl::Status CommitHint(std::string_view table,
                                  std::span<const StreamPosition> positions) = 0;

  // The last hint that this node gave the stream, by partition; partitions without one are left
  // out. Errors: NOT_FOUND (not subscribed), DEADLINE_EXCEEDED, UNAVAILABLE (no topic, no answer).
  virtual absl::StatusOr<std::vector<StreamPosition>> Committed(std::string_view table,
                                                                Deadline deadline) = 0;

  virtual UpdateSourceStatistics Statistics() const = 0;
};

}  // namespace hps
