#include "python/csrc/sessions.h"

#include <algorithm>
#include <unordered_map>

#include "nanobind/nanobind.h"
#include "python/csrc/fork.h"

namespace hps::python {
namespace {

// Sessions of threads that are not looking anything up.
constexpr size_t kIdleSessionsMax = 64;

struct Names {
  Mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<ThreadSessions>> sessions HPS_GUARDED_BY(mutex);
};

// Never destroyed: threads of frameworks may end after this library's other objects.
Names& AllNames() {
  static auto* const names = new Names;
  return *names;
}

}  // namespace

ThreadSessions::ThreadSessions(std::shared_ptr<Store> store, std::string model,
                               const SessionOptions& options)
    : store_(std::move(store)),
      model_(std::move(model)),
      options_(options),
      fork_count_(ForkCount()) {}

absl::StatusOr<std::unique_ptr<ThreadSessions>> ThreadSessions::Make(
    std::shared_ptr<Store> store, std::string model, const SessionOptions& options) {
  auto sessions = std::unique_ptr<ThreadSessions>(
      new ThreadSessions(std::move(store), std::move(model), options));
  const uint64_t thread = PyThread_get_thread_ident();
  absl::StatusOr<std::unique_ptr<LookupSession>> first = sessions->Take(thread);
  if (!first.ok()) return first.status();
  sessions->tables_.assign((*first)->tables().begin(), (*first)->tables().end());
  sessions->Return(thread, *std::move(first));
  return sessions;
}

absl::StatusOr<std::unique_ptr<LookupSession>> ThreadSessions::Take(uint64_t thread) {
  {
    const MutexLock lock(mutex_);
    const auto mine = std::ranges::find(idle_, thread, &Idle::thread);
    if (mine != idle_.end()) {
      std::unique_ptr<LookupSession> session = std::move(mine->session);
      idle_.erase(mine);
      return session;
    }
  }
  return store_->NewSession(model_, options_);
}

void ThreadSessions::Return(uint64_t thread, std::unique_ptr<LookupSession> session) {
  std::unique_ptr<LookupSession> oldest;  // ends without the lock
  const MutexLock lock(mutex_);
  if (idle_.size() == kIdleSessionsMax) {
    oldest = std::move(idle_.front().session);
    idle_.erase(idle_.begin());
  }
  idle_.push_back({thread, std::move(session)});
}

void PublishSessions(const std::string& name, const std::shared_ptr<ThreadSessions>& sessions) {
  Names& names = AllNames();
  const MutexLock lock(names.mutex);
  std::erase_if(names.sessions, [](const auto& entry) { return entry.second.expired(); });
  names.sessions[name] = sessions;
}

std::shared_ptr<ThreadSessions> FindSessions(const std::string& name) {
  Names& names = AllNames();
  const MutexLock lock(names.mutex);
  const auto found = names.sessions.find(name);
  return found == names.sessions.end() ? nullptr : found->second.lock();
}

}  // namespace hps::python
