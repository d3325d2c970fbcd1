#include "l2_memory/reader_pool.h"

#include "base/macros.h"

namespace hps {
namespace {

// Where this thread begins its search: threads begin at different places and therefore seldom
// collide.
size_t ThreadNumber() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

ReaderPool::ReaderPool(EpochDomain& domain, size_t readers_max)
    : domain_(domain), readers_max_(readers_max), places_(new Place[readers_max]) {}

ReaderPool::Lease ReaderPool::Acquire() {
  const size_t start = ThreadNumber() % readers_max_;
  for (size_t i = 0; i < readers_max_; ++i) {
    Place& place = places_[(start + i) % readers_max_];
    if (place.leased.load(std::memory_order_relaxed)) continue;
    if (place.leased.exchange(true, std::memory_order_acquire)) continue;
    if (!place.added) {
      auto reader = domain_.AddReader();
      HPS_CHECK(reader.ok());
      place.reader = *std::move(reader);
      place.added = true;
    }
    return Lease(&place);
  }
  return nullptr;
}

size_t ReaderPool::Keep(Lease lease) {
  return static_cast<size_t>(lease.release() - places_.get());
}

ReaderPool::Lease ReaderPool::Resume(size_t number) { return Lease(&places_[number]); }

}  // namespace hps
