// The device cache: hot rows in the memory of one device, for many tables at once (level 1).
//
// A look-up has two phases, so that one launch probes all tables and the misses travel once:
//
//   DeviceCall call = *cache.AcquireCall();                 // a lease of buffers
//   call->Begin(queries, stream);                           // one launch; hits are written
//   const DeviceMisses misses = *call->Misses(deadline);    // the first synchronization
//   ...fetch misses.keys from the levels below...
//   call->Finish(pieces);                                   // copies and scatters, asynchronous
//   call->Wait(deadline);                                   // the second synchronization
//
// Reads are safe with everything; writes run in the order of their calls on the device's one writer
// stream. The tables of one cache share one budget of device memory. What a cache holds is right in
// the sense of tier/lossy_tier.h: loss is never wrong, a held row is never torn, foreign or old.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "hps/span.h"
#include "hps/statistics.h"
#include "hps/types.h"
#include "tier/fence.h"
#include "tier/fetch.h"
#include "tier/lossy_tier.h"

namespace hps {

class DeviceCacheTable;

// One table's part of a look-up. Keys, rows and status lie in `space`, on the cache's device or on
// the host, and live until the call's stream has passed Finish.
struct DeviceCacheQuery {
  const DeviceCacheTable* table = nullptr;  // null: not cached (every key is a miss)
  MemorySpace space = MemorySpace::kHost;
  const Key* keys = nullptr;
  size_t key_count = 0;
  std::byte* rows = nullptr;
  size_t row_bytes = 0;  // of the table, also where `table` is null
  size_t row_stride_bytes = 0;
  KeyStatus* status = nullptr;             // null = not wanted
  std::span<const std::byte> default_row;  // host; empty = zeros
};

// What the levels below are asked for, on the host. Valid until Finish.
struct DeviceMisses {
  // Unique keys in ascending order, table after table: those of query q are
  // keys[begin[q]] .. keys[begin[q + 1]].
  std::span<const Key> keys;
  std::span<const size_t> begin;        // [queries + 1]
  std::span<const uint64_t> positions;  // [queries]: misses with duplicates, for the counts
};

// The answer for the misses of one query, in the order of DeviceMisses::keys.
struct DeviceRowPiece {
  size_t query = 0;
  size_t first = 0;                     // index of the piece's first key within the query's misses
  std::span<const KeyStatus> statuses;  // [n]; kHitL2 and kHitL3 take their row, others the default
  HostRows rows;                        // [n] rows; borrowed until Wait has returned
};

// One look-up in flight. For one thread. Destroying it returns its buffers, when the device is done
// with them.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;

  // One launch for all queries. Errors: RESOURCE_EXHAUSTED (more keys than the call's buffers),
  // INTERNAL (the device's own text).
  virtual absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) = 0;

  // Waits for the probe. Errors: DEADLINE_EXCEEDED (the call may only be destroyed then), INTERNAL.
  virtual absl::StatusOr<DeviceMisses> Misses(Deadline deadline) = 0;

  // Sends rows of misses to their positions, every duplicate of a key included. May be called
  // several times with disjoint pieces, so that copies overlap with fetching. Asynchronous.
  virtual absl::Status Finish(std::span<const DeviceRowPiece> pieces) = 0;

  // Waits until everything is in its place. Positions (duplicates included) by status are complete
  // afterwards; [kHitL1] of query q is its keys less its missed positions.
  virtual absl::Status Wait(Deadline deadline) = 0;

  // Positions of query q, duplicates included, that Finish answered with each status.
  virtual LookupCounts counts(size_t query) const = 0;
};

// One table (one incarnation) in a device cache. Destroying it returns its slots, when the device
// is done with them; look-ups that name it must have ended. Writes copy their input before they
// return and complete in order on the writer stream. Thread-safe; Update, Erase and
// RaiseWatermarks are for the table's applier, one at a time.
class DeviceCacheTable {
 public:
  virtual ~DeviceCacheTable() = default;

  // Promotion: inserts keys that are not held; least recently used ones of the slabset give way;
  // held ones are left alone; fenced as LossyTable::Insert. `batch.absent` must be empty. Never a
  // row of another key, never torn.
  virtual absl::StatusOr<InsertCounts> Replace(const RowBatch& batch, ApplyEpoch epoch) = 0;

  // Change: overwrites the rows of keys that are held, whatever their version (the applier orders
  // them). Inserts nothing. Returns when the input may be reused; Flush waits for the effect.
  virtual absl::Status Update(const RowBatch& batch) = 0;

  virtual absl::Status Erase(std::span<const Key> keys) = 0;

  // The fence, see tier/fence.h.
  virtual absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch) = 0;

  // Copies out keys that are held, at most out.size(), from slabset `*cursor` on, and moves the
  // cursor; returns how many. 0 = the end. Keys held all the time are dumped exactly once; what
  // comes or goes meanwhile may or may not be.
  virtual absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out) = 0;

  // Removes everything; watermarks stay.
  virtual absl::Status Clear() = 0;

  // Waits until the writes called before are done. Errors: DEADLINE_EXCEEDED, INTERNAL.
  virtual absl::Status Flush(Deadline deadline) = 0;

  virtual LevelStatistics Statistics() const = 0;
};

class DeviceCache {
 public:
  virtual ~DeviceCache() = default;

  virtual int device() const = 0;

  // `bytes_max` is the table's share of the device's budget, metadata included; a table that fits
  // as a whole needs row_count / 0.75 slots.
  // Errors: RESOURCE_EXHAUSTED (says how many bytes a useful table needs), INVALID_ARGUMENT (row
  // bytes of 0 or over kRowBytesMax).
  virtual absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                                      uint64_t bytes_max) = 0;

  // Leases the buffers of one look-up of at most `keys_max` keys.
  // Errors: RESOURCE_EXHAUSTED at once when all are lent.
  virtual absl::StatusOr<std::unique_ptr<DeviceCall>> AcquireCall(size_t keys_max) = 0;
};

}  // namespace hps
