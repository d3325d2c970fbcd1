// The device cache: hot rows in the memory of one device, for many tables at once (level 1).
//
// A lookup has two phases, so that one launch probes all tables and the misses travel once:
//
//   DeviceCallLease call = *cache.AcquireCall(keys_max);    // a lease of buffers
//   call->Begin(queries, stream);                           // one launch; hits are written
//   ...call->Peek(): fetch what has missed so far, into call->Staging(), and call->Bring() it...
//   const DeviceMisses misses = *call->Misses(deadline);    // the first synchronization
//   ...fetch the other keys from the levels below...
//   call->Finish(pieces);                                   // copies and scatters, asynchronous
//   call->Wait(deadline);                                   // the second synchronization
//
// When the outputs lie on the device, the lookup may end without Wait. Outputs on the host are
// there only when Wait has returned; where nothing has missed that need not be a synchronization.
//
// There is one cache per device; it has one writer stream, on which writes run in the order of
// their calls, and one lock around "check the fence, then launch", so that a promotion that passed
// the fence is ahead of every change that is launched later. Reads are safe with everything. What
// a cache holds is right in the sense of tier/lossy_tier.h: loss is never wrong, a held row is
// never torn, foreign or old. The tables of one cache share one budget of device memory.
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
#include "tier/fetch_batch.h"
#include "tier/lossy_tier.h"

namespace hps {

class DeviceCacheTable;

// One table's part of a lookup. Keys, rows and status lie in `space`, on the cache's device or on
// the host (one space for all queries of a call), aligned for their elements, rows for bytes. They
// live until Wait has returned or, on the device, until the stream has passed the call.
struct DeviceCacheQuery {
  const DeviceCacheTable* table = nullptr;  // null: not cached (every key is a miss)
  MemorySpace space = MemorySpace::kHost;
  const Key* keys = nullptr;
  size_t key_count = 0;
  std::byte* rows = nullptr;
  size_t row_bytes = 0;  // of the table, also where `table` is null
  size_t row_stride_bytes = 0;
  KeyStatus* status = nullptr;             // null = not wanted
  std::span<const std::byte> default_row;  // host, borrowed until the last Finish; empty = zeros
  // The type of the rows' elements, where DeviceCall::Widen is to make them float32 in their
  // places: each has twice row_bytes then, and the stride is at least that. On the device only.
  // kFloat32 = they stay as they are.
  Dtype widen_from = Dtype::kFloat32;
};

// What the levels below are asked for, on the host. Valid until the call is returned.
struct DeviceMisses {
  // [queries]: each one's unique keys, in no particular order (sorting is dear on a device).
  std::span<const std::span<const Key>> keys;
  std::span<const uint64_t> positions;  // [queries]: misses with duplicates, for the counts
};

// What a probe that may still be under way has listed of one query.
struct DeviceMissesSoFar {
  std::span<const Key> keys;  // the first of DeviceMisses::keys
  bool probed = false;        // they are all
};

// In a piece: this key is left for another one. So a level that lacks a few rows of a piece does
// not keep the others waiting, nor has to cut it up. Never a status that a caller sees.
inline constexpr KeyStatus kUnanswered{0xff};

// Answers for misses of one query, in the order of DeviceMisses::keys.
struct DeviceRowPiece {
  size_t query = 0;
  size_t first = 0;  // index of the piece's first key within the query's misses
  // [n]; kHitL2 and kHitL3 take their row, kUnanswered nothing, others the default row. Borrowed
  // until Finish returns.
  std::span<const KeyStatus> statuses;
  // [n] rows; n = 0 where no status takes one. Those in the call's staging are read until the call
  // has ended, others are borrowed until Finish returns.
  HostRows rows;
  // Set it where a change of the table has begun since the apply epoch that was read before Begin:
  // the cache may have taken the older row after its probe, and would show it again after this
  // lookup has shown the newer one. Keys that the cache holds by now are answered from it.
  bool probe_again = false;
  // All rows have been given to Bring, and are as they were then.
  bool brought = false;
};

// One lookup in flight. For one thread. Where INTERNAL is said, a device that has been lost may be
// UNAVAILABLE instead.
class DeviceCall {
 public:
  // One launch for all queries; once per lease. Errors: RESOURCE_EXHAUSTED (more keys than were
  // leased, more than kTablesPerCallMax queries, or more rows on the host than the device has room
  // for), INVALID_ARGUMENT (row bytes that are not the table's, a stride below them, two memory
  // spaces, rows on the host that are to be widened, a stream that is being captured, a stream or
  // memory of another device as far as that is looked at), INTERNAL (the device's own text).
  // Nothing has been written then.
  virtual absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) = 0;

  // The misses of a query that the probe has listed by now, so that fetching need not wait for its
  // end. Does not wait, nor synchronize. Later answers, and that of Misses, begin with the same
  // keys. `probed` too when the device has failed: Misses says so.
  virtual DeviceMissesSoFar Peek(size_t query) = 0;

  // Waits for the probe. Called again it says the same, and gives Finish another deadline. Errors:
  // DEADLINE_EXCEEDED (the call may only be returned then), INTERNAL.
  virtual absl::StatusOr<DeviceMisses> Misses(Deadline deadline) = 0;

  // Pinned memory for `row_count` packed rows of the query, so that what is fetched into it needs
  // no second copy on the host. All of them, or none where not so many are left: the caller then
  // fetches into memory of its own, and what is left is for others. Valid until the call is
  // returned; after Begin.
  virtual HostRows Staging(size_t query, size_t row_count) = 0;

