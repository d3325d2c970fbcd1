// The device cache (level 1): hot rows in the memory of one device, for many tables.
//
// A lookup has two phases, so that one launch probes all tables and all misses travel in one
// transfer:
//
//   DeviceCallLease call = *cache.AcquireCall(keys_max);  // leases buffers
//   call->Begin(queries, stream);                         // one launch; writes the hits
//   call->Peek();                                         // optional: the misses listed so far,
//   call->CopyAhead(rows);                                //   fetched into Staging and copied
//   early DeviceMisses misses = *call->Misses(deadline);        // the first synchronization
//   ... fetch the missing keys from the levels below ...
//   call->Finish(pieces);                                 // copies and scatters, asynchronous
//   call->Wait(deadline);                                 // the second synchronization
//
// If the outputs are in device memory, the lookup may end without Wait. Outputs in host memory are
// complete only after Wait; if no key missed, Wait may need no synchronization.
//
// There is one cache per device. It has one writer stream, on which writes run in the order of
// their calls. One lock covers "check the fence, then launch", so that a promotion that passed the
// fence runs before every change that is launched later. Reads may run concurrently with
// everything. The cache gives the guarantees of tier/lossy_tier.h: it may lose any row, but a row
// that it holds is never torn, never another key's, and never older than one it has shown before.
// The tables of one cache share one budget of device memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/limits.h"
#include "hps/span.h"
#include "hps/statistics.h"
#include "hps/types.h"
#include "tier/direct_rows.h"
#include "tier/fence.h"
#include "tier/fetch_batch.h"
#include "tier/lossy_tier.h"

namespace hps {

class DeviceCacheTable;

// The most keys of one DeviceCacheTable::UpdateFrom: an eighth of the writer's staging has their
// rows, so that two are being filled while others are being transferred. With less, the launches of
// an update would take longer than the transfer.
inline size_t UpdateFromKeysMax(size_t row_bytes) {
  return std::max<size_t>(kWriterStagingBytes / 8 / row_bytes, 1);
}

// One table's part of a lookup. Keys, rows and status are in `space`: on the cache's device or on
// the host, the same for all queries of a call. Keys and status are aligned for their elements,
// rows for bytes. The memory must stay valid until Wait has returned or, on the device, until the
// stream has passed the call.
struct DeviceCacheQuery {
  const DeviceCacheTable* table = nullptr;  // null: not cached (every key is a miss)
  MemorySpace space = MemorySpace::kHost;
  const Key* keys = nullptr;
  size_t key_count = 0;
  std::byte* rows = nullptr;
  size_t row_bytes = 0;  // of the table; also required if `table` is null
  size_t row_stride_bytes = 0;
  KeyStatus* status = nullptr;             // null = not requested
  std::span<const std::byte> default_row;  // host, borrowed until the last Finish; empty = zeros
  // Element type of the rows if DeviceCall::ConvertToFloat32 shall convert them to float32 in
  // place. Each output row then has room for twice row_bytes (the stride is at least that). Device
  // memory only. kFloat32 = no conversion.
  Dtype convert_from = Dtype::kFloat32;
  // The level below, for the device to answer misses from by itself as far as it can. Reads of it
  // (DirectReadable) must be under way until Misses has returned; if they end earlier, the caller
  // must not use DeviceMisses::direct. Null: the device does not ask it.
  const DirectRows* direct = nullptr;
};

// The keys to fetch from the levels below, in host memory. Valid until the call is returned.
struct DeviceMisses {
  // [queries]: the unique missing keys of each query, unordered (sorting is expensive on a device).
  std::span<const std::span<const Key>> keys;
  std::span<const uint64_t> positions;  // [queries]: missing positions, duplicates included
  // [queries], or empty = all 0. 1: the device has answered all misses of the query itself, from
  // DeviceCacheQuery::direct, with kHitL2. No piece need answer them. If one does, the device's
  // answers to this query count no more, and pieces must answer all of its misses.
  std::span<const uint8_t> direct{};
};

// The misses of one query that a probe, possibly still running, has listed so far.
struct DeviceMissesSoFar {
  std::span<const Key> keys;  // a prefix of DeviceMisses::keys
  bool probed = false;        // the probe has ended; `keys` is complete
};

// A status in a piece: another piece answers this key. A level that lacks a few rows of a piece
// then neither delays the others nor has to split the piece. Callers never see this status.
inline constexpr KeyStatus kUnanswered{0xff};

// Answers for misses of one query, in the order of DeviceMisses::keys.
struct DeviceRowPiece {
  size_t query = 0;
  size_t first = 0;  // index of the piece's first key within the query's misses
  // [n]. kHitL2 and kHitL3 write their row, kUnanswered writes nothing, every other status writes
  // the default row. Borrowed until Finish returns.
  std::span<const KeyStatus> statuses;
  // [n] rows; n = 0 if no status needs one. Rows in the call's staging are read until the call has
  // ended; other rows are borrowed until Finish returns.
  HostRows rows;
  // Set this if a change of the table has begun since the apply epoch that was read before Begin.
  // The cache may have received an older row after its probe and would show it after this lookup
  // has shown the newer one. The device probes these keys again; keys that the cache holds by then
  // are answered from it.
  bool reprobe = false;
  // All rows were passed to CopyAhead and have not changed since.
  bool on_device = false;
};

// One lookup in flight. Not thread-safe. Where INTERNAL is documented, a lost device may give
// UNAVAILABLE instead.
class DeviceCall {
 public:
  // Probes all queries with one launch. At most once per lease. Errors: RESOURCE_EXHAUSTED (more
  // host rows than fit into device memory), INVALID_ARGUMENT (a stream that is being captured, a
  // stream or, as far as checked, memory of another device), INTERNAL (with the device's error
  // text). Nothing is written on error. REQUIRES: as tier/device_query.h says.
  virtual absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) = 0;

