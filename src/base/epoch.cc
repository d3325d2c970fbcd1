#include "base/epoch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hps {

EpochDomain::EpochDomain(size_t readers_max)
    : readers_max_(readers_max),
      block_count_((readers_max + kBlockPlaces - 1) / kBlockPlaces),
      blocks_(std::make_unique<std::atomic<Place*>[]>(block_count_)) {
  MutexLock lock(readers_mutex_);
  if (block_count_ > 0) AddBlock(0);
}

void EpochDomain::AddBlock(size_t block) {
  block_memory_.push_back(std::make_unique<Place[]>(PlacesOfBlock(block)));
  blocks_[block].store(block_memory_.back().get(), std::memory_order_release);
}

size_t EpochDomain::PlacesOfBlock(size_t block) const {
  return std::min(kBlockPlaces, readers_max_ - block * kBlockPlaces);
}

size_t EpochDomain::bytes() const {
  size_t places = 0;
  for (size_t i = 0; i < block_count_; ++i) {
    if (blocks_[i].load(std::memory_order_acquire) != nullptr) places += PlacesOfBlock(i);
  }
  return places * sizeof(Place);
}

absl::StatusOr<EpochDomain::Reader> EpochDomain::AddReader() {
  MutexLock lock(readers_mutex_);
  if (!free_.empty()) {
    Place* const place = free_.back();
    free_.pop_back();
    return Reader(this, place);
  }
  const size_t index = places_used_.load(std::memory_order_relaxed);
  if (index == readers_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("epoch domain: more than ", readers_max_, " readers"));
  }
  if (index / kBlockPlaces == block_memory_.size()) AddBlock(index / kBlockPlaces);
  places_used_.store(index + 1, std::memory_order_seq_cst);
  return Reader(this, &place(index));
}

uint64_t EpochDomain::SafeEpoch() const {
  uint64_t safe = epoch_.load(std::memory_order_seq_cst);
  const size_t used = places_used_.load(std::memory_order_seq_cst);
  for (size_t i = 0; i < used; ++i) {
    const uint64_t entered = place(i).entered.load(std::memory_order_seq_cst);
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

void EpochDomain::Reader::ReturnPlace::operator()(Place* place) const {
  HPS_CHECK(place->entered.load(std::memory_order_relaxed) == 0);
  MutexLock lock(domain->readers_mutex_);
  domain->free_.push_back(place);
}

}  // namespace hps
