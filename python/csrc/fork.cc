#include "python/csrc/fork.h"

#include <pthread.h>

#include <atomic>
#include <utility>
#include <vector>

namespace hps::python {
namespace {

std::atomic<uint64_t>& Counter() {
  static std::atomic<uint64_t> counter = 0;
  return counter;
}

void CountFork() { Counter().fetch_add(1, std::memory_order_relaxed); }

}  // namespace

uint64_t ForkCount() {
  static const bool registered = pthread_atfork(nullptr, nullptr, CountFork) == 0;
  return registered ? Counter().load(std::memory_order_relaxed) : 0;
}

void KeepForever(std::shared_ptr<void> object) {
  static auto* const kept = new std::vector<std::shared_ptr<void>>();
  kept->push_back(std::move(object));
}

}  // namespace hps::python
