// A number of bytes that several share: of one device cache its tables, of one device the rows of
// predictions.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/mutex.h"

namespace hps {

class ByteBudget {
 public:
  // A number of bytes taken from the budget until the lease is destroyed. An empty lease holds
  // nothing. The budget must outlive its leases.
  class Lease {
   public:
    Lease() = default;
    // Removes the bytes from the budget permanently, for memory that can't be freed.
    void Leak() {
      if (ByteBudget* const budget = budget_.release()) budget->Leak(budget_.get_deleter().bytes);
    }

   private:
    friend class ByteBudget;
    struct GiveBack {
      uint64_t bytes;
      void operator()(ByteBudget* budget) const { budget->Return(bytes); }
    };
    Lease(ByteBudget* budget, uint64_t bytes) : budget_(budget, {bytes}) {}

    std::unique_ptr<ByteBudget, GiveBack> budget_;
  };

  // `name` is what errors begin with: "gpu cache".
  ByteBudget(std::string name, uint64_t bytes_max)
      : name_(std::move(name)), bytes_max_(bytes_max) {}
  // REQUIRES: nothing is lent.
  ~ByteBudget() {
    MutexLock lock(mutex_);
    HPS_CHECK(bytes_lent_ == 0);  // as a table that outlives its cache
  }
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // Lends `bytes`. Errors: RESOURCE_EXHAUSTED (says how many are left); nothing is lent
  // then.
  absl::StatusOr<Lease> Lend(uint64_t bytes) {
    MutexLock lock(mutex_);
    if (bytes > bytes_max_ - bytes_lent_) {
      return absl::ResourceExhaustedError(absl::StrCat(name_, ": no room for ", bytes,
                                                       " bytes: ", bytes_max_ - bytes_lent_, " of ",
                                                       bytes_max_, " bytes are left"));
    }
    bytes_lent_ += bytes;
    return Lease(this, bytes);
  }

  uint64_t bytes_left() const {
    MutexLock lock(mutex_);
    return bytes_max_ - bytes_lent_;
  }

  // Raises the budget to `bytes_max` where it is less.
  void GrowTo(uint64_t bytes_max) {
    MutexLock lock(mutex_);
    bytes_max_ = std::max(bytes_max_, bytes_max);
  }

 private:
  void Return(uint64_t bytes) {
    MutexLock lock(mutex_);
    bytes_lent_ -= bytes;
  }

  void Leak(uint64_t bytes) {
    MutexLock lock(mutex_);
    bytes_lent_ -= bytes;
    bytes_max_ -= bytes;
  }

  const std::string name_;
  mutable Mutex mutex_;
  uint64_t bytes_max_ HPS_GUARDED_BY(mutex_);  // without leaked bytes
  uint64_t bytes_lent_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps
