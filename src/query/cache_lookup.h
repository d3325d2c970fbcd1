// A call's two phases at a device cache: probe all tables at once, and later send the rows of the
// misses to their places.
//
// Belongs to one session; for one thread. Keeps its buffers from call to call; they grow to the
// largest call's size.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "query/query_work.h"
#include "tier/device_cache.h"

namespace hps {

class CacheLookup {
 public:
  CacheLookup(DeviceCache& cache, size_t cache_index) : cache_(cache), cache_index_(cache_index) {}

  // Probes the tables of all works and makes their miss lists, staged. The hits are on their way
  // to the caller's rows.
  // Errors: those of DeviceCache::AcquireCall, DeviceCall::Begin and Misses; the call is over then.
  absl::Status Probe(std::span<QueryWork> works, MemorySpace space, Stream stream, MissArena& arena,
                     Deadline deadline);

  // Sends the staged answers of all works to their positions and takes the counts. On the host, and
  // where a change of a table has begun meanwhile, it waits until they are there.
  // Errors: those of DeviceCall::Finish and Wait; the call is over then.
  absl::Status Finish(std::span<QueryWork> works, MemorySpace space, Deadline deadline);

 private:
  void MakeQueries(std::span<QueryWork> works, MemorySpace space);
  void Stage(std::span<QueryWork> works, const DeviceMisses& misses, MissArena& arena);
  void ProlongBypasses(std::span<QueryWork> works);
  void ConvertRows(std::span<QueryWork> works);

  DeviceCache& cache_;
  const size_t cache_index_;
  DeviceCallLease call_;  // null but between Probe and Finish
  std::vector<DeviceCacheQuery> queries_;
  std::vector<DeviceRowPiece> pieces_;
  std::vector<KeyStatus> statuses_;
  std::vector<std::byte> staged_rows_;  // where the device has no staging to lend
  std::vector<std::byte> native_rows_;  // hits that wait for conversion
};

}  // namespace hps