  // Returns the misses of a query that the probe has listed so far, so that fetching can start
  // before the probe ends. Neither waits nor synchronizes. Later results, and that of Misses, begin
  // with the same keys. `probed` is also set if the device has failed; Misses then returns the
  // error.
  virtual DeviceMissesSoFar Peek(size_t query) = 0;

  // Waits for the probe. A repeated call returns the same result and sets a new deadline for
  // Finish. Errors: DEADLINE_EXCEEDED (the call may then only be returned), INTERNAL.
  virtual absl::StatusOr<DeviceMisses> Misses(Deadline deadline) = 0;

  // Pinned memory for `row_count` packed rows of the query. Rows fetched into it need no second
  // copy on the host. Returns room for all rows or, if too little is left, for none; the caller
  // then fetches into its own memory. Valid after Begin, until the call is returned. Takes
  // milliseconds where the memory grows, which later calls find.
  virtual HostRows Staging(size_t query, size_t row_count) = 0;

  // Starts the copy of rows in Staging to the device. May be called while the probe is running,
  // before the statuses of the rows are known. Asynchronous. Errors: INTERNAL.
  virtual absl::Status CopyAhead(const HostRows& rows) = 0;

  // Writes the rows of misses to all their positions, duplicates included. May be called several
  // times, so that copies overlap with fetching; each key is answered once. Asynchronous for rows
  // in Staging. Other rows are copied first; if there are many, Finish waits for the device, at
  // most until the last deadline given to Misses. Errors: DEADLINE_EXCEEDED (the call may then only
  // be returned), INTERNAL. REQUIRES: no piece exceeds the misses, answers a key again, or lacks
  // rows that its statuses need.
  virtual absl::Status Finish(std::span<const DeviceRowPiece> pieces) = 0;

  // Converts the rows of all queries with `convert_from` to float32, in one launch. Call it once,
  // when every miss has been answered. Asynchronous. Errors: FAILED_PRECONDITION (a miss was not
  // answered), INTERNAL.
  virtual absl::Status ConvertToFloat32() = 0;

  // Waits until all outputs are written. Errors: FAILED_PRECONDITION (a miss was not answered),
  // DEADLINE_EXCEEDED, INTERNAL.
  virtual absl::Status Wait(Deadline deadline) = 0;

  // Positions of a query by status, duplicates included; the sum is the query's key count. Complete
  // after Wait, or after the last Finish if no piece had `reprobe` set.
  virtual LookupCounts counts(size_t query) const = 0;

  // Returns the buffers once the device has finished with them. From here on nothing is written to
  // the caller's host memory, even after an error. Called by DeviceCallLease.
  virtual void Return() = 0;

 protected:
  ~DeviceCall() = default;
};

// Calls come from a pool, so that a lookup does not allocate.
struct ReturnDeviceCall {
  void operator()(DeviceCall* call) const { call->Return(); }
};
using DeviceCallLease = std::unique_ptr<DeviceCall, ReturnDeviceCall>;

// One table (one incarnation) in a device cache. Destroying it frees its slots once the device has
// finished with them; lookups on it must have ended. Thread-safe, but Update, UpdateFrom,
// Erase, Dump and RaiseWatermarks are for the table's applier, one at a time (UpdateFrom: several
// at a time).
//
// Writes copy their input before they return and complete in order on the writer stream. They may
// not be visible until Flush. They wait for room in the writer's staging (RaiseWatermarks and Dump
// also for the device), at most until `deadline`. After DEADLINE_EXCEEDED or INTERNAL the applier
// can't know what was applied and trips the bypass of the table on this device.
class DeviceCacheTable {
 public:
  virtual ~DeviceCacheTable() = default;

