// Publishes changed rows of one table to its topic, from which every node that serves the table
// reads them.
//
//   absl::StatusOr<std::unique_ptr<UpdateProducer>> producer = UpdateProducer::Create(options);
//   status = (*producer)->Upsert(keys, rows, timeout);
//   status = (*producer)->Flush(timeout);   // OK: every row is on all in-sync replicas
//
// A key always goes to the same partition, and changes of one key are applied in the order of the
// calls. Rows are collected into messages of about `message_bytes`. Each message is written once,
// also if it has to be sent again (idempotent producer), and counts as delivered when all in-sync
// replicas have it.
//
// The producer keeps the number of partitions that the topic had at Create. When the topic has
// another number, every call fails with FAILED_PRECONDITION: make a new producer then. docs/
// updates.md says how to grow a topic.
//
// Thread-safe; the calls of different threads are not ordered.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "hps/types.h"

namespace hps {

// What became of one message.
struct UpdateDelivery {
  absl::Status status;  // OK: all in-sync replicas have it
  uint32_t partition = 0;
  int64_t offset = -1;  // of the message; -1 if it was not delivered
  bool is_delete = false;
  std::span<const Key> keys;  // valid during the call
};

struct UpdateProducerOptions {
  std::string brokers;                         // "host:port,host:port"
  std::map<std::string, std::string> kafka{};  // more settings, as in [update.kafka]
  // The table's name, dim and dtype. The default row is not used.
  TableSpec table;
  size_t message_bytes = size_t{256} << 10;    // of rows, before compression; at least 32 KiB
  size_t memory_bytes_max = size_t{64} << 20;  // of messages that are not delivered yet
  std::chrono::milliseconds linger{50};        // the longest that a row waits for others
  std::chrono::milliseconds delivery_timeout{std::chrono::seconds(30)};
  // The longest wait of Create for the brokers.
  std::chrono::milliseconds connect_timeout{std::chrono::seconds(10)};
  // Called for every message, on a thread of the producer. It must be quick and must not call the
  // producer. If it is empty, Flush reports failed messages.
  std::function<void(const UpdateDelivery&)> on_delivery{};
};

struct UpdateProducerStatistics {
  uint64_t rows = 0;  // taken, deletes included
  uint64_t rows_delivered = 0;
  uint64_t rows_failed = 0;
  uint64_t messages_delivered = 0;
  uint64_t messages_failed = 0;
  uint64_t bytes_delivered = 0;  // of messages, before compression
  uint64_t memory_bytes = 0;     // of messages that are not delivered yet
};

class UpdateProducer {
 public:
  // Connects, and asks for the number of partitions. Never creates a topic.
  // Errors: INVALID_ARGUMENT (options, settings), NOT_FOUND (no such topic), UNAVAILABLE (no
  // broker answers), FAILED_PRECONDITION (every user of the machine may read the file of a password
  // or key), PERMISSION_DENIED, UNAUTHENTICATED, UNIMPLEMENTED (a build without Kafka).
  static absl::StatusOr<std::unique_ptr<UpdateProducer>> Create(
      const UpdateProducerOptions& options);

  // Rows that have not been flushed may be lost.
  virtual ~UpdateProducer() = default;

  // Publishes rows of the keys, in the table's dtype, packed. Of a key that occurs twice the last
  // row counts. Waits while memory_bytes_max is in use.
  // Errors: INVALID_ARGUMENT (sizes), DEADLINE_EXCEEDED after `timeout`, FAILED_PRECONDITION
  // (another number of partitions), NOT_FOUND (the topic was deleted). Some rows may have been
  // published then; repeating the call is harmless.
  virtual absl::Status Upsert(std::span<const Key> keys, std::span<const std::byte> rows,
                              std::chrono::milliseconds timeout) = 0;

  // Publishes that the keys are deleted. Errors: as Upsert.
  virtual absl::Status Delete(std::span<const Key> keys, std::chrono::milliseconds timeout) = 0;

  // Sends what was collected, and waits until every message was delivered or has failed.
  // Errors: DEADLINE_EXCEEDED after `timeout`, those of Upsert; else, if messages failed since the
  // last Flush, the error of the first, with the number of them and of their rows.
  virtual absl::Status Flush(std::chrono::milliseconds timeout) = 0;

  virtual uint32_t partition_count() const = 0;

  virtual UpdateProducerStatistics Statistics() const = 0;
};

}  // namespace hps
