#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace hps {
namespace {

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made =
        std::make_shared<spdlog::logger>("hps", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %v", spdlog::pattern_time_type::utc);
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

void Write(spdlog::level::level_enum level, std::string_view text) {
  if (!Logger().should_log(level)) return;
  std::string line(text);  // what others have written (RocksDB's texts) may hold line breaks
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  Logger().log(level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

void SetLogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return Logger().set_level(spdlog::level::debug);
    case LogLevel::kInfo:
      return Logger().set_level(spdlog::level::info);
    case LogLevel::kWarning:
      return Logger().set_level(spdlog::level::warn);
    case LogLevel::kError:
      return Logger().set_level(spdlog::level::err);
    case LogLevel::kOff:
      return Logger().set_level(spdlog::level::off);
  }
}

void LogDebug(std::string_view line) { Write(spdlog::level::debug, line); }
void LogInfo(std::string_view line) { Write(spdlog::level::info, line); }
void LogWarning(std::string_view line) { Write(spdlog::level::warn, line); }
void LogError(std::string_view line) { Write(spdlog::level::err, line); }

}  // namespace hps
