// Answers: given these keys of these tables, what are their rows?
//
// A session belongs to one model. It is for one thread at a time; sessions are cheap, so every
// thread has its own, and they share the model's levels. One call may ask many tables, sees one
// snapshot of the whole model, and fills the caller's buffers:
//
//   auto session = store->NewSession("dlrm", {});
//   HostTableQuery query{.table = *(*session)->FindTable("dlrm/user"), .keys = keys, .rows = rows};
//   LookupCounts counts;
//   absl::Status status = (*session)->Lookup({.queries = {&query, 1}}, &counts);
//
// An absent key is a result, not an error: its row is the table's default row. A default row that
// stands in for a row which may exist is flagged per key (KeyStatus) and counted.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/lookup_cancel.h"
#include "hps/span.h"
#include "hps/table_spec.h"
#include "hps/types.h"

namespace hps {

// The keys of one table and where their answers go. The caller owns every buffer until the call
// returns (host, or device without a stream) or until its stream has passed the call (device).
template <MemorySpace kSpace>
struct TableQuery {
  uint32_t table = 0;                // from LookupSession::FindTable
  Span<const Key, kSpace> keys;      // [n], duplicates allowed
  Span<std::byte, kSpace> rows;      // [n, row_stride_bytes], at least up to the last row's end
  size_t row_stride_bytes = 0;       // 0 = packed: the output row's size
  Span<KeyStatus, kSpace> status{};  // [n], or empty when not wanted
};
using HostTableQuery = TableQuery<MemorySpace::kHost>;
using DeviceTableQuery = TableQuery<MemorySpace::kDevice>;

// Positions of a call (duplicates included) by what was answered.
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
  // Ends the wait, not the work: what has not arrived by then is answered with default rows and
  // kDefaultDegraded. Not set = the configured [lookup] timeout. Zero = take what L1 and a
  // non-blocking L2 hold.
  std::optional<std::chrono::nanoseconds> timeout{};
  // Hit rate of the highest level from which on the call does not wait for a table's misses; they
  // are answered kDefaultPending and inserted in the background. The hit rate is
  // 1 - unique misses / (unique misses + positions that hit).
  // 1.0 = always wait, 0.0 = never wait. Not set = the configured value.
  std::optional<double> hit_rate_threshold{};
  // Ends the wait from another thread, as if the timeout had passed then. Null: nobody does.
  LookupCancel* cancel = nullptr;
  // Device queries only. Null: the keys are ready before the call, and the answers on return.
  Stream stream{};
};
using HostLookupRequest = LookupRequest<MemorySpace::kHost>;
using DeviceLookupRequest = LookupRequest<MemorySpace::kDevice>;

struct SessionOptions {
  int device = -1;  // -1 = host; else the GPU that the caches and buffers are on
  std::optional<Dtype> output_dtype{};  // kFloat32 converts in the last copy; not set = as stored
  // Keys of a call, over all its tables; bounds the session's scratch. On a device it is lowered to
  // [l1] call_keys_max.
  size_t keys_max = size_t{1} << 20;
};

class LookupSession {
 public:
  virtual ~LookupSession() = default;

  // The number by which queries name a table. It stays valid while the session lives.
  // Errors: NOT_FOUND, which names the nearest table of the model.
  virtual absl::StatusOr<uint32_t> FindTable(std::string_view name) const = 0;

  // The model's tables, in declared order; index = FindTable's number.
  virtual std::vector<TableSpec> tables() const = 0;

  // Bytes of one output row of a table (output_dtype considered).
  virtual size_t output_row_bytes(uint32_t table) const = 0;

  // Fills rows and statuses of every query. `counts` (may be null) gets the six counts of the
  // whole call; they add up to the number of keys asked. Allocates nothing after warm-up when the
  // upper levels answer.
  // Errors: INVALID_ARGUMENT (table number, buffer sizes, threshold outside [0, 1]),
  // RESOURCE_EXHAUSTED (more than keys_max keys; no memory), UNAVAILABLE (the model was unloaded),
  // NOT_FOUND (the table has been dropped),
  // FAILED_PRECONDITION (the table was imported again with another shape); nothing is written then,
  // but perhaps where there was no memory.
  // A level that fails is not an error: see KeyStatus::kDefaultDegraded.
  virtual absl::Status Lookup(const HostLookupRequest& request, LookupCounts* counts) = 0;

  // The same with keys and outputs on the session's device. Reads the keys in the order of
  // request.stream; rows and statuses are there when that stream has passed the call, and without
  // a stream on return. `counts` is host memory, complete on return.
  // Errors: as above; UNIMPLEMENTED in a build without GPU support, or for a session on the host;
  // RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, INTERNAL or UNAVAILABLE from the cache. After the last
  // three the device may still write to the outputs: synchronize it before they are freed.
  // DEADLINE_EXCEEDED: the device, or the stream's earlier work, was not done when the timeout had
  // passed, and at least 0.1 s; at most a minute. A cancel is seen before the next wait.
  virtual absl::Status Lookup(const DeviceLookupRequest& request, LookupCounts* counts) = 0;
};

}  // namespace hps
