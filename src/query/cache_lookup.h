// A call's two phases at a device cache: probe all tables at once, and later send the rows of the
// misses to their places, piece by piece as they come.
//
// Belongs to one session; for one thread. Allocates when it is made, and when a call needs more
// room for rows than any call before: room for hits that wait for conversion, and for misses for
// which the device lends no staging. After a std::bad_alloc the call has to be abandoned.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "query/call_room.h"
#include "query/direct_reads.h"
#include "query/miss_route.h"
#include "query/table_lookup.h"
#include "tier/device_cache.h"

namespace hps {

class CacheLookup {
 public:
  // For calls of at most `keys_max` keys.
  CacheLookup(DeviceCache& cache, size_t keys_max);

  // What the device lends for a piece of a lookup: its call, or the one for a piece that is begun
  // before the last one has given its call back.
  enum class CallUse { kLookup, kPieceAhead };

  // Begins the probe of all queries; the device writes the hits to the caller's rows. If `route`
  // lets it, the device also answers misses from a level 2 that it can read. TakeMisses must then
  // follow without a wait for something else, because level 2 keeps the slots of old rows until
  // then. Null: the device reads nothing but level 1.
  // Errors: those of DeviceCache::AcquireCall, or AcquireCallAhead, and DeviceCall::Begin.
  absl::Status Begin(std::span<QueryLookup> queries, MemorySpace space, Stream stream,
                     CallUse use = CallUse::kLookup, MissRoute* route = nullptr);

  // Whether a probe has begun whose misses have not been taken.
  bool is_probing() const { return is_probing_; }

  // From Begin to TakeMisses: whether the device reads level 2 for some query.
  bool reads_level2() const { return direct_reads_.are_under_way(); }

  // Of the last Begin.
  CallUse use() const { return use_; }

  // The misses of a query that are known already.
  DeviceMissesSoFar Peek(size_t query) { return call_->Peek(query); }

  // Memory for the rows of further misses of a query, from which the device takes them; without
  // rows when there is too little left.
  HostRows StageAhead(size_t query, size_t row_count) { return call_->Staging(query, row_count); }

  // Has rows of StageAhead copied to the device.
  void CopyAhead(const HostRows& rows) {
    if (rows.row_count > 0 && sent_.ok()) sent_ = call_->CopyAhead(rows);
  }

  // Waits for the probe, stages the queries and makes the tables' miss lists. Of a query that the
  // device has answered from level 2 (QueryLookup::direct), the list has all misses and none
  // pending. Errors: those of DeviceCall::Misses.
  absl::StatusOr<ProbeFigures> TakeMisses(std::span<QueryLookup> queries,
                                          std::span<TableLookup> tables, MissArena& arena,
                                          Deadline deadline);

  // Gives a query a place for the rows of its misses. For one that has none.
  void StageRows(size_t number, QueryLookup& query);

  // Sends answers to the device. Sends nothing once a step has failed; Finish returns the error.
  // Waits for the device at most until the deadline.
  void Send(std::span<const DeviceRowPiece> pieces, Deadline deadline);

  // The first error of Send, so that no lookup waits for rows that can't be sent.
  const absl::Status& sent() const { return sent_; }

  // Sends what QueryLookup::Answer has collected since the last time. Waits for the device at most
  // until the deadline.
  void SendAnswered(std::span<QueryLookup> queries, Deadline deadline);

  // Ends the call and takes the counts. Waits until the rows are there in three cases: the caller
  // needs them on return (they are on the host, or the caller gave no stream to wait for); a piece
  // was probed again, so that the counts are not known before; or the caller `waits`.
  // Errors: those of DeviceCall::Finish and Wait.
  absl::Status Finish(std::span<QueryLookup> queries, Deadline deadline, bool waits);

  // Waits for a probe whose misses have not been taken, if there is one: until it ends, the device
  // may write hits to outputs in its memory.
  void WaitForProbe(Deadline deadline);

  // Ends the call after an error: nothing is written to the caller's host memory any more.
  void Abandon() {
    is_probing_ = false;
    direct_reads_.End();
    call_.reset();
  }

 private:
  void MakeRequests(std::span<QueryLookup> queries, MemorySpace space);
  void Send(std::span<const DeviceRowPiece> pieces);
  void Stage(std::span<QueryLookup> queries, const DeviceMisses& misses);
  static void ListMisses(TableLookup& table, const DeviceMisses& misses, MissArena& arena);
  void AddPieces(size_t number, QueryLookup& query);
  void SendPieces();
  void ConvertRows(std::span<QueryLookup> queries);

  DeviceCache& cache_;
  DeviceCallLease call_;  // null but between Begin and Finish
  CallUse use_ = CallUse::kLookup;
  bool is_probing_ = false;  // from Begin to TakeMisses
  // Whether Finish waits for the rows. Otherwise the caller's stream says when they are there.
  bool awaits_rows_ = true;
  absl::Status sent_;  // the first error of the call's sending
  std::vector<DeviceCacheQuery> requests_;
  std::vector<DeviceRowPiece> pieces_;
  DirectReads direct_reads_;
  const std::unique_ptr<KeyStatus[]> statuses_;  // [keys_max]
  CallRoom native_rows_;                         // hits that wait for conversion
  CallRoom own_rows_;                            // of misses, where the device lends no staging
};

}  // namespace hps
