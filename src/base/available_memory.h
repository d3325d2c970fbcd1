// How much memory this process may still use: what the system has, and what its control groups (the
// limits of containers) leave of it.
#pragma once

#include <cstdint>
#include <string>

namespace hps {

// Bytes that are available now: the least of MemAvailable of /proc/meminfo and of what each control
// group of this process, and each group around it, has left. Groups of version 1 and 2 are read.
// Pages of files that a group could give up count as left. What can't be read limits nothing;
// UINT64_MAX = nothing can be read.
//
// `root` is a directory that stands for "/", in tests. Reads a few small files.
uint64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace hps
