// A disk that is full: loaded before the C library (LD_PRELOAD). While the file exists that
// HPS_LOW_DISK names, the file system says that it has no free space. While the one exists that
// HPS_FULL_DISK names, every write to a file of a store fails with "no space left".
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool Exists(const char* variable) {
  const char* const file = std::getenv(variable);
  return file != nullptr && access(file, F_OK) == 0;
}

bool IsOfStore(int file) {
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  char path[4096];
  const ssize_t size = readlink(link.c_str(), path, sizeof(path));
  return size > 0 && std::string_view(path, static_cast<size_t>(size)).find("/store/") !=
                         std::string_view::npos;
}

bool Fails(int file) {
  if (!Exists("HPS_FULL_DISK") || !IsOfStore(file)) return false;
  errno = ENOSPC;
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t write(int file, const void* from,
                                                                size_t bytes) {
  return Fails(file) ? -1 : syscall(SYS_write, file, from, bytes);
}

extern "C" __attribute__((visibility("default"))) ssize_t pwrite(int file, const void* from,
                                                                 size_t bytes, off_t offset) {
  return Fails(file) ? -1 : syscall(SYS_pwrite64, file, from, bytes, offset);
}

extern "C" __attribute__((visibility("default"))) ssize_t pwrite64(int file, const void* from,
                                                                   size_t bytes, off64_t offset) {
  return Fails(file) ? -1 : syscall(SYS_pwrite64, file, from, bytes, offset);
}

extern "C" __attribute__((visibility("default"))) int fallocate(int file, int mode, off_t offset,
                                                                off_t bytes) {
  return Fails(file) ? -1 : static_cast<int>(syscall(SYS_fallocate, file, mode, offset, bytes));
}

extern "C" __attribute__((visibility("default"))) int statvfs(const char* path,
                                                              struct statvfs* found) {
  using Function = int (*)(const char*, struct statvfs*);
  static const auto real = std::bit_cast<Function>(dlsym(RTLD_NEXT, "statvfs"));
  const int result = real(path, found);
  if (result == 0 && Exists("HPS_LOW_DISK")) found->f_bfree = found->f_bavail = 0;
  return result;
}
