#include "base/logging.h"

#include <fcntl.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
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

// spdlog writes the time and the level; the rest is written here.
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

std::string TextLine(std::string_view line, uint64_t left_out) {
  std::string text = PrintableText(line);
  if (left_out > 0) absl::StrAppend(&text, " (", left_out, " similar lines were suppressed)");
  return text;
}

// Only the file's name: the build directory is not to be disclosed.
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

// Appends each line to a file with one write, so that no line is left in a buffer if the process is
// killed. A line whose write fails is lost; the first such failure is reported on stderr.
class AppendingSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit AppendingSink(int file) : file_(file) {}
  ~AppendingSink() override { close(file_); }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const bool failed = !Append(file_, {line.data(), line.size()});
    if (failed && !failed_) {
      Append(STDERR_FILENO,
             absl::StrCat("hps: the log can't be written: ", std::strerror(errno), "\n"));
    }
    failed_ = failed;
  }
  static bool Append(int file, std::string_view line) {
    while (!line.empty()) {
      const ssize_t written = write(file, line.data(), line.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      line.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }
  void flush_() override {}

  const int file_;
  bool failed_ = false;
};

// Opening and writing must not block, as they would on a pipe without a reader: neither the start
// nor a request that logs may wait for the log.
absl::StatusOr<spdlog::sink_ptr> OpenFile(const std::string& path) {
  const int file =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
  const int error = errno;
  struct stat info {};
  const bool is_there = file < 0 ? stat(path.c_str(), &info) == 0 : fstat(file, &info) == 0;
  // A device: /dev/null, a terminal.
  if (is_there && !S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)) {
    if (file >= 0) close(file);
    return absl::InvalidArgumentError(
        absl::StrCat("log: '", path, "': expected a regular file, found something else (a ",
                     S_ISDIR(info.st_mode) ? "directory" : "pipe, socket or disk", ")"));
  }
  if (file < 0)
    return absl::ErrnoToStatus(error, absl::StrCat("log: '", path, "' can't be opened to append"));
  return std::make_shared<AppendingSink>(file);
}

absl::StatusOr<std::shared_ptr<spdlog::logger>> MakeLogger(const LogConfig& config) {
  spdlog::sink_ptr sink;
  if (config.file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
  } else {
    HPS_ASSIGN_OR_RETURN(sink, OpenFile(config.file));
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
