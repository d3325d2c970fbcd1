// What the system knows of this process: CPU, memory, files, age. Linux' /proc.
#pragma once

#include <cstdint>

namespace hps::server {

// 0 = the system would not tell.
struct ProcessStatistics {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  uint64_t open_files = 0;
  uint64_t open_files_max = 0;
  uint64_t threads = 0;
  double start_unix_seconds = 0;
};

// Thread-safe; reads a few small files of /proc.
ProcessStatistics ReadProcessStatistics();

}  // namespace hps::server
