// RocksDB sleeps for a second after each flush and compaction that failed. Where disks fail
// hundreds of times it sleeps a hundredth of that: this usleep comes before the C library's, for
// RocksDB too.
#include <unistd.h>

#include <ctime>

extern "C" __attribute__((visibility("default"))) int usleep(useconds_t microseconds) {
  const timespec time = {.tv_sec = 0,
                         .tv_nsec = static_cast<long>(microseconds % 100'000'000) * 10};
  return nanosleep(&time, nullptr);
}
