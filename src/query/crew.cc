#include "query/crew.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/macros.h"
#include "base/mutex.h"
#include "base/spin.h"

namespace hps {
namespace {

// A piece takes 10 to 20 us; a helper that has not finished its last one after this has lost its
// core, and then the caller gives up its own.
constexpr Duration kCloseSpin = std::chrono::microseconds(50);

}  // namespace

class Crew::State {
 public:
  State(size_t helper_count, Duration spin) : spin_(spin), helpers_(new Helper[helper_count]) {}

  // `self` owns this: a helper that is posted keeps it alive.
  void Call(const std::shared_ptr<State>& self, size_t helper_count, Executor& executor) {
    called_.store(true, std::memory_order_seq_cst);
    for (size_t i = 0; i < helper_count; ++i) {
      Helper& helper = helpers_[i];
      if (helper.busy.exchange(true, std::memory_order_acquire)) continue;
      helper.state = self;
      if (executor.Post(&helper).ok()) continue;
      helper.state.reset();
      helper.busy.store(false, std::memory_order_release);
      return;  // the workers have more to do than they can
    }
  }

  void Open(Work& work, size_t piece_count) {
    HPS_CHECK(work_.load(std::memory_order_relaxed) == nullptr);
    piece_count_.store(piece_count, std::memory_order_relaxed);
    next_piece_.store(0, std::memory_order_relaxed);
    work_.store(&work, std::memory_order_seq_cst);
  }

  bool DoOne(Work& work) {
    const size_t piece = next_piece_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= piece_count_.load(std::memory_order_relaxed)) return false;
    work.DoPiece(piece);
    return true;
  }

  Work* work() const { return work_.load(std::memory_order_seq_cst); }

  // Who has entered before the work is taken away is waited for; who enters later sees no work:
  // both sides write, then read, all of it sequentially consistent.
  void Close() {
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

 private:
  struct alignas(64) Helper final : public Task {
    void Run() override {
      // The last thing that is done with the state: it may be this helper's to free.
      const std::shared_ptr<State> kept = std::move(state);
      kept->Help();
      busy.store(false, std::memory_order_release);
    }

    std::atomic<bool> busy{false};  // posted, or running
    std::shared_ptr<State> state;   // while posted
  };

  void Help() {
    SpinLimit limit(spin_);
    while (work() == nullptr) {
      if (!called_.load(std::memory_order_seq_cst) || !limit.Spin()) return;
    }
    inside_count_.fetch_add(1, std::memory_order_seq_cst);
    if (Work* const open = work()) {
      while (DoOne(*open)) {
      }
    }
    if (inside_count_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
    if (!closing_.load(std::memory_order_seq_cst)) return;
    MutexLock lock(mutex_);
    left_.NotifyAll();
  }

  const Duration spin_;
  const std::unique_ptr<Helper[]> helpers_;
  // Written by everyone who takes a piece.
  alignas(64) std::atomic<size_t> next_piece_{0};
  alignas(64) std::atomic<Work*> work_{nullptr};
  std::atomic<size_t> piece_count_{0};
  std::atomic<bool> called_{false};
  std::atomic<size_t> inside_count_{0};
  std::atomic<bool> closing_{false};
  Mutex mutex_;
  CondVar left_;
};

Crew::Crew(const Options& options)
    : options_(options), state_(std::make_shared<State>(options.helpers_max, options.spin)) {}

Crew::~Crew() { HPS_CHECK(state_->work() == nullptr); }

void Crew::Call(size_t helper_count) {
  if (helper_count == 0) return;
  state_->Call(state_, std::min(helper_count, options_.helpers_max), *options_.executor);
}

void Crew::Open(Work& work, size_t piece_count) { state_->Open(work, piece_count); }

bool Crew::DoOne() { return state_->DoOne(*state_->work()); }

void Crew::Close() { state_->Close(); }

}  // namespace hps
