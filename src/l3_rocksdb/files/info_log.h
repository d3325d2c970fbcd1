// Writes RocksDB's messages to the log of the process.
//
// RocksDB's own log file is not used: Debian's build of 7.8.3 asserts that writing it succeeds, so
// a full disk would end the process.
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
  // Drops the dump of all options that RocksDB writes when it opens.
  void LogHeader(const char* format, va_list arguments) override;

 protected:
  rocksdb::Status CloseImpl() override { return rocksdb::Status::OK(); }
};

}  // namespace hps
