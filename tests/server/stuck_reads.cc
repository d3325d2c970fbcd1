// A disk that does not answer: loaded before the C library (LD_PRELOAD), it makes every read of a
// file at an offset wait while the file exists that HPS_STUCK_READS names. That is a named pipe,
// which nobody writes to: opening it to read is the waiting. RocksDB reads its tables so.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace {

void WaitWhileStuck() {
  const char* const pipe = std::getenv("HPS_STUCK_READS");
  if (pipe == nullptr || access(pipe, F_OK) != 0) return;
  const int opened = open(pipe, O_RDONLY | O_CLOEXEC);
  if (opened >= 0) close(opened);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t pread(int file, void* to, size_t bytes,
                                                                off_t offset) {
  WaitWhileStuck();
  return syscall(SYS_pread64, file, to, bytes, offset);
}

extern "C" __attribute__((visibility("default"))) ssize_t pread64(int file, void* to, size_t bytes,
                                                                  off64_t offset) {
  WaitWhileStuck();
  return syscall(SYS_pread64, file, to, bytes, offset);
}
