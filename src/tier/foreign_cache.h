// A cache that another program fills and may go on changing, read as the source of an import.
// Nothing of it is changed. Its tables are in parts, each of which is read from its beginning; an
// import copies a table before it uses it (src/import/formats/foreign_copy.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

// Takes the records of one part.
class ForeignRecordSink {
 public:
  virtual ~ForeignRecordSink() = default;
  // The part is read from its beginning, perhaps again: what was added before does not count.
  virtual void Begin() = 0;
  // A key that is changed meanwhile may come again. An error ends the reading, which returns it.
  virtual absl::Status Add(std::string_view key, std::string_view row) = 0;
};

// For one thread.
class ForeignCache {
 public:
  virtual ~ForeignCache() = default;

  // "<model>/<table>" of all tables, sorted.
  virtual const std::vector<std::string>& tables() const = 0;

  // The parts of a table; its rows are spread evenly over them. Errors: NOT_FOUND, which names the
  // tables that there are; INVALID_ARGUMENT (the table has more parts than the caller declared).
  virtual absl::StatusOr<uint32_t> PartCount(const std::string& table) = 0;

  // Reads the part to its end, if need be more than once. Errors: those of the network, and of the
  // sink.
  virtual absl::Status ReadPart(const std::string& table, uint32_t part,
                                ForeignRecordSink& sink) = 0;
};

}  // namespace hps
