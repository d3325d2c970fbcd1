#include "dense/key_copy.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace hps {

// The threads that help, asleep between the batches.
class KeyCopyHelpers {
 public:
  // Those of the process. The last user ends them. Null: there is but one core, or no thread can be
  // started.
  static std::shared_ptr<KeyCopyHelpers> Shared() {
    static Mutex mutex;
    static std::weak_ptr<KeyCopyHelpers> shared;
    MutexLock lock(mutex);
    std::shared_ptr<KeyCopyHelpers> helpers = shared.lock();
    if (helpers == nullptr) shared = helpers = Make();
    return helpers;
  }

  ForkJoinLease Acquire() { return teams_.Acquire(); }

 private:
  // More take no more from the host's memory than PCIe does.
  static constexpr size_t kThreadsMax = 3;

  explicit KeyCopyHelpers(std::unique_ptr<WorkerPool> workers)
      : teams_({.executor = workers.get(), .helpers_max = workers->thread_count()}),
        workers_(std::move(workers)) {}

  static std::shared_ptr<KeyCopyHelpers> Make() {
    const size_t cores = std::max(1U, std::thread::hardware_concurrency());
    const size_t threads = std::min(kThreadsMax, cores - 1);
    if (threads == 0) return nullptr;
    auto workers = WorkerPool::Create({.name = "hps-keys", .thread_count = threads});
    if (!workers.ok()) return nullptr;
    return std::shared_ptr<KeyCopyHelpers>(new KeyCopyHelpers(*std::move(workers)));
  }

  ForkJoinPool teams_;
  std::unique_ptr<WorkerPool> workers_;  // ends before the teams that its tasks belong to
};

KeyCopy::KeyCopy()
    : helpers_(KeyCopyHelpers::Shared()),
      team_(helpers_ == nullptr ? nullptr : helpers_->Acquire()) {}

void KeyCopy::Begin(std::span<const KeyPiece> pieces, std::span<std::byte> to) {
  pieces_ = pieces;
  to_ = to;
  piece_ends_.clear();
  size_t end = 0;
  for (const KeyPiece& piece : pieces) piece_ends_.push_back(end += piece.key_count * sizeof(Key));
  part_count_ = (to.size() + kPartBytes - 1) / kPartBytes;
  returned_count_ = next_part_ = 0;
  if (part_count_ > parts_max_) {
    is_copied_ = std::make_unique<std::atomic<bool>[]>(part_count_);
    parts_max_ = part_count_;
  }
  for (size_t i = 0; i < part_count_; ++i) is_copied_[i].store(false, std::memory_order_relaxed);
  is_helped_ = team_ != nullptr && to.size() > kAloneBytesMax;
  if (!is_helped_) return;
  team_->Open(*this);
  team_->Publish(part_count_);
  team_->Call(team_->helpers_max());
}

// Bytes that follow those it has returned before; empty when it has returned all.
std::span<const std::byte> KeyCopy::Next() {
  for (;;) {
    size_t end = returned_count_;
    while (end < part_count_ && is_copied_[end].load(std::memory_order_acquire)) ++end;
    if (end > returned_count_) {
      const size_t from = std::exchange(returned_count_, end) * kPartBytes;
      return to_.subspan(from, std::min(end * kPartBytes, to_.size()) - from);
    }
    const bool is_done = returned_count_ == part_count_;
    if (!is_done && CopyOne()) continue;
    if (is_helped_) team_->Close();  // waits for the parts that helpers are at
    if (is_done) return {};
  }
}

bool KeyCopy::CopyOne() {
  if (is_helped_) return team_->RunOne();
  RunPiece(next_part_++);
  return true;
}

void KeyCopy::RunPiece(size_t part) {
  const size_t end = std::min((part + 1) * kPartBytes, to_.size());
  size_t at = part * kPartBytes;
  auto piece_end = std::upper_bound(piece_ends_.begin(), piece_ends_.end(), at);
  while (at < end) {
    const KeyPiece& piece = pieces_[static_cast<size_t>(piece_end - piece_ends_.begin())];
    const size_t piece_begin = *piece_end - piece.key_count * sizeof(Key);
    const size_t bytes = std::min(end, *piece_end) - at;
    if (bytes > 0) std::memcpy(to_.data() + at, piece.keys + (at - piece_begin), bytes);
    at += bytes;
    ++piece_end;
  }
  is_copied_[part].store(true, std::memory_order_release);
}

}  // namespace hps
