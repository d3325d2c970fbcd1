#include "update/topic_tracker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "update/update_message.h"

namespace hps {
namespace {

std::string Described(uint32_t partition, uint64_t next, const TopicView::Range& range) {
  return absl::StrCat("partition ", partition, " ends at offset ", range.high,
                      ", before the stored position ", next);
}

bool AllAreKnown(const TopicView& view) {
  return std::ranges::all_of(view.ranges, &TopicView::Range::is_known);
}

}  // namespace

absl::Status TopicTracker::Check(const UpdateSubscription& subscription) {
  if (absl::Status status = ValidateTableName(subscription.table); !status.ok()) return status;
  std::vector<bool> seen(subscription.positions.size(), false);
  for (const StreamPosition& position : subscription.positions) {
    if (position.partition >= seen.size() || seen[position.partition]) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", subscription.table, "': ", seen.size(),
                       " positions must be those of partitions 0 to ", seen.size() - 1,
                       ", each once; found partition ", position.partition));
    }
    seen[position.partition] = true;
  }
  return absl::OkStatus();
}

TopicTracker::TopicTracker(const UpdateSubscription& subscription, Duration missing_min)
    : subscription_(subscription),
      missing_min_(missing_min),
      base_count_(static_cast<uint32_t>(subscription.positions.size())),
      partitions_(subscription.positions.size()) {
  if (base_count_ > 0) generation_ = 0;
  for (const StreamPosition& position : subscription.positions) {
    partitions_[position.partition].next = position.offset;
    generation_ = std::max(generation_, position.generation);
  }
}

std::optional<uint64_t> TopicTracker::question() const {
  return question_ > answered_ ? std::optional(question_) : std::nullopt;
}

bool TopicTracker::IsDraining() const {
  return base_count_ < partitions_.size() || std::ranges::any_of(partitions_, &Partition::is_held);
}

bool TopicTracker::IsDrained(const Partition& partition) const {
  return partition.is_held || (partition.bound.has_value() && partition.next >= *partition.bound);
}

bool TopicTracker::IsWanted(uint32_t partition) const {
  if (state_ != State::kReading || all_are_paused_ || partition >= partitions_.size()) return false;
  if (base_count_ > 0 && partition >= base_count_) return false;
  const Partition& wanted = partitions_[partition];
  if (wanted.is_held || wanted.is_paused || wanted.is_lost) return false;
  return !IsDraining() || !IsDrained(wanted);
}

bool TopicTracker::IsPaused(uint32_t partition) const {
  return all_are_paused_ || (partition < partitions_.size() && partitions_[partition].is_paused);
}

void TopicTracker::Drain() {
  for (Partition& partition : partitions_) partition.bound.reset();
  Ask();
}

void TopicTracker::Learn(const TopicView& view, std::vector<UpdateEvent>* events) {
  if (!view.exists || view.partition_count == 0) return LearnMissing();
  missing_since_.reset();
  const bool answers = question().has_value() && view.question == question_ &&
                       view.ranges.size() == view.partition_count;
  if (state_ == State::kReading && view.partition_count < partitions_.size()) {
    // Partitions are never removed: this is another topic.
    state_ = State::kMissing;
  }
  if (state_ != State::kReading) {
    if (answers) return Begin(view, events);
    if (!question().has_value()) Ask();
    return;
  }
  if (view.partition_count > partitions_.size()) {
    partitions_.resize(view.partition_count);
    false_count_ = 0;
    return Drain();
  }
  if (answers) LearnRanges(view, events);
}

// A broker that has just started, or permissions that change, hide a topic for a moment.
void TopicTracker::LearnMissing() {
  const TimePoint now = RealClock().Now();
  if (!missing_since_.has_value()) missing_since_ = now;
  if (base_count_ > 0 && now - *missing_since_ < missing_min_) return;
  state_ = State::kMissing;
}

void TopicTracker::Begin(const TopicView& view, std::vector<UpdateEvent>* events) {
  answered_ = question_;
  const bool was_missing = state_ == State::kMissing;
  const bool goes_on = base_count_ > 0 && !was_missing && view.partition_count >= base_count_;
  // A partition that is not known yet could have the topic's oldest records.
  if (!goes_on && !AllAreKnown(view)) return Ask();
  state_ = State::kReading;
  if (base_count_ == 0) {
    first_event_ = was_missing ? UpdateEvent::Kind::kTopicAppeared : UpdateEvent::Kind::kStarted;
    BeginAtStart(view);
    return Advance(events);
  }
  if (was_missing) {
    BeginAgain(view, "the topic was missing for a while");
    return Advance(events);
  }
  if (view.partition_count < base_count_) {
    BeginAgain(view, absl::StrCat("the topic has ", view.partition_count, " partitions, before ",
                                  base_count_));
    return Advance(events);
  }
  partitions_.resize(view.partition_count);
  for (uint32_t i = 0; i < base_count_; ++i) partitions_[i].is_lost = true;
  LearnRanges(view, events);
}

