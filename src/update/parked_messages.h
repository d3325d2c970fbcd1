// Messages of an update stream that could not be applied, in the file STORE/parked/messages
// (docs/store_format.md, "Parked messages"): an operator looks at them and can apply them later.
//
// The file is only appended to, and bounded: a message for whose payload it has no room is written
// without it, and one that does not fit at all is only counted. What was added survives the end of
// the process; a power cut can lose the last ones. A message that was half written when the process
// ended, or that is damaged, is passed over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/mutex.h"
#include "hps/table_spec.h"
#include "update/update_message.h"

namespace hps {

struct ParkedMessage {
  std::string table;
  std::string topic;
  StreamPosition position;  // of the message itself
  ParkReason reason = ParkReason::kTruncated;
  std::string detail;   // what was expected and found
  int64_t time_ms = 0;  // of publishing, by the stream's time stamp; 0 = unknown
  std::vector<std::byte> payload;
};

// The writer of the file: at most one for each store. Thread-safe.
class ParkedMessages {
 public:
  // Makes directory and file where they are missing; readable by the owner only. Removes a half
  // written message at the end. A file of another kind or version is renamed to `messages.damaged`.
  // `bytes_max` is for the whole file.
  // Errors: those of the file system (PERMISSION_DENIED, RESOURCE_EXHAUSTED, ...).
  static absl::StatusOr<std::unique_ptr<ParkedMessages>> Open(const std::string& store_path,
                                                              uint64_t bytes_max);
  ParkedMessages(const ParkedMessages&) = delete;
  ParkedMessages& operator=(const ParkedMessages&) = delete;

  // Without its payload the message says so in its detail. A payload above kUpdateMessageBytesMax
  // is never written. Counts the message also if it fails. Errors: those of the file system; the
  // file is then as before.
  absl::Status Add(const ParkedMessage& message);

  // Messages added since Open, by reason, also those for which the file had no room.
  std::array<uint64_t, kParkReasonCount> counts() const;

 private:
  ParkedMessages(File file, uint64_t bytes, uint64_t bytes_max)
      : file_(std::move(file)), bytes_max_(bytes_max), bytes_(bytes) {}

  const File file_;
  const uint64_t bytes_max_;
  mutable Mutex mutex_;
  uint64_t bytes_ HPS_GUARDED_BY(mutex_);  // of the file
  std::array<uint64_t, kParkReasonCount> counts_ HPS_GUARDED_BY(mutex_) = {};
};

// The messages of a store in the order in which they were parked; none without a file. Works beside
// a writer. Errors: those of the file system; DATA_LOSS (no file of parked messages, or one of
// another version).
absl::StatusOr<std::vector<ParkedMessage>> ReadParkedMessages(const std::string& store_path);

// Replaces the messages of a store, in one step and durably. REQUIRES: no writer, that is, the
// caller has the store open for writing. Errors: those of the file system.
absl::Status ReplaceParkedMessages(const std::string& store_path,
                                   std::span<const ParkedMessage> messages);

}  // namespace hps
