#include "base/log.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log_limiter.h"
#include "base/macros.h"
#include "base/mutex.h"
#include "base/text.h"

namespace hps {
namespace {

// spdlog writes the time and the level; what follows is ours.
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

std::string TextLine(std::string_view line, uint64_t left_out) {
  std::string text = PrintableText(line);
  if (left_out > 0) absl::StrAppend(&text, " (", left_out, " like it were left out)");
  return text;
}

// Of the place only the file's name: where hps was built is nobody's business.
std::string JsonMembers(std::string_view line, std::string_view file, int line_number,
                        uint64_t left_out) {
  std::string json = R"("message":)";
  AppendJsonString(line, &json);
  const std::string_view name = file.substr(file.rfind('/') + 1);  // npos + 1 = 0
  json += R"(,"place":)";
  AppendJsonString(std::string(name) + ':' + std::to_string(line_number), &json);
  if (left_out > 0) absl::StrAppend(&json, R"(,"left_out":)", left_out);
  return json;
}

absl::StatusOr<std::shared_ptr<spdlog::logger>> MakeLogger(const LogConfig& config) {
  spdlog::sink_ptr sink;
  if (config.file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
  } else {
    // Opened here first: for the mode of a new file, and for a code of what went wrong.
    const int file = open(config.file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (file < 0) {
      return absl::ErrnoToStatus(
          errno, absl::StrCat("log: '", config.file, "' can't be opened to append"));
    }
    close(file);
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(config.file);
    } catch (const spdlog::spdlog_ex& error) {
      return absl::UnavailableError(absl::StrCat("log: ", error.what()));
    }
  }
  auto made = std::make_shared<spdlog::logger>("hps", std::move(sink));
  made->set_pattern(config.format == LogFormat::kJson ? kJsonPattern : kTextPattern,
                    spdlog::pattern_time_type::utc);
  made->set_level(spdlog::level::trace);
  made->flush_on(spdlog::level::trace);
  return made;
}

class Log {
 public:
  absl::Status Configure(const LogConfig& config) HPS_EXCLUDES(mutex_) {
    HPS_ASSIGN_OR_RETURN(std::shared_ptr<spdlog::logger> logger, MakeLogger(config));
    MutexLock lock(mutex_);
    logger_ = std::move(logger);
    config_ = config;
    level_ = config.level;
    return absl::OkStatus();
  }

  absl::Status Reopen() HPS_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    HPS_ASSIGN_OR_RETURN(logger_, MakeLogger(config_));
    return absl::OkStatus();
  }

  void set_level(LogLevel level) { level_ = level; }

  void Write(LogLevel level, std::string_view line, const char* file, int line_number)
      HPS_EXCLUDES(mutex_) {
    if (level < level_.load(std::memory_order_relaxed)) return;
    MutexLock lock(mutex_);
    const std::optional<uint64_t> left_out = limiter_.Admit(file, line_number, RealClock().Now());
    if (!left_out.has_value()) {
      ++counts_.left_out;
      return;
    }
    if (logger_ == nullptr) logger_ = MakeLogger(config_).value();  // stderr: can't fail
    ++counts_.written[static_cast<size_t>(level)];
    const std::string text = config_.format == LogFormat::kJson
                                 ? JsonMembers(line, file, line_number, *left_out)
                                 : TextLine(line, *left_out);
    constexpr std::array kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                    spdlog::level::err};
    logger_->log(kLevels[static_cast<size_t>(level)],
                 spdlog::string_view_t(text.data(), text.size()));
  }

  LogCounts counts() HPS_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return counts_;
  }

 private:
  std::atomic<LogLevel> level_ = LogLevel::kWarning;
  Mutex mutex_;
  LogConfig config_ HPS_GUARDED_BY(mutex_);
  std::shared_ptr<spdlog::logger> logger_ HPS_GUARDED_BY(mutex_);
  LogLimiter limiter_ HPS_GUARDED_BY(mutex_);
  LogCounts counts_ HPS_GUARDED_BY(mutex_);
};

Log& TheLog() {
  static Log log;
  return log;
}

}  // namespace

absl::Status ConfigureLog(const LogConfig& config) { return TheLog().Configure(config); }
absl::Status ReopenLog() { return TheLog().Reopen(); }
void SetLogLevel(LogLevel level) { TheLog().set_level(level); }
LogCounts CountLogLines() { return TheLog().counts(); }

void LogDebug(std::string_view line, const char* file, int line_number) {
  TheLog().Write(LogLevel::kDebug, line, file, line_number);
}
void LogInfo(std::string_view line, const char* file, int line_number) {
  TheLog().Write(LogLevel::kInfo, line, file, line_number);
}
void LogWarning(std::string_view line, const char* file, int line_number) {
  TheLog().Write(LogLevel::kWarning, line, file, line_number);
}
void LogError(std::string_view line, const char* file, int line_number) {
  TheLog().Write(LogLevel::kError, line, file, line_number);
}

}  // namespace hps