  // Starts the copy of rows in Staging to the device, also while the probe is under way and the
  // statuses of the rows are not known. Asynchronous. Errors: INTERNAL.
  virtual absl::Status Bring(const HostRows& rows) = 0;

  // Sends rows of misses to their positions, every duplicate of a key included. May be called
  // several times, each key being answered once, so that copies overlap with fetching.
  // Asynchronous for rows that lie in Staging; others are copied first, and when there are many
  // they wait for the device, at most until the deadline that Misses was given last. Errors:
  // INVALID_ARGUMENT (a piece that is not within the misses, answers a key again, or lacks rows),
  // DEADLINE_EXCEEDED (the call may only be returned then), INTERNAL.
  virtual absl::Status Finish(std::span<const DeviceRowPiece> pieces) = 0;

  // Widens the rows of queries that ask for it, with one launch for all. Once, when every miss has
  // been answered. Asynchronous. Errors: FAILED_PRECONDITION (a miss was left without an answer),
  // INTERNAL.
  virtual absl::Status Widen() = 0;

  // Waits until everything is in its place.
  // Errors: FAILED_PRECONDITION (a miss was left without an answer), DEADLINE_EXCEEDED, INTERNAL.
  virtual absl::Status Wait(Deadline deadline) = 0;

  // Positions of query q, duplicates included, by status; they add up to its keys. Complete after
  // Wait, or after the last Finish when no piece asked to probe again.
  virtual LookupCounts counts(size_t query) const = 0;

  // Gives the buffers back when the device is done with them; from here on nothing is written to
  // host memory of the caller, also after an error. Called by DeviceCallLease.
  virtual void Return() = 0;

 protected:
  ~DeviceCall() = default;
};

// Calls come from a pool, so that a lookup allocates nothing.
struct ReturnDeviceCall {
  void operator()(DeviceCall* call) const { call->Return(); }
};
using DeviceCallLease = std::unique_ptr<DeviceCall, ReturnDeviceCall>;

// One table (one incarnation) in a device cache. Destroying it returns its slots, when the device
// is done with them; lookups that name it must have ended. Thread-safe; Update, Erase, Dump and
// RaiseWatermarks are for the table's applier, one at a time.
//
// Writes copy their input before they return and complete in order on the writer stream: until
// Flush they may not show yet. They wait for room in the writer's staging, and RaiseWatermarks and
// Dump for the device, at most until `deadline`; after DEADLINE_EXCEEDED or INTERNAL an applier
// can't know what was done and trips the bypass of the table on this device.
class DeviceCacheTable {
 public:
  virtual ~DeviceCacheTable() = default;

  virtual size_t row_bytes() const = 0;

  // Promotion: inserts keys that are not held; least recently used ones of the slabset give way;
  // held ones are left alone; fenced as LossyTable::Insert. `batch.absent` must be empty. Of
  // duplicates one enters. Returns how many keys the fence refused; what became of the others is
  // known later, see Statistics.
  // Errors: RESOURCE_EXHAUSTED (no room in the writer's staging: the caller drops the keys, of
  // which some may have been taken where they need several steps), INTERNAL.
  virtual absl::StatusOr<uint64_t> Replace(const RowBatch& batch, ApplyEpoch epoch) = 0;

  // Change: overwrites the rows of keys that are held, whatever their version (the applier orders
  // them). Inserts nothing. Of duplicates any one stays: the applier names a key once.
  virtual absl::Status Update(const RowBatch& batch, Deadline deadline) = 0;

  virtual absl::Status Erase(std::span<const Key> keys, Deadline deadline) = 0;

  // The fence, see tier/fence.h. Watermarks live on the host. Returns when the insertions that were
  // let in before are done on the device too, so that none shows up after the change.
  virtual absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                       Deadline deadline) = 0;

  // Copies out keys that are held, at most out.size(), from slab `*cursor` on (0 = the beginning),
  // and moves the cursor; returns how many. 0 = the end. Keys held all the time are dumped exactly
  // once (meanwhile no key moves between the dumped and the other slabs); what comes or goes may or
  // may not be. One dump at a time. REQUIRES: out.size() >= kDumpKeysMin.
  virtual absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline deadline) = 0;
  static constexpr size_t kDumpKeysMin = 64;

  // Removes everything; watermarks stay.
  virtual absl::Status Clear() = 0;

  // Waits until the writes called before are done. Errors: DEADLINE_EXCEEDED, INTERNAL.
  virtual absl::Status Flush(Deadline deadline) = 0;

  // As of the writes that are done.
  virtual LevelStatistics Statistics() const = 0;
};

// Thread-safe. Must outlive its tables and calls.
class DeviceCache {
 public:
  virtual ~DeviceCache() = default;

  virtual int device() const = 0;

  // What a table needs that is to hold `row_count` rows at a fill of 3/4, metadata included, so
  // that next to none is lost. REQUIRES: row_bytes as for OpenTable.
  virtual uint64_t TableBytes(size_t row_bytes, uint64_t row_count) const = 0;

  // `bytes_max` is the table's share of the device's budget, metadata included.
  // Errors: RESOURCE_EXHAUSTED (says how many bytes a useful table needs, or how many of the budget
  // are left), INVALID_ARGUMENT (row bytes of 0 or over kRowBytesMax).
  virtual absl::StatusOr<std::unique_ptr<DeviceCacheTable>> OpenTable(size_t row_bytes,
                                                                      uint64_t bytes_max) = 0;

  // Leases the buffers of one lookup of at most `keys_max` keys.
  // Errors: RESOURCE_EXHAUSTED at once when all are lent, or none is so large.
  virtual absl::StatusOr<DeviceCallLease> AcquireCall(size_t keys_max) = 0;
};

}  // namespace hps
