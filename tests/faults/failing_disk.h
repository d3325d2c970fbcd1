// A store on a disk of its own that fails as a test plans it, at any call that writes.
#pragma once

#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "base/logging.h"
#include "testing/trials.h"
#include "tests/faults/fault_file_system.h"
#include "tests/faults/temporary_directory.h"
#include "tests/faults/test_fault_store.h"

namespace hps {

class FailingDiskTest : public testing::Test {
 protected:
  // The log would tell of hundreds of planned errors.
  FailingDiskTest() { SetLogLevel(LogLevel::kOff); }
  ~FailingDiskTest() override { SetLogLevel(LogLevel::kWarning); }

  RocksStoreOptions Options(SyncMode sync) const {
    RocksStoreOptions options = TestStoreOptions(directory_.path("store"));
    options.config.sync = sync;
    options.env = env_.get();
    return options;
  }
  // A directory of its own for every trial.
  void Clean() { std::filesystem::remove_all(directory_.path("store")); }

  const TemporaryDirectory directory_;
  const std::shared_ptr<FaultFileSystem> disk_ = std::make_shared<FaultFileSystem>();
  const std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
};

// Some calls that write, of some files, once or from then on. Reads go on.
inline FileFaultPlan AnyWriteFault(std::mt19937_64& random) {
  constexpr const char* kPaths[] = {"", "", ".log", ".sst", "MANIFEST", "CURRENT", "dbtmp"};
  constexpr uint32_t kCalls[] = {kFileCreate | kFileAppend | kFileSync | kFileChange, kFileAppend,
                                 kFileSync, kFileCreate, kFileChange};
  return {.nth = random() % 40,
          .sticky = random() % 4 != 0,
          .calls = kCalls[random() % std::size(kCalls)],
          .path_contains = kPaths[random() % std::size(kPaths)],
          .status = random() % 2 == 0 ? rocksdb::IOStatus::IOError("a planned fault")
                                      : rocksdb::IOStatus::NoSpace("a planned want of space")};
}

}  // namespace hps