  virtual size_t row_bytes() const = 0;

  // Promotion: inserts the keys that are not held and leaves held keys unchanged. Evicts the least
  // recently used keys of the slabset, as `batch.admission` allows. Fenced as LossyTable::Insert.
  // REQUIRES, as for Update: rows of the table's size, no `batch.absent`.
  // One of several duplicates is inserted. Returns the number of keys that the fence refused;
  // Statistics counts insertions and evictions later. Errors: RESOURCE_EXHAUSTED (no room in the
  // writer's staging: the caller drops the keys; some may have been inserted if the batch needs
  // several steps), INTERNAL.
  virtual absl::StatusOr<uint64_t> InsertIfAbsent(const RowBatch& batch, ApplyEpoch epoch) = 0;

  // Change: overwrites the rows of held keys, whatever their version (the applier orders changes).
  // Inserts nothing. Of duplicates any one may win: the applier names each key once.
  virtual absl::Status Update(const RowBatch& batch, Deadline deadline) = 0;

  // As Update, for rows that the caller is yet to fetch. `fill` is called on this thread, at most
  // once, with room for `keys_max` keys and as many packed rows in the staging of the device, and
  // returns how many it has written; so rows are copied on the host only once. Errors: as Update,
  // and those of `fill`: nothing is updated then. REQUIRES: `keys_max` in [1, UpdateFromKeysMax].
  using FillUpdate = std::function<absl::StatusOr<size_t>(std::span<Key> keys, HostRows rows)>;
  virtual absl::Status UpdateFrom(size_t keys_max, const FillUpdate& fill, Deadline deadline) = 0;

  virtual absl::Status Erase(std::span<const Key> keys, Deadline deadline) = 0;

  // The fence, see tier/fence.h. Watermarks are in host memory. Returns when the insertions
  // admitted earlier have also completed on the device, so that none becomes visible after the
  // change.
  virtual absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                       Deadline deadline) = 0;

  // Copies held keys, at most out.size(), starting at slab `*cursor` (0 = the beginning), advances
  // the cursor and returns the number of keys. 0 = the end. Keys that are held throughout are
  // dumped exactly once: no key moves between dumped and other slabs meanwhile. Keys that are
  // inserted or evicted meanwhile may be missing. One dump at a time. REQUIRES: out.size() >=
  // kDumpKeysMin.
  virtual absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline deadline) = 0;
  static constexpr size_t kDumpKeysMin = 64;

  // Removes all keys. Watermarks stay.
  virtual absl::Status Clear() = 0;

  // Waits until all earlier writes have completed. Errors: DEADLINE_EXCEEDED, INTERNAL.
  virtual absl::Status Flush(Deadline deadline) = 0;

  // Counts the writes that have completed.
  virtual LevelStatistics Statistics() const = 0;
};

// Thread-safe. Must outlive its tables and calls.
class DeviceCache {
 public:
  virtual ~DeviceCache() = default;

  virtual int device() const = 0;

  // Bytes, metadata included, of a table that is to hold `row_count` rows. Sized for a fill of 3/4,
  // at which almost no row is lost. REQUIRES: as OpenTable.
  virtual uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const = 0;

  // `bytes_max` is the table's share of the device's budget, metadata included. Errors:
  // RESOURCE_EXHAUSTED (says how many bytes a useful table needs, or how many are left in the
  // budget). REQUIRES: row_bytes in [1, kRowBytesMax].
  virtual absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                                      uint64_t bytes_max) = 0;

  // Leases the buffers of one lookup of at most `keys_max` keys. Errors: RESOURCE_EXHAUSTED,
  // without waiting, if all buffers are leased or none is large enough.
  virtual absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) = 0;

  // The same for a lookup that has a call and wants to begin its next piece. A cache lends one such
  // call at a time beyond those of AcquireCall, so that no lookup takes another one's. Errors:
  // RESOURCE_EXHAUSTED; the lookup then begins the piece when it has given its call back.
  virtual absl::StatusOr<DeviceCallLease> AcquireCallAhead(size_t keys_max) = 0;

  // Makes whole pages of the process's memory readable by all devices at the same address, for
  // DeviceCacheQuery::direct. All of them become resident, and a child process does not get them.
  // Other calls of the driver wait meanwhile, some milliseconds for 64 MiB. Errors:
  // RESOURCE_EXHAUSTED, INTERNAL; nothing is pinned then.
  virtual absl::Status PinHostMemory(std::span<std::byte> memory) = 0;
  // The same part again, before it is unmapped. REQUIRES: no device reads it any more.
  virtual void UnpinHostMemory(std::span<std::byte> memory) = 0;
  // Waits until the device has ended the lookups that were returned before it had. False: it hangs.
  virtual bool AwaitReturnedCalls() = 0;
};

}  // namespace hps
