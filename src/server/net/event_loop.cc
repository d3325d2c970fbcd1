#include "server/net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::server {
namespace {

// Of one look that takes all there are.
constexpr size_t kEventsPerLook = 64;

absl::Status SystemError(const char* what) {
  return absl::ResourceExhaustedError(absl::StrCat("server: ", what, ": ", std::strerror(errno)));
}

timespec AsTimespec(std::chrono::nanoseconds time) {
  return {.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
}

// Whose thread this is; null: nobody's.
thread_local const EventLoop* own_loop = nullptr;

void CloseIfOpen(int fd) {
  if (fd >= 0) close(fd);
}

}  // namespace

EventLoop::EventLoop(const Options& options, Handler& handler)
    : options_(options), handler_(handler) {}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(const Options& options,
                                                             Handler& handler) {
  std::unique_ptr<EventLoop> loop(new EventLoop(options, handler));
  loop->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  loop->stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  loop->timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  loop->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  loop->later_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (loop->epoll_ < 0 || loop->stop_ < 0 || loop->timer_ < 0 || loop->wake_ < 0 ||
      loop->later_ < 0) {
    return SystemError("no descriptors for an event loop");
  }
  // Level-triggered: once written, it wakes every thread.
  HPS_RETURN_IF_ERROR(loop->Add(loop->stop_, EPOLLIN, &loop->stop_));
  HPS_RETURN_IF_ERROR(loop->Add(loop->timer_, EPOLLIN | EPOLLET, &loop->timer_));
  // Each write is an event, and never read.
  HPS_RETURN_IF_ERROR(loop->Add(loop->wake_, EPOLLIN | EPOLLET, &loop->wake_));
  // ... and so is each time that it ends.
  HPS_RETURN_IF_ERROR(loop->Add(loop->later_, EPOLLIN | EPOLLET, &loop->later_));
  const timespec period = AsTimespec(options.tick_period);
  const itimerspec times{.it_interval = period, .it_value = period};
  if (timerfd_settime(loop->timer_, 0, &times, nullptr) != 0) return SystemError("timer");
  return loop;
}

EventLoop::~EventLoop() {
  Stop();
  CloseIfOpen(later_);
  CloseIfOpen(wake_);
  CloseIfOpen(timer_);
  CloseIfOpen(stop_);
  CloseIfOpen(epoll_);
}

absl::Status EventLoop::Start(int listener) {
  HPS_RETURN_IF_ERROR(Add(listener, EPOLLIN | EPOLLET, &epoll_));
  HPS_ASSIGN_OR_RETURN(threads_, WorkerPool::Create({.name = options_.name,
                                                     .thread_count = options_.thread_count,
                                                     .queue_max = options_.thread_count}));
  for (size_t i = 0; i < options_.thread_count; ++i) {
    workers_.push_back(std::make_unique<FunctionTask>([this] { Wait(); }));
    HPS_RETURN_IF_ERROR(threads_->Post(workers_.back().get()));
  }
  return absl::OkStatus();
}

void EventLoop::Stop() {
  stopping_.store(true);
  const uint64_t one = 1;
  if (stop_ >= 0 && write(stop_, &one, sizeof(one)) < 0) {
    HPS_CHECK(errno == EAGAIN);  // it is set already
  }
  threads_.reset();
}

absl::Status EventLoop::Add(int fd, uint32_t events, void* source) {
  epoll_event event{.events = events, .data = {.ptr = source}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return SystemError("no place in the event loop");
}

absl::Status EventLoop::Watch(int fd, void* source) {
  return Add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, source);
}

// No wake-up is lost, because these accesses are sequentially consistent. The caller adds work
// before this reads waiting_threads_, and a thread adds itself to waiting_threads_ before it asks
// HasLeft. So either that thread sees the work, or this sees the thread.
void EventLoop::WakeOne() {
  if (waiting_threads_.load() == 0 || is_woken_.exchange(true)) return;
  const uint64_t one = 1;
  HPS_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one));
}

// Loses no wake-up, for the same reason as WakeOne.
void EventLoop::WakeOneLater() {
  if (waiting_threads_.load() == 0 || is_later_set_.exchange(true)) return;
  const itimerspec once{.it_interval = {}, .it_value = AsTimespec(kLater)};
  HPS_CHECK(timerfd_settime(later_, 0, &once, nullptr) == 0);
}

bool EventLoop::IsOwnThread() const { return own_loop == this; }

void EventLoop::AcceptAgain(int listener) {
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = &epoll_}};
  HPS_CHECK(epoll_ctl(epoll_, EPOLL_CTL_MOD, listener, &event) == 0);
}

void EventLoop::Wait() {
  own_loop = this;
  std::array<epoll_event, kEventsPerLook> events;
  bool has_more = false;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int count = Look(has_more, events);
    // The flags are cleared before the events are reported: this thread does what is left, but
    // perhaps late, and until then other threads can be woken.
    for (int i = 0; i < count; ++i) {
      const void* const source = events[static_cast<size_t>(i)].data.ptr;
      if (source == &wake_) is_woken_.store(false);
      if (source == &later_) is_later_set_.store(false);
    }
    for (int i = 0; i < count; ++i) {
      Report(events[static_cast<size_t>(i)], i + 1 == count);
    }
    has_more = handler_.DoLeft();
  }
}

// Takes events and returns how many. With looks_ahead and no other thread that waits, it takes many
// of them, so that the handler knows all sockets that it can choose from.
int EventLoop::Look(bool has_more, std::span<epoll_event> events) {
  const bool is_alone = waiting_threads_.load(std::memory_order_relaxed) == 0;
  if (has_more || (options_.looks_ahead && is_alone)) {
    const size_t events_max = options_.looks_ahead ? events.size() : 1;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events_max), 0);
    HPS_CHECK(count >= 0 || errno == EINTR);
    if (count > 0 || has_more) return count;
  }
  waiting_threads_.fetch_add(1);
  const int count = epoll_wait(epoll_, events.data(), 1, handler_.HasLeft() ? 0 : -1);
  HPS_CHECK(count >= 0 || errno == EINTR);
  waiting_threads_.fetch_sub(1);
  return count;
}

void EventLoop::Report(const epoll_event& event, bool is_last) {
  const void* const source = event.data.ptr;
  if (source == &stop_ || source == &wake_ || source == &later_) return;
  if (source == &timer_) {
    uint64_t expirations = 0;
    if (read(timer_, &expirations, sizeof(expirations)) > 0) handler_.OnTick();
  } else if (source == &epoll_) {
    handler_.OnAcceptable();
  } else {
    const bool reset = (event.events & (EPOLLHUP | EPOLLERR)) != 0;
    const bool hangup = reset || (event.events & EPOLLRDHUP) != 0;
    handler_.OnSocket(event.data.ptr, {.hangup = hangup, .reset = reset}, is_last);
  }
}

}  // namespace hps::server
