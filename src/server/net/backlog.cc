#include "server/net/backlog.h"

#include <algorithm>
#include <utility>

namespace hps::server {
namespace {

// What the oldest can save up of their share, so that they do not get a long time at once.
constexpr Duration kOldestMax = std::chrono::microseconds(500);
// What a turn that takes long, because it looks up for others too, takes of a share at most.
constexpr Duration kDebtMax = std::chrono::milliseconds(10);

}  // namespace

void Backlog::List::Push(Entry& entry) {
  Entry* before = last_;
  for (int i = 0; i < kStepsMax && before != nullptr && before->since > entry.since; ++i)
    before = before->previous;
  Entry* const after = before == nullptr ? first_ : before->next;
  entry.next = after;
  entry.previous = before;
  (before == nullptr ? first_ : before->next) = &entry;
  (after == nullptr ? last_ : after->previous) = &entry;
}

void Backlog::List::Remove(Entry& entry) {
  (entry.previous == nullptr ? first_ : entry.previous->next) = entry.next;
  (entry.next == nullptr ? last_ : entry.next->previous) = entry.previous;
  entry.next = entry.previous = nullptr;
}

void Backlog::Push(Entry& entry, Kind kind, TimePoint since) {
  MutexLock lock(mutex_);
  if (entry.waits && (kind != Kind::kInProgress || entry.kind == Kind::kInProgress)) return;
  if (entry.waits) {
    ListOf(entry.kind).Remove(entry);
  } else {
    entry.waits = true;
    entry.since = since;
    if (size_.fetch_add(1) == 0) {
      overloaded_.store(false, std::memory_order_relaxed);
      oldest_ns_ = begun_ns_ = 0;
    }
  }
  entry.kind = kind;
  ListOf(kind).Push(entry);
  if (kind == Kind::kInProgress) WakeOne();
}

bool Backlog::Remove(Entry& entry) {
  MutexLock lock(mutex_);
  const bool waited = entry.waits;
  if (waited) TakeOut(entry);
  return waited;
}

Backlog::List& Backlog::ListOf(Kind kind) {
  if (kind == Kind::kInProgress) return begun_;
  return kind == Kind::kFirst ? first_ : later_;
}

void Backlog::TakeOut(Entry& entry) {
  entry.waits = false;
  ListOf(entry.kind).Remove(entry);
  size_.fetch_sub(1);
}

Backlog::Entry* Backlog::Oldest() const {
  Entry* const first = first_.oldest();
  Entry* const later = later_.oldest();
  if (first == nullptr || later == nullptr) return first == nullptr ? later : first;
  return first->since <= later->since ? first : later;
}

// First requests and others in turns.
Backlog::Entry* Backlog::PickReserved() {
  first_had_turn_ = !first_had_turn_;
  Entry* const wanted = (first_had_turn_ ? first_ : later_).oldest();
  return wanted != nullptr ? wanted : Oldest();
}

Backlog::Entry* Backlog::Newest() const {
  Entry* const first = first_.newest();
  Entry* const later = later_.newest();
  if (first == nullptr || later == nullptr) return first == nullptr ? later : first;
  return first->since > later->since ? first : later;
}

Backlog::Turn Backlog::Take(bool has_room) {
  MutexLock lock(mutex_);
  Entry* const begun = begun_.oldest();
  Turn turn;
  if (begun == nullptr || begun_ns_ > 0) turn = Choose(has_room);
  if (turn.entry == nullptr) turn = {.entry = begun};
  return TakeOut(turn);
}

Backlog::Turn Backlog::TakeBegun() {
  MutexLock lock(mutex_);
  return TakeOut({.entry = begun_.oldest()});
}

Backlog::Turn Backlog::TakeOut(Turn turn) {
  if (turn.entry == nullptr) return turn;
  turn.since = turn.entry->since;
  turn.kind = turn.entry->kind;
  TakeOut(*turn.entry);
  return turn;
}

// Of those that begin.
Backlog::Turn Backlog::Choose(bool has_room) {
  Turn turn{.refusals_before = refusals_.load(std::memory_order_relaxed)};
  const bool is_overloaded = overloaded_.load(std::memory_order_relaxed);
  if (has_room && !is_overloaded) {
    turn.entry = Oldest();
    turn.is_oldest = true;
  } else if (oldest_ns_ > 0 || std::exchange(has_waited_, false)) {
    turn.entry = PickReserved();
    turn.is_oldest = turn.entry == Oldest();
    turn.is_beside = true;
  } else if (has_room) {
    turn.entry = Newest();
  }
  return turn;
}

void Backlog::End(const Turn& turn, Duration processor_time, bool had_request) {
  MutexLock lock(mutex_);
  const int64_t taken_ns = processor_time.count();
  begun_ns_ =
      std::clamp<int64_t>(begun_ns_ + (turn.kind == Kind::kInProgress ? taken_ns : -taken_ns), 0,
                          Duration(kDebtMax).count());
  if (turn.is_beside) {
    oldest_ns_ = std::max<int64_t>(oldest_ns_ - taken_ns, -Duration(kDebtMax).count());
  } else {
    oldest_ns_ =
        std::min<int64_t>(oldest_ns_ + taken_ns / kOldestShare, Duration(kOldestMax).count());
  }
  const bool was_in_time = had_request && turn.is_oldest &&
                           refusals_.load(std::memory_order_relaxed) == turn.refusals_before;
  if (was_in_time) overloaded_.store(false, std::memory_order_relaxed);
}

void Backlog::Await(Deadline until) {
  MutexLock lock(mutex_);
  awaiting_.fetch_add(1, std::memory_order_relaxed);
  woken_.WaitUntil(mutex_, until);
  awaiting_.fetch_sub(1, std::memory_order_relaxed);
  has_waited_ = true;
}

void Backlog::WakeOne() {
  if (awaiting_.load(std::memory_order_relaxed) > 0) woken_.NotifyOne();
}

}  // namespace hps::server
