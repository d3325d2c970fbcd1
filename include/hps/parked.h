// Messages of the update stream that a store has set aside, because they could not be applied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/table_spec.h"

namespace hps {

struct ParkedMessageInfo {
  std::string table;
  std::string topic;
  StreamPosition position;  // of the message itself
  std::string reason;       // a name of docs/updates.md, "Messages that are set aside"
  std::string detail;       // the expected value and the one found
  int64_t time_ms = 0;      // of publishing, since 1970; 0 = unknown
  uint64_t payload_bytes = 0;
};

// The parked messages of a store, in the order in which they were parked. Read-only and lock-free:
// works beside a server.
// Errors: NOT_FOUND (no store), PERMISSION_DENIED, DATA_LOSS (the file is of another kind).
absl::StatusOr<std::vector<ParkedMessageInfo>> ListParkedMessages(const Config& config);

struct ReplayOptions {
  // Also change keys that may have been deleted after the message, because the store has no record
  // that would tell. This may bring back rows that the stream has deleted.
  bool apply_undecided = false;
};

struct ReplayReport {
  uint64_t messages = 0;  // that were applied and removed from the file
  uint64_t rows = 0;      // that they changed
  // Keys that were left out, because their row or their deletion is newer than the message.
  uint64_t superseded = 0;
  // Keys without a row that were left out, because they may have been deleted after the message:
  // a merge of changes (docs/page_files.md) removes the records of deletions.
  uint64_t undecided = 0;
  std::vector<ParkedMessageInfo> parked;  // that stay parked, with the present reason
};

// Decodes the parked messages again and applies each at its own position, so that no later change
// is undone. A message stays parked if it is older than the time from which its table reads the
// stream since its import, and with keys that are undecided.
// Errors: NOT_FOUND (no store), FAILED_PRECONDITION (a server has the store), those of Store::Open
// and of the disk. The messages are then parked as before; replaying them again is harmless.
absl::StatusOr<ReplayReport> ReplayParkedMessages(const Config& config,
                                                  const ReplayOptions& options = {});

}  // namespace hps
