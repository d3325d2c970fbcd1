#include "base/epoch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hps {

absl::StatusOr<EpochDomain::Reader> EpochDomain::AddReader() {
  for (size_t i = 0; i < readers_max_; ++i) {
    Place& place = places_[i];
    if (place.taken.load(std::memory_order_relaxed)) continue;
    if (place.taken.exchange(true, std::memory_order_acq_rel)) continue;
    size_t used = places_used_.load(std::memory_order_seq_cst);
    while (used < i + 1 && !places_used_.compare_exchange_weak(used, i + 1)) {
    }
    return Reader(this, &place);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("epoch domain: more than ", readers_max_, " readers"));
}

uint64_t EpochDomain::SafeEpoch() const {
  uint64_t safe = epoch_.load(std::memory_order_seq_cst);
  const size_t used = places_used_.load(std::memory_order_seq_cst);
  for (size_t i = 0; i < used; ++i) {
    const uint64_t entered = places_[i].entered.load(std::memory_order_seq_cst);
    if (entered != 0) safe = std::min(safe, entered);
  }
  return safe;
}

void EpochDomain::AddWaiter(Waiter* waiter) {
  MutexLock lock(waiters_mutex_);
  waiters_.push_back(waiter);
}

void EpochDomain::RemoveWaiter(Waiter* waiter) {
  MutexLock lock(waiters_mutex_);
  std::erase(waiters_, waiter);
}

void EpochDomain::TellWaiters() {
  MutexLock lock(waiters_mutex_);
  for (Waiter* waiter : waiters_) waiter->OnGuardEnded();
}

EpochDomain::Reader& EpochDomain::Reader::operator=(Reader&& other) noexcept {
  if (this != &other) {
    Release();
    domain_ = other.domain_;
    place_ = other.place_;
    other.domain_ = nullptr;
    other.place_ = nullptr;
  }
  return *this;
}

void EpochDomain::Reader::Release() {
  if (place_ == nullptr) return;
  HPS_CHECK(!entered());
  place_->taken.store(false, std::memory_order_release);
  place_ = nullptr;
}

}  // namespace hps
