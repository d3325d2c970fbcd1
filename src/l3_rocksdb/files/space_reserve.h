// Disk space reserved for dropping tables: the file STORE/hps.reserve.
//
// Dropping a table frees space, but needs a little space first: for a record in the WAL and in the
// MANIFEST and, in a command, for opening the store. So the store keeps a file of
// kSpaceReserveBytes. It deletes the file before a drop, and writes it again when there is space.
// The content of the file has no meaning, and a store without the file is intact.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "l3_rocksdb/files/space_guard.h"

namespace hps {

inline constexpr uint64_t kSpaceReserveBytes = uint64_t{1} << 20;

class SpaceReserve {
 public:
  struct EndLoan {
    void operator()(SpaceReserve* reserve) const { reserve->Return(); }
  };
  // The reserve stays deleted while a loan lives.
  using Loan = std::unique_ptr<SpaceReserve, EndLoan>;

  // `env` and `guard` must outlive the reserve.
  SpaceReserve(rocksdb::Env* env, const std::string& store, const SpaceGuard& guard);

  // Writes the file durably, if it is missing and the guard permits it. Does nothing while a loan
  // lives. If the write fails, the store has no reserve.
  void Ensure();
  Loan Lend();

 private:
  void EnsureLocked() HPS_REQUIRES(mutex_);
  void Return();

  rocksdb::Env* const env_;
  const std::string path_;
  const SpaceGuard& guard_;
  Mutex mutex_;
  size_t loan_count_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps
