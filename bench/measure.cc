#include "bench/measure.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>

namespace hps::bench {

double Quantile(std::span<double> values, double quantile) {
  if (values.empty()) return 0;
  const double count = static_cast<double>(values.size());
  const double rank = std::clamp(std::ceil(quantile * count), 1.0, count);
  const auto at = values.begin() + static_cast<ptrdiff_t>(rank) - 1;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

bool PinThread(size_t core) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    return set;
  }();
  const int count = CPU_COUNT(&allowed);
  if (count == 0) return false;
  size_t wanted = core % static_cast<size_t>(count);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return pthread_setaffinity_np(pthread_self(), sizeof(one), &one) == 0;
  }
  return false;
}

double RunOnThreads(size_t thread_count, const std::function<void(size_t)>& body) {
  std::barrier start(static_cast<ptrdiff_t>(thread_count) + 1);
  std::vector<double> ends(thread_count, 0);
  std::vector<std::thread> threads;
  Stopwatch watch;
  for (size_t i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      PinThread(i);
      start.arrive_and_wait();
      body(i);
      ends[i] = watch.seconds();
    });
  }
  // Taken before the last arrival: nobody can have begun by then.
  const double begin = watch.seconds();
  start.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(ends.begin(), ends.end()) - begin;
}

}  // namespace hps::bench
