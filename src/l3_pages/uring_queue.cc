#include "l3_pages/uring_queue.h"

#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/out_of_memory.h"

namespace hps {
namespace {

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
  size_t in_flight() const override { return in_flight_; }

 private:
  // Submits the noted reads and waits for one. Returns 0 or a negative error number.
  int SubmitAndWait(Deadline deadline);
  size_t Collect(std::span<EndedPageRead> ended);

  io_uring ring_{};
  bool started_ = false;
  size_t in_flight_ = 0;  // noted reads included
};

absl::Status UringQueue::Start() {
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
  while (in_flight_ > 0) {
    // A system that takes no reads now takes them later: they were noted, and must not be lost.
    static_cast<void>(Await(ended, kNoDeadline));
  }
  if (started_) io_uring_queue_exit(&ring_);
}

void UringQueue::Begin(const PageRead& read) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  HPS_CHECK(entry != nullptr);  // there are as many entries as slots
  io_uring_prep_read(entry, read.descriptor, read.into.data(),
                     static_cast<unsigned>(read.into.size()), read.offset);
  io_uring_sqe_set_data64(entry, read.slot);
  ++in_flight_;
}

int UringQueue::SubmitAndWait(Deadline deadline) {
  if (deadline == kNoDeadline) return io_uring_submit_and_wait(&ring_, 1);
  const Duration left = std::max(deadline - RealClock().Now(), Duration::zero());
  __kernel_timespec timeout{};
  timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
  timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
  io_uring_cqe* ended = nullptr;
  return io_uring_submit_and_wait_timeout(&ring_, &ended, 1, &timeout, nullptr);
}

size_t UringQueue::Collect(std::span<EndedPageRead> ended) {
  std::array<io_uring_cqe*, kPageSlotsMax> entries;
  const auto wanted = static_cast<unsigned>(std::min(ended.size(), entries.size()));
  const size_t count = io_uring_peek_batch_cqe(&ring_, entries.data(), wanted);
  for (size_t i = 0; i < count; ++i) ended[i] = {entries[i]->user_data, entries[i]->res};
  io_uring_cq_advance(&ring_, static_cast<unsigned>(count));
  in_flight_ -= count;
  return count;
}

absl::StatusOr<size_t> UringQueue::Await(std::span<EndedPageRead> ended, Deadline deadline) {
  while (in_flight_ > 0) {
    const int result = SubmitAndWait(deadline);
    const size_t count = Collect(ended);
    if (count > 0) return count;
    if (result == -ETIME) return absl::DeadlineExceededError("page reads: deadline exceeded");
    if (result < 0 && result != -EINTR)
      return absl::UnavailableError(UringError(-result).message());
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageQueue>> MakeUringQueue() {
  auto queue = std::unique_ptr<UringQueue>(new (std::nothrow) UringQueue);
  if (queue == nullptr) return OutOfMemory("page reads: out of memory");
  HPS_RETURN_IF_ERROR(queue->Start());
  return queue;
}

}  // namespace hps
