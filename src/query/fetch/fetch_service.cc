#include "query/fetch/fetch_service.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

void ReturnFetchJob::operator()(FetchJob* job) const { job->service_.Return(job); }

absl::StatusOr<std::unique_ptr<FetchService>> FetchService::Create(const Options& options) {
  HPS_CHECK(options.fetch_executor != nullptr && options.promote_executor != nullptr);
  HPS_CHECK(options.scratch_count >= 2);  // half of them for promotions
  try {
    return std::unique_ptr<FetchService>(new FetchService(options));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("fetch service: no memory for 2 x ",
                                                     options.scratch_count, " scratch buffers of ",
                                                     kFetchTaskRowBytesMax, " bytes"));
  }
}

FetchService::FetchService(const Options& options)
    : options_(options), in_flight_(JobCount(options) * pools_.size()) {
  size_t id = 0;
  for (Pool& pool : pools_) {
    MutexLock lock(pool.mutex);
    for (size_t i = 0; i < options.scratch_count; ++i)
      pool.scratches.push_back(std::make_unique_for_overwrite<JobScratch>());
    for (size_t i = 0; i < JobCount(options); ++i)
      pool.jobs.push_back(std::make_unique<FetchJob>(*this, id++));
    for (const auto& scratch : pool.scratches) pool.free_scratches.push_back(scratch.get());
    for (const auto& job : pool.jobs) pool.free_jobs.push_back(job.get());
  }
}

FetchService::~FetchService() {
  for (Pool& pool : pools_) {
    MutexLock lock(pool.mutex);
    HPS_CHECK(pool.free_jobs.size() == pool.jobs.size());
  }
}

FetchJobLease FetchService::Acquire(size_t level) {
  Pool& pool = pools_[PoolNumber(level)];
  MutexLock lock(pool.mutex);
  if (pool.free_scratches.empty()) return nullptr;
  JobScratch& scratch = *pool.free_scratches.back();
  pool.free_scratches.pop_back();
  return TakeJob(pool, {.scratch = &scratch});
}

FetchJobLease FetchService::AcquireBehind(const FetchJob& last, size_t key_count,
                                          size_t row_bytes) {
  const JobScratchPart part = last.part_.Behind(last.key_count_, last.spec_.table->row_bytes());
  if (part.RoomFor(row_bytes) < key_count) return nullptr;
  Pool& pool = PoolOf(last);
  MutexLock lock(pool.mutex);
  return TakeJob(pool, part);
}

// A scratch buffer has at most the jobs of one call.
FetchJobLease FetchService::TakeJob(Pool& pool, const JobScratchPart& part) {
  HPS_CHECK(!pool.free_jobs.empty());
  FetchJob* const job = pool.free_jobs.back();
  pool.free_jobs.pop_back();
  job->part_ = part;
  ++part.scratch->job_count;
  return FetchJobLease(job);
}

size_t FetchService::FairShare(size_t level) const {
  const Pool& pool = pools_[PoolNumber(level)];
  MutexLock lock(pool.mutex);
  return std::max<size_t>(1, pool.free_scratches.size() / 2);
}

bool FetchService::Claim(FetchJob* job) {
  if (job->detached_) return true;
  Pool& pool = PoolOf(*job);
  MutexLock lock(pool.mutex);
  if (job->part_.scratch->detached_count == 0) {
    if (pool.detached >= options_.scratch_count / 2) return false;
    ++pool.detached;
  }
  ++job->part_.scratch->detached_count;
  job->detached_ = true;
  return true;
}

void FetchService::Return(FetchJob* job) {
  Pool& pool = PoolOf(*job);
  MutexLock lock(pool.mutex);
  JobScratch& scratch = *job->part_.scratch;
  if (std::exchange(job->detached_, false) && --scratch.detached_count == 0) --pool.detached;
  if (--scratch.job_count == 0) pool.free_scratches.push_back(&scratch);
  pool.free_jobs.push_back(job);
}

