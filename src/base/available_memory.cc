#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace hps {
namespace {

// The files of a control group, by version.
struct GroupFiles {
  const char* directory;  // where its groups are
  const char* limit;
  const char* used;
  const char* file_pages;  // in memory.stat: pages of files that were not used lately
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                  "inactive_file"};

// A file with one number; a group without a limit has "max" there.
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The number behind a word that begins a line.
std::optional<uint64_t> NumberBehind(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream parts(line);
    std::string first;
    uint64_t number = 0;
    if (parts >> first >> number && first == word) return number;
  }
  return std::nullopt;
}

// UINT64_MAX if the group has no limit, or is not there.
uint64_t LeftInGroup(const std::string& group, const GroupFiles& files) {
  const std::optional<uint64_t> limit = NumberIn(group + "/" + files.limit);
  const std::optional<uint64_t> used = NumberIn(group + "/" + files.used);
  if (!limit.has_value() || !used.has_value()) return UINT64_MAX;
  const uint64_t file_pages =
      NumberBehind(group + "/memory.stat", files.file_pages).value_or(uint64_t{0});
  const uint64_t kept = *used - std::min(*used, file_pages);
  return *limit - std::min(*limit, kept);
}

// Of a group and of all that are around it. A container often sees its own group as the outermost
// one, under another path than the file says.
uint64_t LeftInGroups(const std::string& root, std::string path, const GroupFiles& files) {
  uint64_t left = UINT64_MAX;
  for (;;) {
    left = std::min(left, LeftInGroup(root + files.directory + path, files));
    if (path.empty()) return left;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Whether the list of controllers, "cpu,memory", has the one of memory.
bool HasMemory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

uint64_t AvailableMemoryBytes(const std::string& root) {
  uint64_t available = UINT64_MAX;
  if (const auto kib = NumberBehind(root + "/proc/meminfo", "MemAvailable:"))
    available = std::min(available, *kib * 1024);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" of version 2, "4:cpu,memory:/path" of version 1.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    if (controllers.empty()) {
      available = std::min(available, LeftInGroups(root, path, kVersion2));
    } else if (HasMemory(controllers)) {
      available = std::min(available, LeftInGroups(root, path, kVersion1));
    }
  }
  return available;
}

}  // namespace hps
