// Publishes the rows of table files to a table's topic (`hps publish`).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "hps/types.h"

namespace hps {

struct PublishRequest {
  std::string brokers;                         // "host:port,host:port"
  std::map<std::string, std::string> kafka{};  // librdkafka's settings, as in [update.kafka]
  std::string table;                           // "<model>/<table>"
  std::string from;                            // as ImportRequest::from of one table
  TableFormat format = TableFormat::kAuto;
  std::optional<uint32_t> dim{};        // required if the files do not contain it
  std::optional<Dtype> dtype{};         // the table's, if it is not that of the files
  std::optional<std::string> tensor{};  // of a safetensors file
  // Publishes that the keys are deleted. `from` is an .npy file of keys, or files of a table, of
  // which only the keys are read.
  bool is_delete = false;
  uint64_t rows_per_second_max = 0;  // 0 = as fast as the brokers take them
  // The longest that the brokers may take to answer, and to take a message.
  std::chrono::milliseconds timeout{std::chrono::seconds(30)};
  ProgressFunction progress{};
};

struct PublishReport {
  uint64_t rows = 0;     // that all in-sync replicas have, deletes included
  uint64_t batches = 0;  // messages
  uint64_t bytes = 0;    // of messages, before compression
  double seconds = 0;
};

// Returns when every row is on all in-sync replicas. Thread-safe.
// Errors: those of ImportTables for the files, of UpdateProducer for the stream. Some rows may have
// been published then; publishing them again is harmless.
absl::StatusOr<PublishReport> PublishTable(const PublishRequest& request);

}  // namespace hps
