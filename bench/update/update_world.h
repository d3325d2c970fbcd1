// What the scenarios "ingest" and "freshness" share: the brokers to measure with, and a table whose
// changes are in a topic.
//
// For one thread, but OpenStore, keys and row_bytes may be used by several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/scenario.h"
#include "bench/update/topic_reader.h"
#include "hps/config.h"
#include "hps/store.h"

namespace hps::bench {

// The environment variable that names the brokers: "host:port,...".
inline constexpr char kBrokersVariable[] = "HPS_BENCH_BROKERS";

// The brokers, or why nothing can be measured. Errors: UNIMPLEMENTED (a build without Kafka),
// NOT_FOUND (the variable is not set).
absl::StatusOr<std::string> FindBrokers();

// Resident memory of this process; 0 when it can't be read.
uint64_t ResidentBytes();

class UpdateWorld {
 public:
  struct Setting {
    std::string directory;  // made and removed
    std::string brokers;
    std::string model;  // its table is "t0"
    uint32_t dim = 0;
    uint64_t changes = 0;  // rows that are published: four for each row of the table
  };
  // Publishes the changes. Errors: NOT_FOUND (no topic), and others of brokers and files.
  static absl::StatusOr<std::unique_ptr<UpdateWorld>> Create(const Setting& setting);
  ~UpdateWorld();
  UpdateWorld(const UpdateWorld&) = delete;
  UpdateWorld& operator=(const UpdateWorld&) = delete;

  // Makes the store anew, and waits until the disk has it: the next measurement finds no writes of
  // the last one under way. A node that opens it reads all changes.
  absl::Status MakeStore();
  // With all rows in level 2. 0 = the default of write_buffer_bytes. REQUIRES: MakeStore was
  // called.
  absl::StatusOr<std::unique_ptr<Store>> OpenStore(bool with_stream,
                                                   uint64_t write_buffer_bytes = 0) const;

  // Changes that are written to the table in level 3 from memory, in writes of `write_rows`.
  // Returns how often all of them would be written in a second (ProgressClock, by rows).
  // REQUIRES: MakeStore was called, and no store is open.
  absl::StatusOr<double> WriteChanges(size_t write_rows) const;

  const TopicRange& topic() const { return topic_; }
  std::span<const Key> keys() const { return keys_; }
  const Setting& setting() const { return setting_; }
  size_t row_bytes() const { return setting_.dim * sizeof(float); }
  // Of all changes: keys and rows.
  double change_bytes() const {
    return static_cast<double>(setting_.changes * (sizeof(Key) + row_bytes()));
  }

 private:
  // Batches of changes, the same ones for every object.
  class Changes;

  explicit UpdateWorld(const Setting& setting) : setting_(setting) {}
  absl::Status MakeTable();
  absl::Status Publish();
  std::string table() const { return setting_.model + "/t0"; }
  Config MakeConfig(bool with_stream, uint64_t write_buffer_bytes = 0) const;

  const Setting setting_;
  std::vector<Key> keys_;
  TopicRange topic_;
  int64_t published_at_ms_ = 0;  // before the first change
};

}  // namespace hps::bench