void TopicTracker::BeginAtStart(const TopicView& view) {
  const bool is_new = first_event_ != UpdateEvent::Kind::kStarted;
  partitions_.resize(view.partition_count);
  false_count_ = 0;
  lost_at_start_ = 0;
  for (uint32_t i = 0; i < view.partition_count; ++i) {
    const TopicView::Range& range = view.ranges[i];
    uint64_t next = range.low;
    if (!is_new && subscription_.start.kind == UpdateStart::Kind::kEnd) next = range.high;
    // Whether or not the topic is new: for a topic that has just been created this is its
    // beginning.
    if (subscription_.start.kind == UpdateStart::Kind::kTime) {
      next = std::clamp(range.start, range.low, range.high);
    }
    partitions_[i] = {.next = next, .is_paused = partitions_[i].is_paused, .bound = range.high};
    CountLossAtStart(i, range);
  }
}

// Records of a whole topic begin at offset 0, so those before `low` are lost. A start by time has
// lost records if the oldest one that is left is younger; how many is not known: at least one.
void TopicTracker::CountLossAtStart(uint32_t partition, const TopicView::Range& range) {
  if (range.low == 0 || partitions_[partition].next != range.low) return;
  switch (subscription_.start.kind) {
    case UpdateStart::Kind::kBeginning:
      lost_at_start_ += range.low;
      return;
    case UpdateStart::Kind::kTime:
      if (range.low < range.high) ++lost_at_start_;
      return;
    case UpdateStart::Kind::kEnd:
      if (first_event_ != UpdateEvent::Kind::kStarted) lost_at_start_ += range.low;
  }
}

void TopicTracker::BeginAgain(const TopicView& view, const std::string& why) {
  ++generation_;
  base_count_ = 0;
  first_event_ = UpdateEvent::Kind::kTopicMadeAgain;
  first_message_ = absl::StrCat("the topic was deleted and made again (", why,
                                "): it is read from its beginning as "
                                "generation ",
                                generation_,
                                ". If it does not hold every change since the table's import, "
                                "import the table again");
  BeginAtStart(view);
}

bool TopicTracker::CheckPosition(uint32_t partition, const TopicView::Range& range,
                                 uint64_t* lost) {
  Partition& checked = partitions_[partition];
  if (!range.is_known) return false;
  checked.is_lost = false;
  if (checked.next > range.high) return true;
  if (checked.next < range.low) {
    *lost += range.low - checked.next;
    checked.next = range.low;
  }
  return false;
}

void TopicTracker::LearnRanges(const TopicView& view, std::vector<UpdateEvent>* events) {
  answered_ = question_;
  uint64_t lost = 0;
  if (!AllAreKnown(view)) Ask();
  for (uint32_t i = 0; i < view.partition_count; ++i) {
    const uint64_t next = partitions_[i].next;
    // Only lost positions are checked: for other partitions, the ranges are older than the
    // position.
    if (partitions_[i].is_lost && CheckPosition(i, view.ranges[i], &lost)) {
      if (!AllAreKnown(view)) {
        partitions_[i].is_lost = true;  // until all beginnings are known
        continue;
      }
      BeginAgain(view, Described(i, next, view.ranges[i]));
      return Advance(events);
    }
    if (!view.ranges[i].is_known) continue;
    partitions_[i].bound = view.ranges[i].high;
    if (i >= base_count_) partitions_[i].next = std::max(next, view.ranges[i].low);
  }
  if (lost > 0 && base_count_ > 0)
    AddLoss(lost, absl::StrCat("the stream has deleted ", lost, " records that were not read"),
            events);
  DistrustClaims(view.partition_count);
  Advance(events);
}

// Producers that claim more partitions than the topic has are not believed: their records are
// delivered like those of producers that claim nothing.
void TopicTracker::DistrustClaims(uint32_t partition_count) {
  for (Partition& partition : partitions_) {
    if (!partition.is_held || partition.held_count <= partition_count) continue;
    false_count_ = partition_count + 1;
    partition.held_count = 0;
    partition.is_held = base_count_ == 0;
  }
}

