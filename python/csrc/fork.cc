#include "python/csrc/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "python/csrc/errors.h"

namespace hps::python {
namespace {

std::atomic<uint64_t>& Counter() {
  static std::atomic<uint64_t> counter = 0;
  return counter;
}

// RocksDB's handler of exit() waits for threads that a forked process does not have.
void EndNow(int status, void*) {
  std::fflush(nullptr);
  _exit(status);
}

void CountFork() {
  Counter().fetch_add(1, std::memory_order_relaxed);
  on_exit(EndNow, nullptr);  // called before the handlers that were there when it was forked
}

}  // namespace

uint64_t ForkCount() {
  static const bool registered = pthread_atfork(nullptr, nullptr, CountFork) == 0;
  return registered ? Counter().load(std::memory_order_relaxed) : 0;
}

void CheckFork(bool writes) {
  static const uint64_t first_use = ForkCount();
  if (!writes || ForkCount() == first_use) return;
  Raise(absl::FailedPreconditionError(
      "this process was forked from one that had used hps: it can only read stores (mode='r'). "
      "Start processes that write by 'spawn' or 'forkserver' (multiprocessing.set_start_method)"));
}

void KeepForever(std::shared_ptr<void> object) {
  static auto* const kept = new std::vector<std::shared_ptr<void>>();
  kept->push_back(std::move(object));
}

}  // namespace hps::python
