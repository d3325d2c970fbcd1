// Looks up the rows of a batch of predictions into a device's memory, where the network reads them.
//
// The keys of all plans go to the device together, those of a table one after the other, and are
// one query for each table. For one thread at a time; keeps its memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "hps/lookup_cancel.h"
#include "hps/lookup_session.h"
#include "inference/execution_plan.h"
#include "network/device_rows.h"

namespace hps {

class DeviceLookup {
 public:
  using Plans = std::span<ExecutionPlan* const>;
  struct Options {
    std::chrono::nanoseconds timeout{};
    LookupCancel* cancel = nullptr;
    std::optional<size_t> part{};  // the plan is this part of a batch (RowRoom::MakePart)
  };

  // Whether only the network reads the plans' rows, and their keys have 64 bits.
  static bool Takes(Plans plans);

  // What a plan's keys and rows take in a room, at most.
  struct Size {
    uint64_t keys = 0;
    uint64_t row_bytes = 0;
  };
  static Size SizeOf(const ExecutionPlan& plan);

  // Writes the rows of all plans to `room`, sets where they are (TablePart::network_rows), and
  // counts in each plan the rows that have not come in time. REQUIRES: Takes; the session is on the
  // room's device; a part is a single plan. Errors: those of RowRoom::Make and of
  // LookupSession::Lookup; then the plans can be looked up on the host.
  absl::Status Run(LookupSession& session, RowRoom& room, Plans plans, const Options& options,
                   LookupCounts& counts);

 private:
  struct PlacedPart {
    TablePart* part = nullptr;
    ExecutionPlan* plan = nullptr;
    uint64_t rows_at = 0;  // in the room, in bytes
  };

  void PlaceParts(Plans plans);
  void MakeQueries(const RowRoom::Room& room, bool with_statuses);
  absl::Status CountDegraded(RowRoom& room, Plans plans, uint64_t degraded_count);

  std::vector<PlacedPart> parts_;  // by table, then by plan
  std::vector<KeyPiece> pieces_;   // likewise
  std::vector<DeviceTableQuery> queries_;
  std::vector<KeyStatus> statuses_;
  size_t key_count_ = 0;
  uint64_t row_bytes_ = 0;  // of the room
};

}  // namespace hps
