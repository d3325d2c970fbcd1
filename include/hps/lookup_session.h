// Looks up the rows of keys.
//
// A session belongs to one model. It is for one thread at a time; every thread makes its own.
// Sessions of a model share its caches. One lookup may ask for keys of several tables. It sees one
// version of the model and writes into buffers of the caller:
//
//   auto session = store->NewSession("dlrm", {});
//   HostTableQuery query{.table = *(*session)->FindTable("user"), .keys = keys, .rows = rows};
//   LookupCounts counts;
//   absl::Status status = (*session)->Lookup({.queries = {&query, 1}}, &counts);
//
// An absent key is a result, not an error: its row is the table's default row. A default row that
// replaces a row that may exist is marked in the key's KeyStatus and counted.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/lookup_cancel.h"
#include "hps/span.h"
#include "hps/table_spec.h"
#include "hps/types.h"

namespace hps {

// A table of a session: its position in LookupSession::tables().
struct TableIndex {
  uint32_t value = 0;

  friend bool operator==(TableIndex, TableIndex) = default;
};

// Keys of one table and the buffers for their answers. The buffers belong to the caller. hps uses
// them until Lookup returns, and device buffers of a request with a stream until the stream has
// completed the lookup.
template <MemorySpace kSpace>
struct TableQuery {
  TableIndex table{};
  SpanIn<const Key, kSpace> keys{};    // [n], duplicates allowed
  SpanIn<std::byte, kSpace> rows{};    // row i at i * row_stride_bytes; ends after the last row
  size_t row_stride_bytes = 0;         // 0 = output_row_bytes(table): rows without gaps
  SpanIn<KeyStatus, kSpace> status{};  // [n]; empty = not wanted
};
using HostTableQuery = TableQuery<MemorySpace::kHost>;
using DeviceTableQuery = TableQuery<MemorySpace::kDevice>;

// Number of keys of a lookup, duplicates included, by status.
struct LookupCounts {
  std::array<uint64_t, kKeyStatusCount> by_status{};

  uint64_t operator[](KeyStatus status) const { return by_status[static_cast<size_t>(status)]; }
  uint64_t& operator[](KeyStatus status) { return by_status[static_cast<size_t>(status)]; }
  uint64_t total() const {
    return std::accumulate(by_status.begin(), by_status.end(), uint64_t{0});
  }
};

template <MemorySpace kSpace>
struct LookupRequest {
  std::span<const TableQuery<kSpace>> queries;
  // Longest wait. Keys whose rows have not arrived by then get default rows and kDefaultDegraded.
  // Zero = ask only levels that cannot block (level 1, and level 2 in memory). Not set =
  // [lookup] timeout.
  std::optional<std::chrono::nanoseconds> timeout{};
  // If the hit rate of a table in the highest level is at least this, the lookup does not wait for
  // the table's misses: they get kDefaultPending and are inserted in the background. The hit rate
  // is 1 - unique misses / (unique misses + keys that hit, duplicates included).
  // 1.0 = always wait, 0.0 = never wait. Not set = [lookup] hit_rate_threshold.
  std::optional<double> hit_rate_threshold{};
  // Lets another thread end the wait early. Null = cannot be cancelled.
  LookupCancel* cancel = nullptr;
  // Device queries only; see LookupSession::Lookup. Null = no stream.
  Stream stream{};
  // Device queries with a stream only. True = the stream has no long work before the lookup. If
  // such a lookup gets no answer within its timeout, the device counts as failed, and lookups do
  // not use it for one second.
  bool stream_is_idle = false;
};
using HostLookupRequest = LookupRequest<MemorySpace::kHost>;
using DeviceLookupRequest = LookupRequest<MemorySpace::kDevice>;

struct SessionOptions {
  int device = -1;  // the GPU whose cache the session uses; -1 = host levels only
  // Element type of output rows: kFloat32 (converted) or not set (as stored).
  std::optional<Dtype> output_dtype{};
  // Sets the size of the session's scratch memory. A lookup of more keys, over all its tables, is
  // answered in pieces of this size: from one version of the model, within one timeout, and with
  // the hit-rate threshold for each piece. Sessions on a device use at most [l1] call_keys_max.
  size_t keys_max = size_t{1} << 20;
};

class LookupSession {
 public:
  virtual ~LookupSession() = default;

  // `name` with or without the model's name: "user" or "dlrm/user". Valid for the session's life.
  // Errors: NOT_FOUND, with the nearest table name of the model.
  virtual absl::StatusOr<TableIndex> FindTable(std::string_view name) const = 0;

  // The model's tables in declared order, by TableIndex::value. Valid for the session's life.
  virtual std::span<const TableSpec> tables() const = 0;

  // Bytes of one output row in SessionOptions::output_dtype; 0 if there is no such table.
  virtual size_t output_row_bytes(TableIndex table) const = 0;

  // Writes the row and, if wanted, the status of every key. `counts` (may be null) gets the counts
  // of the whole lookup; their total is the number of keys. After warm-up it allocates no memory if
  // levels 1 and 2 answer.
  // Errors: INVALID_ARGUMENT (table, buffer sizes, threshold outside [0, 1]), RESOURCE_EXHAUSTED
  // (no memory), UNAVAILABLE (model unloaded), NOT_FOUND (table dropped), FAILED_PRECONDITION
  // (table imported again with another shape). Nothing is written then, except after
  // RESOURCE_EXHAUSTED.
  // A level that fails is not an error; see KeyStatus::kDefaultDegraded.
  virtual absl::Status Lookup(const HostLookupRequest& request, LookupCounts* counts) = 0;

  // The same for keys and outputs on the session's device. With request.stream, keys are read in
  // stream order, and outputs are ready when the stream has completed the lookup; without, keys
  // must be ready before the call, and outputs are ready on return. `counts` is in host memory and
  // complete on return.
  // Errors: as above. UNIMPLEMENTED: a build without GPU support, or a session on the host.
  // DEADLINE_EXCEEDED: the device, or earlier work of the stream, did not finish within the
  // timeout, which counts as at least 0.1 s and at most 1 min here. RESOURCE_EXHAUSTED, INTERNAL,
  // UNAVAILABLE: the device cache failed, or, with stream_is_idle, did not answer a lookup in the
  // last second. Pieces of a large lookup may be written then. After
  // DEADLINE_EXCEEDED, INTERNAL and UNAVAILABLE the device may still write to the outputs:
  // synchronize it before you free them.
  virtual absl::Status Lookup(const DeviceLookupRequest& request, LookupCounts* counts) = 0;
};

}  // namespace hps
