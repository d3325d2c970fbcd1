#include "l3_rocksdb/files/background_errors.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/logging.h"

namespace hps {
namespace {

using rocksdb::BackgroundErrorReason;
using rocksdb::Status;

class BackgroundErrorsTest : public testing::Test {
 protected:
  BackgroundErrorsTest() { SetLogLevel(LogLevel::kOff); }
  ~BackgroundErrorsTest() override { SetLogLevel(LogLevel::kWarning); }

  Status Tell(BackgroundErrorReason reason, Status status) {
    errors_.OnBackgroundError(reason, &status);
    return status;
  }

  BackgroundErrors errors_;
};

TEST_F(BackgroundErrorsTest, ADiskErrorStopsNothingAndIsPendingUntilRecovered) {
  EXPECT_FALSE(errors_.any_pending());
  for (const auto reason : {BackgroundErrorReason::kFlush, BackgroundErrorReason::kManifestWrite,
                            BackgroundErrorReason::kMemTable}) {
    const Status fatal(Status::IOError("disk"), Status::Severity::kFatalError);
    EXPECT_EQ(Tell(reason, fatal).severity(), Status::Severity::kSoftError);
  }
  const BackgroundErrors::Pending pending = errors_.pending();
  EXPECT_TRUE(errors_.any_pending());
  EXPECT_TRUE(pending.error.IsIOError());
  EXPECT_EQ(pending.count, 3u);
  EXPECT_FALSE(pending.is_final);
  Tell(BackgroundErrorReason::kFlush, Status::NoSpace("meanwhile"));
  errors_.NoteRecovered(pending.count);
  EXPECT_TRUE(errors_.pending().error.IsNoSpace());
  EXPECT_TRUE(errors_.any_pending());
  errors_.NoteRecovered(4);
  EXPECT_TRUE(errors_.pending().error.ok());
  EXPECT_FALSE(errors_.any_pending());
}

TEST_F(BackgroundErrorsTest, ACompactionIsRetried) {
  EXPECT_TRUE(Tell(BackgroundErrorReason::kCompaction, Status::IOError("disk")).ok());
  EXPECT_FALSE(errors_.any_pending());
  EXPECT_EQ(errors_.pending().count, 0u);
  EXPECT_EQ(errors_.count(), 1u);
}

TEST_F(BackgroundErrorsTest, DamageIsFinalAndNamedAlsoAfterLaterErrors) {
  const Status damage(Status::Corruption("damage"), Status::Severity::kUnrecoverableError);
  EXPECT_EQ(Tell(BackgroundErrorReason::kCompaction, damage).severity(), damage.severity());
  Tell(BackgroundErrorReason::kFlush, Status::IOError("disk"));
  EXPECT_TRUE(errors_.pending().is_final);
  EXPECT_TRUE(errors_.pending().error.IsCorruption());
}

TEST_F(BackgroundErrorsTest, RocksDBNeverRecoversByItself) {
  bool recovers = true;
  errors_.OnErrorRecoveryBegin(BackgroundErrorReason::kFlush, Status::NoSpace(), &recovers);
  EXPECT_FALSE(recovers);
}

TEST_F(BackgroundErrorsTest, AWaitEndsWithAnyChangeOrAtItsDeadline) {
  const uint64_t seen = errors_.change_count();
  EXPECT_FALSE(errors_.WaitForChange(seen, RealClock().Now()));
  std::thread flush([&] { errors_.OnFlushCompleted(nullptr, rocksdb::FlushJobInfo()); });
  EXPECT_TRUE(errors_.WaitForChange(seen, kNoDeadline));
  flush.join();
  const uint64_t flushed = errors_.change_count();
  EXPECT_FALSE(errors_.WaitForChange(flushed, RealClock().Now()));
  Tell(BackgroundErrorReason::kFlush, Status::IOError("disk"));
  EXPECT_TRUE(errors_.WaitForChange(flushed, RealClock().Now()));
}

}  // namespace
}  // namespace hps