TopicTracker::Taken TopicTracker::Take(uint32_t partition, uint64_t offset,
                                       uint32_t producer_partitions,
                                       std::vector<UpdateEvent>* events) {
  if (!IsWanted(partition) || offset < partitions_[partition].next) return {};
  if (false_count_ != 0 && producer_partitions >= false_count_) producer_partitions = 0;
  Partition& taken = partitions_[partition];
  const bool is_draining = IsDraining();
  const bool is_behind = is_draining && taken.bound.has_value() && offset >= *taken.bound;
  if (base_count_ == 0 || producer_partitions > base_count_ || is_behind) {
    if (!is_draining) Drain();
    taken.next = offset;
    taken.is_held = true;
    taken.held_count = producer_partitions;
    if (producer_partitions > partitions_.size()) Ask();  // whether the topic has as many
    Advance(events);
    return {.verdict = Verdict::kHold, .generation = 0};
  }
  const Taken result{.verdict = Verdict::kDeliver, .generation = generation_};
  taken.next = offset + 1;
  if (is_draining) Advance(events);
  return result;
}

void TopicTracker::ReachEnd(uint32_t partition, uint64_t offset, std::vector<UpdateEvent>* events) {
  if (!IsWanted(partition)) return;
  partitions_[partition].next = std::max(partitions_[partition].next, offset);
  if (IsDraining()) Advance(events);
}

void TopicTracker::LosePosition(uint32_t partition) {
  if (!IsWanted(partition)) return;
  partitions_[partition].is_lost = true;
  Ask();
}

absl::Status TopicTracker::SetPaused(uint32_t partition, bool is_paused) {
  if (partition == UpdateSource::kAllPartitions) {
    all_are_paused_ = is_paused;
    for (Partition& each : partitions_) each.is_paused = false;
    return absl::OkStatus();
  }
  if (partition >= partitions_.size()) {
    return absl::NotFoundError(absl::StrCat("topic of table '", table(), "' has no partition ",
                                            partition, ": it has ", partitions_.size()));
  }
  partitions_[partition].is_paused = is_paused;
  return absl::OkStatus();
}

// The number of partitions of the next generation: the smallest number above the present one that a
// producer used.
uint32_t TopicTracker::NextCount() const {
  uint32_t count = 0;
  for (const Partition& partition : partitions_) {
    if (!partition.is_held || partition.held_count <= base_count_) continue;
    count = count == 0 ? partition.held_count : std::min(count, partition.held_count);
  }
  return count != 0 ? count : static_cast<uint32_t>(partitions_.size());
}

// Begins the next generation once this one is drained.
void TopicTracker::Advance(std::vector<UpdateEvent>* events) {
  if (state_ != State::kReading || !IsDraining()) return;
  const size_t open_count = base_count_ == 0 ? partitions_.size() : base_count_;
  for (size_t i = 0; i < open_count; ++i) {
    if (!IsDrained(partitions_[i])) return;
  }
  const uint32_t count = NextCount();
  if (count > partitions_.size()) return;  // the stream has not said yet that the topic grew
  const bool is_first = base_count_ == 0;
  const uint32_t before = base_count_;
  if (!is_first) ++generation_;
  base_count_ = count;
  for (Partition& partition : partitions_) {
    if (partition.held_count <= count) partition.is_held = false;
    if (!partition.is_held) partition.held_count = 0;
  }
  if (is_first) {
    // Before the first event, so that the loss is stored with the first positions.
    if (lost_at_start_ > 0) {
      AddLoss(std::exchange(lost_at_start_, 0),
              "the oldest records of the stream are younger than the time from which the table "
              "reads it, so older ones may have been deleted before they were read",
              events);
    }
    AddEvent(first_event_, std::exchange(first_message_, {}), events);
  } else {
    AddEvent(UpdateEvent::Kind::kPartitionsGrew,
             absl::StrCat("producers distribute keys over ", count, " partitions, before ", before,
                          ": generation ", generation_, " begins"),
             events);
  }
  if (IsDraining()) Drain();
}

std::vector<StreamPosition> TopicTracker::Positions() const {
  std::vector<StreamPosition> positions(base_count_);
  for (uint32_t i = 0; i < base_count_; ++i) {
    positions[i] = {.partition = i, .generation = generation_, .offset = partitions_[i].next};
  }
  return positions;
}

void TopicTracker::AddEvent(UpdateEvent::Kind kind, std::string message,
                            std::vector<UpdateEvent>* events) const {
  events->push_back(
      {.kind = kind, .table = table(), .positions = Positions(), .message = std::move(message)});
}

void TopicTracker::AddLoss(uint64_t records_lost, const std::string& what,
                           std::vector<UpdateEvent>* events) const {
  AddEvent(UpdateEvent::Kind::kRetentionPassed,
           absl::StrCat(what,
                        ": rows of the table may be old. Import the table again, and keep records "
                        "for longer (retention.ms)"),
           events);
  events->back().records_lost = records_lost;
}

}  // namespace hps
