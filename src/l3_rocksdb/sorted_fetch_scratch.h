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
  class Lease {
   public:
    explicit Lease(FetchScratchPool& pool) : pool_(pool), scratch_(pool.Take()) {}
    ~Lease() { pool_.Return(std::move(scratch_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    // False if there was no memory for a buffer.
    explicit operator bool() const { return scratch_ != nullptr; }
    FetchScratch& operator*() const { return *scratch_; }

   private:
    FetchScratchPool& pool_;
    std::unique_ptr<FetchScratch> scratch_;
  };

  FetchScratchPool() {
    MutexLock lock(mutex_);
    free_.reserve(kFetchScratchesMax);
  }

 private:
  std::unique_ptr<FetchScratch> Take() {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<FetchScratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::unique_ptr<FetchScratch>(new (std::nothrow) FetchScratch);
  }
  void Return(std::unique_ptr<FetchScratch> scratch) {
    MutexLock lock(mutex_);
    if (scratch != nullptr && free_.size() < kFetchScratchesMax)
      free_.push_back(std::move(scratch));
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<FetchScratch>> free_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
