// RocksDB's messages in the process's log.
//
// Why not RocksDB's own log file: Debian's build of 7.8.3 asserts that writing it succeeds, and so
// ends the process on a full disk.
#pragma once

#include <rocksdb/env.h>

#include <cstdarg>

namespace hps {

// Thread-safe.
class InfoLog final : public rocksdb::Logger {
 public:
  InfoLog() : rocksdb::Logger(rocksdb::WARN_LEVEL) {}

  void Logv(const char* format, va_list arguments) override;
  void Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) override;
  // The dump of all options at open: not wanted.
  void LogHeader(const char* format, va_list arguments) override;

 protected:
  rocksdb::Status CloseImpl() override { return rocksdb::Status::OK(); }
};

}  // namespace hps
