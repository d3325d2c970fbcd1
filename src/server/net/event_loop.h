// The threads that drive connections, and what wakes them: one epoll set for all of them.
//
// Every thread waits on the same set, sockets are registered once and edge-triggered, and the
// kernel wakes one thread for an event: a request costs one wait, one read and one write, no
// registration and no hand-over between threads. Between two waits a thread does what the handler
// has left for later. (A shared Asio io_context wakes a second thread for each event, which then
// waits in the first one's place.)
//
// Thread-safe.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"

namespace hps::server {

// What an event of a socket says about its end.
struct SocketEnd {
  bool hangup = false;  // the peer sends no more
  bool reset = false;   // ... nor does it read
};

class EventLoop {
 public:
  // What is called, on any of the loop's threads.
  class Handler {
   public:
    virtual ~Handler() = default;
    // `source`: as given to Watch; its socket may have been closed meanwhile. `is_last`: the thread
    // has taken no further event that it will report after this one. Always true without
    // `looks_ahead`.
    virtual void OnSocket(void* source, SocketEnd end, bool is_last) = 0;
    virtual void OnAcceptable() = 0;  // the listening socket
    virtual void OnTick() = 0;        // every tick period
    // Called after each look for events: does one piece of what was left for later. Returns whether
    // there may be more. If so, the thread looks for events without waiting, and then calls this
    // again.
    virtual bool DoLeft() = 0;
    // Whether something is left now; asked by a thread that is about to wait.
    virtual bool HasLeft() const = 0;
  };

  struct Options {
    std::string name;  // of the threads
    size_t thread_count = 1;
    Duration tick_period = std::chrono::seconds(1);
    // For a handler that leaves sockets for later. A thread takes many events at once if no other
    // thread waits for them or something may be left. Without this, a thread takes one event at a
    // time and leaves the rest to the other threads.
    bool looks_ahead = false;
  };

  // Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create(const Options& options,
                                                           Handler& handler);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Begins to wait for the listening socket, and starts the threads.
  absl::Status Start(int listener);
  // Returns when no thread is in the handler any more, and none will be.
  void Stop();

  // Reports what happens to the socket from now on, until it is closed: at least once.
  absl::Status Watch(int fd, void* source);
  static constexpr Duration kLater = std::chrono::milliseconds(1);

  // Something was left for later: where threads wait, one of them comes for it. Any thread.
  void WakeOne();
  // As WakeOne, but when kLater has passed. For one of the loop's own threads, which does what is
  // left itself if it is free before: waking another thread costs it more than most of that work.
  void WakeOneLater();
  // Whether this thread is one of the loop's own.
  bool IsOwnThread() const;
  // Reports the listening socket once more, if a client waits there.
  void AcceptAgain(int listener);

 private:
  EventLoop(const Options& options, Handler& handler);
  void Wait();
  int Look(bool has_more, std::span<epoll_event> events);
  void Report(const epoll_event& event, bool is_last);
  absl::Status Add(int fd, uint32_t events, void* source);

  const Options options_;
  Handler& handler_;
  int epoll_ = -1;
  int stop_ = -1;
  int timer_ = -1;
  int wake_ = -1;
  int later_ = -1;
  std::atomic<bool> stopping_ = false;
  std::atomic<size_t> waiting_threads_ = 0;
  std::atomic<bool> is_woken_ = false;      // by an event that no thread has taken yet
  std::atomic<bool> is_later_set_ = false;  // the timer, whose event no thread has taken yet
  std::unique_ptr<WorkerPool> threads_;
  std::vector<std::unique_ptr<FunctionTask>> workers_;
};

}  // namespace hps::server
