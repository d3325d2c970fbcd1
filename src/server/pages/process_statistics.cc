#include "server/pages/process_statistics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace hps::server {
namespace {

std::string ReadText(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// When the machine was started.
double BootUnixSeconds() {
  std::istringstream lines(ReadText("/proc/stat"));
  for (std::string word; lines >> word;) {
    double seconds = 0;
    if (word == "btime" && lines >> seconds) return seconds;
  }
  return 0;
}

// The fields of /proc/self/stat behind the program's name, which may hold anything (proc(5)).
void ReadStat(ProcessStatistics* statistics) {
  const std::string text = ReadText("/proc/self/stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream fields(text.substr(name_end + 1));
  std::string word;
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  double user = 0;
  double system = 0;
  double started = 0;
  for (int field = 3; fields >> word; ++field) {
    if (field == 14) user = std::stod(word);
    if (field == 15) system = std::stod(word);
    if (field == 20) statistics->threads = std::stoull(word);
    if (field == 22) started = std::stod(word);
    if (field == 23) statistics->virtual_bytes = std::stoull(word);
    if (field == 24) {
      statistics->resident_bytes = std::stoull(word) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
      break;
    }
  }
  statistics->cpu_seconds = (user + system) / ticks_per_second;
  const double boot = BootUnixSeconds();
  if (boot > 0) statistics->start_unix_seconds = boot + started / ticks_per_second;
}

uint64_t CountOpenFiles() {
  std::error_code error;
  uint64_t count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // without the one that lists them
}

}  // namespace

ProcessStatistics ReadProcessStatistics() {
  ProcessStatistics statistics;
  ReadStat(&statistics);
  statistics.open_files = CountOpenFiles();
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) statistics.open_files_max = files.rlim_cur;
  return statistics;
}

}  // namespace hps::server
