// The memory that a fetch needs besides the caller's buffers. Leased from a pool, so that the read
// path allocates nothing after warm-up.
#pragma once

#include <rocksdb/slice.h>
#include <rocksdb/status.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/limits.h"
#include "base/mutex.h"
#include "l3_rocksdb/key_codec.h"

namespace hps {

struct FetchScratch {
  std::array<char, kFetchPieceKeysMax * kKeyBytes> key_bytes;
  std::array<rocksdb::Slice, kFetchPieceKeysMax> keys;
  std::array<rocksdb::PinnableSlice, kFetchPieceKeysMax> values;
  std::array<rocksdb::Status, kFetchPieceKeysMax> statuses;
  std::array<uint32_t, kFetchTaskKeysMax> order;  // positions by ascending key
  // Positions in the batch, by ascending key, for which RocksDB is asked, and for which it need not
  // be.
  std::array<uint32_t, kFetchTaskKeysMax> asked;
  std::array<uint32_t, kFetchTaskKeysMax> unchanged;
};

// Thread-safe. Keeps at most kFetchScratchesMax free buffers; frees further ones when they are
// returned.
class FetchScratchPool {
 public:
  struct GiveBack {
    FetchScratchPool* pool = nullptr;
    void operator()(FetchScratch* scratch) const { pool->Return(scratch); }
  };
  using Lease = std::unique_ptr<FetchScratch, GiveBack>;

  FetchScratchPool() {
    MutexLock lock(mutex_);
    free_.reserve(kFetchScratchesMax);
  }

  // Null if there was no memory for a buffer.
  Lease Acquire() {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        FetchScratch* const scratch = free_.back().release();
        free_.pop_back();
        return Lease(scratch, {this});
      }
    }
    return Lease(new (std::nothrow) FetchScratch, {this});
  }

 private:
  void Return(FetchScratch* returned) {
    std::unique_ptr<FetchScratch> scratch(returned);
    MutexLock lock(mutex_);
    if (free_.size() < kFetchScratchesMax) free_.push_back(std::move(scratch));
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<FetchScratch>> free_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