bool FetchService::Post(std::span<FetchJob* const> jobs, const LiveModel::Guard& guard,
                        Latch& latch) {
  FetchJob* next = nullptr;
  for (size_t i = jobs.size(); i > 0; --i) {
    FetchJob& job = *jobs[i - 1];
    job.next_linked_ = std::exchange(next, &job);
    job.pin_ = SnapshotPin(guard);
    MutexLock lock(job.mutex_);
    job.latch_ = &latch;
    job.done_ = false;
  }
  if (options_.fetch_executor->Post(jobs.front()).ok()) return true;
  for (FetchJob* const job : jobs) {
    job->next_linked_ = nullptr;
    job->pin_.Release();
    MutexLock lock(job->mutex_);
    job->latch_ = nullptr;
  }
  return false;
}

bool FetchService::PostInBackground(FetchJobLease job, SnapshotPin pin) {
  if (!Claim(job.get())) return false;
  job->background_ = true;
  job->pin_ = std::move(pin);
  in_flight_.Begin(job->id_);
  FetchJob* posted = job.release();
  if (options_.fetch_executor->Post(posted).ok()) return true;
  End(posted);
  return false;
}

void FetchService::Promote(FetchJobLease job, SnapshotPin pin) {
  if (job->HasPromotion()) PromoteOrDrop(std::move(job), std::move(pin), FetchJob::Stage::kPromote);
}

void FetchService::PromoteByKeys(FetchJobLease job, SnapshotPin pin) {
  PromoteOrDrop(std::move(job), std::move(pin), FetchJob::Stage::kFetchAndPromote);
}

void FetchService::PromoteOrDrop(FetchJobLease job, SnapshotPin pin, FetchJob::Stage stage) {
  job->pin_ = std::move(pin);
  in_flight_.Begin(job->id_);
  FetchJob* owned = job.release();
  if (PostPromotion(owned, stage)) return;
  CountDroppedPromotion();
  End(owned);
}

bool FetchService::PostPromotion(FetchJob* job, FetchJob::Stage stage) {
  if (Claim(job)) {
    job->stage_ = stage;
    if (options_.promote_executor->Post(job).ok()) return true;
    job->stage_ = FetchJob::Stage::kFetch;
  }
  return false;
}

// The keys of a background job were answered as pending, so the job must not be dropped: if a queue
// is full, this thread does the work that it could not post.
void FetchService::ContinueDetached(FetchJob* job) {
  while (job->ListMisses()) {
    // The promotion runs on this thread. A task of the promote executor could not post the next
    // fetch, because the promote executor may outlive the fetch executor. Nor can the fetch
    // overtake the promotion, because both use the same scratch.
    job->Promote();
    job->AskNextForMisses();
    if (options_.fetch_executor->Post(job).ok()) return;
    job->Fetch();
  }
  if (job->HasPromotion()) {
    if (PostPromotion(job, FetchJob::Stage::kPromote)) return;
    if (job->background_) {
      job->Promote();
    } else {
      CountDroppedPromotion();
    }
  }
  End(job);
}

void FetchService::End(FetchJob* job) {
  job->pin_.Release();
  in_flight_.End(job->id_);
  Return(job);
}

absl::Status FetchService::Drain(Duration timeout) {
  return in_flight_.Drain(*options_.promote_executor, timeout);
}

void FetchService::InFlightTracker::Begin(size_t job) {
  MutexLock lock(mutex_);
  begun_[job] = ++last_;
}

void FetchService::InFlightTracker::End(size_t job) {
  MutexLock lock(mutex_);
  begun_[job] = 0;
  if (awaited_ == 0 || !DoneUpTo(awaited_)) return;
  awaited_ = 0;
  drained_.CountDown();
}

bool FetchService::InFlightTracker::DoneUpTo(uint64_t number) const {
  return std::none_of(begun_.begin(), begun_.end(),
                      [&](uint64_t begun) { return begun != 0 && begun <= number; });
}

absl::Status FetchService::InFlightTracker::Drain(Executor& executor, Duration timeout) {
  MutexLock draining(drain_mutex_);
  {
    MutexLock lock(mutex_);
    if (DoneUpTo(last_)) return absl::OkStatus();
    awaited_ = last_;
    drained_.Reset(1);
  }
  if (executor.Await(drained_, DeadlineAfter(executor.clock(), timeout))) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (awaited_ == 0) return absl::OkStatus();  // done at the last moment
  awaited_ = 0;
  drained_.CountDown();
  return absl::DeadlineExceededError("promotions are still under way");
}

}  // namespace hps
