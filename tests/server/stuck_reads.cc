// A disk that does not answer: loaded before the C library (LD_PRELOAD), it makes every read of a
// file at an offset wait while the file exists that HPS_STUCK_READS names. That is a named pipe,
// which nobody writes to: opening it to read is the waiting. RocksDB reads its tables so. Page
// files are read so where the system has no io_uring; here it has none.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

// Files outside of a store, the configuration for one, are read at once.
bool IsOfStore(int file) {
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  char path[4096];
  const ssize_t size = readlink(link.c_str(), path, sizeof(path));
  return size > 0 && std::string_view(path, static_cast<size_t>(size)).find("/store/") !=
                         std::string_view::npos;
}

void WaitWhileStuck(int file) {
  const char* const pipe = std::getenv("HPS_STUCK_READS");
  if (pipe == nullptr || access(pipe, F_OK) != 0 || !IsOfStore(file)) return;
  const int opened = open(pipe, O_RDONLY | O_CLOEXEC);
  if (opened >= 0) close(opened);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t pread(int file, void* to, size_t bytes,
                                                                off_t offset) {
  WaitWhileStuck(file);
  return syscall(SYS_pread64, file, to, bytes, offset);
}

extern "C" __attribute__((visibility("default"))) ssize_t pread64(int file, void* to, size_t bytes,
                                                                  off64_t offset) {
  WaitWhileStuck(file);
  return syscall(SYS_pread64, file, to, bytes, offset);
}

// Of liburing.
struct io_uring;
struct io_uring_params;
extern "C" __attribute__((visibility("default"))) int io_uring_queue_init_params(unsigned,
                                                                                 io_uring*,
                                                                                 io_uring_params*) {
  return -EPERM;
}
