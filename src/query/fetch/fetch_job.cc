#include "query/fetch/fetch_job.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/macros.h"
#include "query/fetch/fetch_service.h"

namespace hps {

size_t JobScratchPart::RoomFor(size_t row_bytes) const {
  return std::min(kFetchTaskKeysMax - first_key, (kFetchTaskRowBytesMax - first_byte) / row_bytes);
}

JobScratchPart JobScratchPart::Behind(size_t key_count, size_t row_bytes) const {
  constexpr size_t kLineBytes = 64;
  const size_t end =
      (first_byte + key_count * row_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  return {scratch, first_key + key_count, std::min(end, kFetchTaskRowBytesMax)};
}

size_t LevelToAsk(LiveTable& table, size_t first, TimePoint now) {
  for (size_t part = first; part < table.l2().size(); ++part) {
    if (table.l2()[part].Admits(now)) return part;
  }
  return kLevel3;
}

size_t FetchJob::KeysMax(size_t row_bytes) {
  return std::min(kFetchTaskKeysMax, kFetchTaskRowBytesMax / row_bytes);
}

void FetchJob::Prepare(const Spec& spec, size_t key_count) {
  HPS_CHECK(key_count <= part_.RoomFor(spec.table->row_bytes()));
  spec_ = spec;
  key_count_ = key_count;
  std::fill_n(part_.times_asked(), key_count, uint8_t{1});
  missed_count_ = 0;
  failed_ = true;  // until the level is asked
  stage_ = Stage::kFetch;
  background_ = false;
  next_linked_ = nullptr;
}

HostRows FetchJob::RowsOf(size_t count) const {
  const size_t row_bytes = spec_.table->row_bytes();
  return {
      .data = part_.rows(), .row_count = count, .row_bytes = row_bytes, .stride_bytes = row_bytes};
}

FetchBatch FetchJob::BatchOf() {
  return {.keys = keys(),
          .rows = RowsOf(key_count_),
          .outcomes = {part_.outcomes(), key_count_},
          .versions = {part_.versions(), key_count_}};
}

void FetchJob::AnswerMisses() { std::fill_n(part_.outcomes(), key_count_, FetchOutcome::kMiss); }

void FetchJob::BeginAnswer() {
  failed_ = false;
  std::fill_n(part_.versions(), key_count_, Version{0});
  AnswerMisses();
  std::fill_n(part_.from_l2(), key_count_, uint8_t{0});
}

template <typename Table>
absl::Status FetchJob::Ask(Table& table, const FetchBatch& batch) const {
  try {
    return table.Fetch(batch, spec_.deadline).status();
  } catch (const std::bad_alloc&) {
    std::ranges::fill(batch.outcomes, FetchOutcome::kMiss);
    return absl::ResourceExhaustedError("");
  }
}

void FetchJob::Fetch() {
  LiveTable& table = *spec_.table;
  BeginAnswer();
  const FetchBatch batch = BatchOf();
  TakeStatus(spec_.level == kLevel3 ? Ask(table.l3(), batch)
                                    : Ask(table.l2()[spec_.level].table(), batch));
  if (background_ && spec_.level != kLevel3 && !failed_)
    table.l2()[spec_.level].breaker().NoteAnswer();  // it may have been the probe
}

void FetchJob::TakeStatus(const absl::Status& fetched) {
  failed_ = !fetched.ok();
  if (failed_ && spec_.level == kLevel3) {
    service_.l3_errors().Add(fetched.code());  // what it reached before is valid; the rest is kMiss
  } else if (failed_) {
    AnswerMisses();
    return NoteL2Failure(spec_.table->l2()[spec_.level], fetched.code());
  }
  Revalidate();
}

// No exception leaves it, either.
void FetchJob::FetchTogether(std::span<FetchJob* const> jobs) {
  std::array<TableFetch, kJobsPerCallMax> room;
  const std::span<TableFetch> fetches = std::span(room).first(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Spec& spec = jobs[i]->spec_;
    jobs[i]->BeginAnswer();
    fetches[i] = {.table = &spec.table->l2()[spec.level].table(), .batch = jobs[i]->BatchOf()};
  }
  const Spec& first = jobs.front()->spec_;
  LossyTier& tier = *first.table->l2()[first.level].tier();
  try {
    tier.Fetch(fetches, first.deadline);
  } catch (const std::bad_alloc&) {
    for (TableFetch& fetch : fetches) fetch.counts = absl::ResourceExhaustedError("");
  }
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i]->TakeStatus(fetches[i].counts.status());
}

void FetchJob::NoteL2Failure(L2Part& part, absl::StatusCode code) {
  part.NoteFailure(service_.clock().Now());
  spec_.counters->l2_errors().Add(code);
}

// Fetches rows to promote, of which only the keys are known. The epoch is read before the bypass is
// looked at. A change that L2 has missed trips the bypass before the change is published. So if the
// epoch includes the change, the bypass is seen here. If it does not, L1's watermarks are above the
// epoch, and L1 refuses the rows.
void FetchJob::RefetchFromL2() {
  spec_.epoch = spec_.table->epochs().published();
  if (spec_.table->l2()[spec_.level].health().quarantined()) {
    AnswerMisses();
  } else {
    Fetch();
  }
}

// A change that has begun since the call read its epoch reaches L3 before L2, and a part of L2
// before those above it. A part may have taken the older row after the call asked it. Then this job
// has the newer row from below, and the next call would get the older one from that part. So the
// parts are asked again, now that they take no older row any more, and what they hold is the
// answer, that of the first part before all others. A part that is bypassed stays so until that
// change is done, because the newer row may have been shown.
void FetchJob::Revalidate() {
  if (spec_.table->epochs().begun() == spec_.epoch) return;
  for (size_t part = PartCount(spec_); part > 0; --part) AskAgain(spec_.table->l2()[part - 1]);
}

void FetchJob::AskAgain(L2Part& part) {
  if (!part.TakesRows()) {
    part.health().Quarantine();
    return;
  }
  FetchBatch batch = BatchOf();
  batch.outcomes = {part_.l2_outcomes(), key_count_};
  const absl::Status fetched = Ask(part.table(), batch);
  if (!fetched.ok()) {
    NoteL2Failure(part, fetched.code());
    AnswerMisses();  // the part may have overwritten rows that were found below it
    return;
  }
  for (size_t i = 0; i < key_count_; ++i) {
    if (part_.l2_outcomes()[i] != FetchOutcome::kHit &&
        part_.l2_outcomes()[i] != FetchOutcome::kAbsent)
      continue;
    part_.outcomes()[i] = part_.l2_outcomes()[i];
    part_.from_l2()[i] = 1;
  }
}

bool FetchJob::Complete() {
  MutexLock lock(mutex_);
  if (latch_ == nullptr) return false;
  done_ = true;
  // Under the lock, so that the waiter, which takes it too, does not leave while the latch is used.
  std::exchange(latch_, nullptr)->CountDown();
  return true;
}

bool FetchJob::TryCollect() {
  MutexLock lock(mutex_);
  if (!done_) {
    latch_ = nullptr;
    service_.in_flight_.Begin(id_);
    return false;
  }
  done_ = false;
  pin_.Release();
  return true;
}

void FetchJob::Run() {
  if (stage_ != Stage::kFetch) {
    if (stage_ == Stage::kFetchAndPromote) RefetchFromL2();
    Promote();
    service_.End(this);
    return;
  }
  if (background_) {
    spec_.deadline = DeadlineAfter(service_.clock(), kBackgroundFetchTimeout);
    Fetch();
    service_.ContinueDetached(this);
    return;
  }
  RunLinked();
}

void FetchJob::RunLinked() {
  std::array<FetchJob*, kJobsPerCallMax> room;
  size_t count = 0;
  for (FetchJob* job = this; job != nullptr;) {
    HPS_CHECK(count < room.size());
    room[count++] = job;
    job = std::exchange(job->next_linked_, nullptr);
  }
  const std::span<FetchJob*> jobs = std::span(room).first(count);
  // Jobs that are begun after their deadline would only keep a thread from those that are in time.
  if (service_.clock().Now() >= spec_.deadline) {
    for (FetchJob* const job : jobs) job->AnswerMisses();
  } else if (count == 1) {
    Fetch();
  } else {
    FetchTogether(jobs);
  }
  for (FetchJob* const job : jobs) {
    if (!job->Complete()) service_.ContinueDetached(job);
  }
}

bool FetchJob::L1Takes(const Spec& spec) {
  if (spec.cache == kNoCache || spec.table->l1(spec.cache) == nullptr) return false;
  return !spec.table->l1_health(spec.cache).quarantined() &&
         spec.epoch >= spec.table->l1_epoch(spec.cache);
}

size_t FetchJob::PartCount(const Spec& spec) {
  return std::min(spec.level, spec.table->l2().size());
}

// Whether a part of L2 before the job's level takes the rows that it fetches.
bool FetchJob::L2Takes(const Spec& spec) {
  for (size_t part = 0; part < PartCount(spec); ++part) {
    if (spec.table->l2()[part].TakesRows()) return true;
  }
  return false;
}

bool FetchJob::HasTaker(const Spec& spec) {
  return !spec.table->retired() && (L1Takes(spec) || L2Takes(spec));
}

bool FetchJob::HasPromotion() const {
  if (!HasTaker(spec_)) return false;
  const bool l2 = L2Takes(spec_);
  return std::ranges::any_of(outcomes(), [&](FetchOutcome outcome) {
    return outcome == FetchOutcome::kHit || (l2 && outcome == FetchOutcome::kAbsent);
  });
}

void FetchJob::Promote() {
  if (spec_.table->retired()) return;
  try {
    if (L2Takes(spec_)) PromoteIntoL2();
    if (L1Takes(spec_)) PromoteIntoL1(*spec_.table->l1(spec_.cache));
  } catch (const std::bad_alloc&) {
    service_.CountDroppedPromotion();
  }
}

void FetchJob::PromoteIntoL2() {
  const size_t count = KeepOnly(FetchOutcome::kHit, FetchOutcome::kAbsent);
  if (count == 0) return;
  for (size_t i = 0; i < count; ++i)
    part_.absent()[i] = part_.outcomes()[i] == FetchOutcome::kAbsent ? 1 : 0;
  const RowBatch batch = {.keys = keys(),
                          .rows = RowsOf(count),
                          .versions = {part_.versions(), count},
                          .absent = {part_.absent(), count},
                          .admission = admission(),
                          .times_asked = times_asked()};
  for (size_t i = 0; i < PartCount(spec_); ++i) {
    L2Part& part = spec_.table->l2()[i];
    if (!part.TakesRows()) continue;
    const absl::Status inserted = part.table().Insert(batch, spec_.epoch).status();
    if (inserted.ok()) continue;
    if (part.can_block()) part.breaker().NoteFailure(service_.clock().Now());
    spec_.counters->l2_errors().Add(inserted.code());
  }
}

void FetchJob::PromoteIntoL1(DeviceCacheTable& l1) {
  const size_t count = KeepOnly(FetchOutcome::kHit, FetchOutcome::kHit);
  if (count == 0) return;
  const RowBatch batch = {.keys = keys(),
                          .rows = RowsOf(count),
                          .versions = {part_.versions(), count},
                          .admission = admission()};
  const absl::Status replaced = l1.InsertIfAbsent(batch, spec_.epoch).status();
  // Its writer has too much to do: nothing is wrong with the level.
  if (absl::IsResourceExhausted(replaced)) return service_.CountDroppedPromotion();
  if (!replaced.ok()) spec_.counters->l1_errors().Add(replaced.code());
}

bool FetchJob::ListMisses() {
  if (!background_ || spec_.level == kLevel3) return false;
  for (size_t i = 0; i < key_count_; ++i) {
    if (part_.outcomes()[i] == FetchOutcome::kMiss)
      part_.missed_keys()[missed_count_++] = part_.keys()[i];
  }
  return missed_count_ > 0;
}

void FetchJob::AskNextForMisses() {
  std::sort(part_.missed_keys(), part_.missed_keys() + missed_count_);  // the fastest order for L3
  std::copy_n(part_.missed_keys(), missed_count_, part_.keys());
  Spec spec = spec_;
  spec.level = LevelToAsk(*spec.table, spec.level + 1, service_.clock().Now());
  spec.deadline = DeadlineAfter(service_.clock(), kBackgroundFetchTimeout);
  Prepare(spec, missed_count_);
  background_ = true;
}

size_t FetchJob::KeepOnly(FetchOutcome outcome, FetchOutcome or_outcome) {
  const size_t row_bytes = spec_.table->row_bytes();
  size_t kept = 0;
  for (size_t i = 0; i < key_count_; ++i) {
    if (part_.outcomes()[i] != outcome && part_.outcomes()[i] != or_outcome) continue;
    if (kept != i) {
      part_.keys()[kept] = part_.keys()[i];
      part_.outcomes()[kept] = part_.outcomes()[i];
      part_.versions()[kept] = part_.versions()[i];
      part_.times_asked()[kept] = part_.times_asked()[i];
      std::memcpy(part_.rows() + kept * row_bytes, part_.rows() + i * row_bytes, row_bytes);
    }
    ++kept;
  }
  key_count_ = kept;
  return kept;
}

}  // namespace hps
