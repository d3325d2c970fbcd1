#include "base/fork_join_team.h"

#include <algorithm>

#include "base/macros.h"
#include "base/spin.h"

namespace hps {
namespace {

// Close spins for the helpers at most this long, and then blocks. A piece takes 10 to 20 us: a
// helper that needs longer has lost its core, and the caller then gives up its own core.
constexpr Duration kCloseSpin = std::chrono::microseconds(50);

// The caller posts this many helpers, and so does each helper when it runs. Waking a thread costs
// the waker 7 us on a virtual machine. This way fifteen helpers are awake after four wake-ups in a
// row, not after fifteen.
constexpr size_t kWokenByEach = 2;

}  // namespace

ForkJoinTeam::ForkJoinTeam(ForkJoinPool& pool)
    : pool_(pool),
      helpers_max_(pool.options_.helpers_max),
      helpers_(new Helper[pool.options_.helpers_max]) {
  for (size_t i = 0; i < helpers_max_; ++i) helpers_[i].team = this;
}

void ForkJoinTeam::Call(size_t helper_count) {
  if (helper_count == 0) return;
  called_.store(true, std::memory_order_seq_cst);
  wanted_.count.store(std::min(helper_count, helpers_max_), std::memory_order_relaxed);
  wanted_.next.store(0, std::memory_order_seq_cst);
  Wake(kWokenByEach);
}

void ForkJoinTeam::Wake(size_t helper_count) {
  while (helper_count > 0 && called_.load(std::memory_order_relaxed)) {
    const size_t next = wanted_.next.fetch_add(1, std::memory_order_relaxed);
    if (next >= wanted_.count.load(std::memory_order_relaxed)) return;
    Helper& helper = helpers_[next];
    if (helper.busy.load(std::memory_order_relaxed) ||
        helper.busy.exchange(true, std::memory_order_acquire)) {
      continue;
    }
    wanted_.queued_count.fetch_add(1, std::memory_order_relaxed);
    if (!pool_.options_.executor->Post(&helper).ok()) {
      wanted_.queued_count.fetch_sub(1, std::memory_order_relaxed);
      helper.busy.store(false, std::memory_order_release);
      return;  // the workers have more to do than they can
    }
    --helper_count;
  }
}

void ForkJoinTeam::Open(Work& work) {
  HPS_CHECK(work_.load(std::memory_order_relaxed) == nullptr);
  const TimePoint now = RealClock().Now();
  // If this call came soon after the last one, the next call is expected to come soon.
  const bool lingers = now - closed_at_ <= pool_.options_.spin;
  if (lingers_.load(std::memory_order_relaxed) != lingers)
    lingers_.store(lingers, std::memory_order_relaxed);
  piece_count_.store(0, std::memory_order_relaxed);
  next_piece_.store(0, std::memory_order_relaxed);
  work_.store(&work, std::memory_order_seq_cst);
}

void ForkJoinTeam::Publish(size_t piece_count) {
  piece_count_.store(piece_count, std::memory_order_release);
}

bool ForkJoinTeam::RunOneOf(Work& work) {
  size_t piece = next_piece_.load(std::memory_order_relaxed);
  do {
    if (piece >= piece_count_.load(std::memory_order_acquire)) return false;
  } while (!next_piece_.compare_exchange_weak(piece, piece + 1, std::memory_order_relaxed));
  work.RunPiece(piece);
  return true;
}

// Waits for the helpers that entered before the work was taken away. A helper that enters later
// sees no work: a helper writes inside_count_ and then reads work_, Close writes work_ and then
// reads inside_count_, and all of these accesses are sequentially consistent.
void ForkJoinTeam::Close() {
  called_.store(false, std::memory_order_seq_cst);
  if (is_open()) closed_at_ = RealClock().Now();
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

void ForkJoinTeam::Helper::Run() {
  team->wanted_.queued_count.fetch_sub(1, std::memory_order_relaxed);
  team->Wake(kWokenByEach);
  team->Help();
  busy.store(false, std::memory_order_release);
}

void ForkJoinTeam::Help() {
  while (AwaitWork() && TakePieces()) {
  }
}

bool ForkJoinTeam::IsKeepingOthersWaiting() const {
  return pool_.options_.executor->queued_count() >
         wanted_.queued_count.load(std::memory_order_relaxed);
}

bool ForkJoinTeam::AwaitWork() {
  SpinLimit limit(pool_.options_.spin);
  while (work_.load(std::memory_order_seq_cst) == nullptr) {
    const bool wanted =
        called_.load(std::memory_order_seq_cst) || lingers_.load(std::memory_order_relaxed);
    if (!wanted || IsKeepingOthersWaiting() || !limit.Spin()) return false;
  }
  return true;
}

bool ForkJoinTeam::TakePieces() {
  bool stays = true;
  inside_count_.fetch_add(1, std::memory_order_seq_cst);
  Work* const open = work_.load(std::memory_order_seq_cst);
  const auto is_open = [&] { return work_.load(std::memory_order_relaxed) == open; };
  while (open != nullptr && stays && is_open()) {
    if (RunOneOf(*open)) continue;
    SpinLimit limit(pool_.options_.spin);
    while (stays && is_open() &&
           next_piece_.load(std::memory_order_relaxed) >=
               piece_count_.load(std::memory_order_relaxed)) {
      stays = !IsKeepingOthersWaiting() && limit.Spin();
    }
  }
  if (inside_count_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
      closing_.load(std::memory_order_seq_cst)) {
    MutexLock lock(mutex_);
    left_.NotifyAll();
  }
  return stays;
}

void ReturnForkJoinTeam::operator()(ForkJoinTeam* team) const {
  HPS_CHECK(team->work_.load(std::memory_order_relaxed) == nullptr);
  team->pool_.Return(team);
}

ForkJoinLease ForkJoinPool::Acquire() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    free_.reserve(teams_.size() + 1);
    teams_.push_back(std::unique_ptr<ForkJoinTeam>(new ForkJoinTeam(*this)));
    free_.push_back(teams_.back().get());
  }
  ForkJoinTeam* const team = free_.back();
  free_.pop_back();
  return ForkJoinLease(team);
}

void ForkJoinPool::Return(ForkJoinTeam* team) {
  MutexLock lock(mutex_);
  free_.push_back(team);
}

}  // namespace hps
