#include "query/crew.h"

#include <algorithm>

#include "base/macros.h"
#include "base/spin.h"

namespace hps {
namespace {

// A piece takes 10 to 20 us; a helper that has not finished its last one after this has lost its
// core, and then the caller gives up its own.
constexpr Duration kCloseSpin = std::chrono::microseconds(50);

}  // namespace

Crew::Crew(CrewPool& pool)
    : pool_(pool),
      helpers_max_(pool.options_.helpers_max),
      helpers_(new Helper[pool.options_.helpers_max]) {
  for (size_t i = 0; i < helpers_max_; ++i) helpers_[i].crew = this;
}

void Crew::Call(size_t helper_count) {
  if (helper_count == 0) return;
  called_.store(true, std::memory_order_seq_cst);
  for (size_t i = 0; i < std::min(helper_count, helpers_max_); ++i) {
    Helper& helper = helpers_[i];
    if (helper.busy.exchange(true, std::memory_order_acquire)) continue;
    if (pool_.options_.executor->Post(&helper).ok()) continue;
    helper.busy.store(false, std::memory_order_release);
    return;  // the workers have more to do than they can
  }
}

void Crew::Open(Work& work, size_t piece_count) {
  HPS_CHECK(work_.load(std::memory_order_relaxed) == nullptr);
  piece_count_.store(piece_count, std::memory_order_relaxed);
  next_piece_.store(0, std::memory_order_relaxed);
  work_.store(&work, std::memory_order_seq_cst);
}

bool Crew::DoOneOf(Work& work) {
  const size_t piece = next_piece_.fetch_add(1, std::memory_order_relaxed);
  if (piece >= piece_count_.load(std::memory_order_relaxed)) return false;
  work.DoPiece(piece);
  return true;
}

// Who has entered before the work is taken away is waited for; who enters later sees no work:
// both sides write, then read, all of it sequentially consistent.
void Crew::Close() {
  called_.store(false, std::memory_order_seq_cst);
  work_.store(nullptr, std::memory_order_seq_cst);
  SpinLimit limit(kCloseSpin);
  while (inside_count_.load(std::memory_order_seq_cst) != 0 && limit.Spin()) {
  }
  if (inside_count_.load(std::memory_order_seq_cst) == 0) return;
  MutexLock lock(mutex_);
  closing_.store(true, std::memory_order_seq_cst);
  while (inside_count_.load(std::memory_order_seq_cst) != 0) left_.Wait(mutex_);
  closing_.store(false, std::memory_order_seq_cst);
}

void Crew::Help() {
  SpinLimit limit(pool_.options_.spin);
  while (work_.load(std::memory_order_seq_cst) == nullptr) {
    if (!called_.load(std::memory_order_seq_cst) || !limit.Spin()) return;
  }
  inside_count_.fetch_add(1, std::memory_order_seq_cst);
  if (Work* const open = work_.load(std::memory_order_seq_cst)) {
    while (DoOneOf(*open)) {
    }
  }
  if (inside_count_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  if (!closing_.load(std::memory_order_seq_cst)) return;
  MutexLock lock(mutex_);
  left_.NotifyAll();
}

void ReturnCrew::operator()(Crew* crew) const {
  HPS_CHECK(crew->work_.load(std::memory_order_relaxed) == nullptr);
  crew->pool_.Return(crew);
}

CrewLease CrewPool::Acquire() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    free_.reserve(crews_.size() + 1);
    crews_.push_back(std::unique_ptr<Crew>(new Crew(*this)));
    free_.push_back(crews_.back().get());
  }
  Crew* const crew = free_.back();
  free_.pop_back();
  return CrewLease(crew);
}

void CrewPool::Return(Crew* crew) {
  MutexLock lock(mutex_);
  free_.push_back(crew);
}

}  // namespace hps
