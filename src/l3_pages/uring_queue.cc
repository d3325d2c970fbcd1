#include "l3_pages/uring_queue.h"

#include <liburing.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "l3_pages/call_fault.h"

namespace hps {
namespace {

constexpr int kPollMilliseconds = 1;

// The system has refused the reads of a queue that it had made before. A filter of system calls
// that was set in between does that.
std::atomic<bool> reads_refused{false};

absl::Status UringError(int error_number) {
  const std::string text =
      absl::StrCat("page reads: io_uring: ", std::generic_category().message(error_number));
  switch (error_number) {
    case ENOSYS:
    case EPERM:
    case EACCES:
    case EINVAL:
      return absl::UnimplementedError(text);
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

class UringQueue final : public PageQueue {
 public:
  UringQueue() = default;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override;

  absl::Status Start();
  void Begin(const PageRead& read) override;
  absl::StatusOr<size_t> Await(std::span<EndedPageRead> ended, Deadline deadline) override;
  size_t in_flight() const override { return noted_count_ + submitted_; }

 private:
  // Submits the noted reads and waits for one. Returns 0 or a negative error number.
  int SubmitAndWait(Deadline deadline);
  // Waits for a read to end, for a short time, where the ring itself can't be asked to wait.
  void WaitWithoutRing() const;
  void CountSubmitted();
  size_t Collect(std::span<EndedPageRead> ended);
  size_t EndNoted(std::span<EndedPageRead> ended);

  io_uring ring_{};
  bool started_ = false;
  bool refused_ = false;                       // true: the system gets no more reads of this queue
  std::array<size_t, kPageSlotsMax> noted_{};  // slots of reads that the system has not taken yet
  size_t noted_count_ = 0;
  size_t submitted_ = 0;  // reads that the system has taken and not ended
};

absl::Status UringQueue::Start() {
  if (const CallFault fault = ReachCall("l3_pages.ring"); fault.error_number != 0)
    return UringError(fault.error_number);
  io_uring_params params{};
  const int result = io_uring_queue_init_params(kPageSlotsMax, &ring_, &params);
  if (result < 0) return UringError(-result);
  started_ = true;
  // Without it, waiting with a deadline would itself take a place in the queue.
  if ((params.features & IORING_FEAT_EXT_ARG) == 0) return UringError(ENOSYS);
  return absl::OkStatus();
}

UringQueue::~UringQueue() {
  std::array<EndedPageRead, kPageSlotsMax> ended;
  refused_ = true;  // noted reads are not submitted any more, and never write to memory
  while (submitted_ > 0) {
    if (!Await(ended, kNoDeadline).ok()) WaitWithoutRing();
  }
  if (started_) io_uring_queue_exit(&ring_);
}

void UringQueue::Begin(const PageRead& read) {
  HPS_CHECK(in_flight() < kPageSlotsMax);
  // The ring may still hold reads that the system did not take. When no other read is in flight, a
  // new ring takes its place.
  if (refused_ && !reads_refused && in_flight() == 0) {
    if (started_) io_uring_queue_exit(&ring_);
    started_ = false;
    refused_ = !Start().ok();
  }
  noted_[noted_count_++] = read.slot;
  if (refused_) return;
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  HPS_CHECK(entry != nullptr);  // there are as many entries as slots
  io_uring_prep_read(entry, read.descriptor, read.into.data(),
                     static_cast<unsigned>(read.into.size()), read.offset);
  io_uring_sqe_set_data64(entry, read.slot);
}

int UringQueue::SubmitAndWait(Deadline deadline) {
  if (const CallFault fault = ReachCall("l3_pages.submit"); fault.error_number != 0)
    return -fault.error_number;
  if (deadline == kNoDeadline) return io_uring_submit_and_wait(&ring_, 1);
  const Duration left = std::max(deadline - RealClock().Now(), Duration::zero());
  __kernel_timespec timeout{};
  timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
  timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
  io_uring_cqe* ended = nullptr;
  return io_uring_submit_and_wait_timeout(&ring_, &ended, 1, &timeout, nullptr);
}

void UringQueue::WaitWithoutRing() const {
  pollfd ring{.fd = ring_.ring_fd, .events = POLLIN, .revents = 0};
  static_cast<void>(::poll(&ring, 1, kPollMilliseconds));
}

size_t UringQueue::Collect(std::span<EndedPageRead> ended) {
  std::array<io_uring_cqe*, kPageSlotsMax> entries;
  const auto wanted = static_cast<unsigned>(std::min(ended.size(), entries.size()));
  const size_t count = io_uring_peek_batch_cqe(&ring_, entries.data(), wanted);
  for (size_t i = 0; i < count; ++i) ended[i] = {entries[i]->user_data, entries[i]->res};
  io_uring_cq_advance(&ring_, static_cast<unsigned>(count));
  submitted_ -= count;
  return count;
}

// The system takes them in the order in which they were noted.
void UringQueue::CountSubmitted() {
  const size_t taken = noted_count_ - std::min<size_t>(noted_count_, io_uring_sq_ready(&ring_));
  std::copy(noted_.begin() + static_cast<std::ptrdiff_t>(taken),
            noted_.begin() + static_cast<std::ptrdiff_t>(noted_count_), noted_.begin());
  noted_count_ -= taken;
  submitted_ += taken;
}

// Ends the noted reads, which the system will never take, with -EAGAIN: the caller reads them
// itself.
size_t UringQueue::EndNoted(std::span<EndedPageRead> ended) {
  const size_t count = std::min(ended.size(), noted_count_);
  for (size_t i = 0; i < count; ++i) ended[i] = {noted_[--noted_count_], -EAGAIN};
  return count;
}

absl::StatusOr<size_t> UringQueue::Await(std::span<EndedPageRead> ended, Deadline deadline) {
  while (in_flight() > 0) {
    const int result = refused_ ? 0 : SubmitAndWait(deadline);
    if (!refused_) CountSubmitted();
    const bool is_refusal = result == -EPERM || result == -EACCES || result == -ENOSYS;
    if (is_refusal) reads_refused = true;
    // The system must not take a read after an error: its file may be closed by then.
    refused_ |= is_refusal || (result < 0 && result != -EINTR && noted_count_ > 0);
    size_t count = started_ ? Collect(ended) : 0;
    if (refused_) count += EndNoted(ended.subspan(count));
    if (count > 0) return count;
    if (refused_ && RealClock().Now() < deadline) {
      WaitWithoutRing();
      continue;
    }
    if (refused_) return absl::DeadlineExceededError("page reads: deadline exceeded");
    if (result == -ETIME) return absl::DeadlineExceededError("page reads: deadline exceeded");
    if (result < 0 && result != -EINTR)
      return absl::UnavailableError(UringError(-result).message());
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageQueue>> MakeUringQueue() {
  if (reads_refused) return UringError(EPERM);
  auto queue = std::unique_ptr<UringQueue>(new (std::nothrow) UringQueue);
  if (queue == nullptr) return OutOfMemory("page reads: out of memory");
  HPS_RETURN_IF_ERROR(queue->Start());
  return queue;
}

}  // namespace hps
