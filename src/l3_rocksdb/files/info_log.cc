#include "l3_rocksdb/files/info_log.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "base/logging.h"

namespace hps {

void InfoLog::Logv(const char* format, va_list arguments) {
  Logv(rocksdb::INFO_LEVEL, format, arguments);
}

void InfoLog::Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) {
  if (level < GetInfoLogLevel()) return;
  std::array<char, 1024> line{};
  const int length = std::vsnprintf(line.data(), line.size(), format, arguments);
  if (length < 0) return;
  std::string text("rocksdb: ");
  text.append(line.data(), std::min<size_t>(static_cast<size_t>(length), line.size() - 1));
  switch (level) {
    case rocksdb::DEBUG_LEVEL:
      return LogDebug(text);
    case rocksdb::INFO_LEVEL:
    case rocksdb::WARN_LEVEL:  // not actionable
      return LogInfo(text);
    default:
      return LogError(text);
  }
}

void InfoLog::LogHeader(const char*, va_list) {}

}  // namespace hps
