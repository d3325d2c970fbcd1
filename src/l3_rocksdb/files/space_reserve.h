// Room on the disk that is kept for dropping tables: STORE/hps.reserve.
//
// A full disk takes no record, and to drop a table takes some: in the log, in the MANIFEST, and,
// for a command, what opening the store writes. Yet dropping tables is how a store makes room. So
// the store keeps a file of kSpaceReserveBytes that is removed first and written again when there
// is room. It is as good as free: what is in it means nothing, and a store without it is whole.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/mutex.h"
#include "l3_rocksdb/files/space_guard.h"

namespace hps {

inline constexpr uint64_t kSpaceReserveBytes = uint64_t{1} << 20;

class SpaceReserve {
 public:
  // The disk has the reserve's room while it lives. Movable.
  class Loan;

  // `env` and `guard` must outlive the reserve.
  SpaceReserve(rocksdb::Env* env, const std::string& store, const SpaceGuard& guard);

  // Writes the file, durably, where it is missing and the guard has room for it; else, and where
  // writing fails, there is none. Not while any of it is lent.
  void Keep();
  Loan Lend();

 private:
  void KeepLocked() HPS_REQUIRES(mutex_);
  void Return();

  rocksdb::Env* const env_;
  const std::string path_;
  const SpaceGuard& guard_;
  Mutex mutex_;
  size_t loan_count_ HPS_GUARDED_BY(mutex_) = 0;
};

class SpaceReserve::Loan {
 public:
  Loan() = default;
  Loan(Loan&& other) noexcept : reserve_(other.reserve_) { other.reserve_ = nullptr; }
  Loan& operator=(Loan&& other) noexcept {
    if (this == &other) return *this;
    Return();
    reserve_ = other.reserve_;
    other.reserve_ = nullptr;
    return *this;
  }
  ~Loan() { Return(); }

 private:
  friend class SpaceReserve;
  explicit Loan(SpaceReserve* reserve) : reserve_(reserve) {}
  void Return() {
    if (reserve_ != nullptr) reserve_->Return();
    reserve_ = nullptr;
  }

  SpaceReserve* reserve_ = nullptr;
};

}  // namespace hps
