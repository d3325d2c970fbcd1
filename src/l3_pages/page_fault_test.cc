// System calls that fail and processes that die, at every step of writing and reading page files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "l3_pages/call_fault.h"
#include "l3_pages/page_file.h"
#include "l3_pages/page_table.h"
#include "l3_pages/test_page_table.h"
#include "l3_pages/uring_queue.h"
#include "testing/faults/fault_points.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

constexpr size_t kFaultRowBytes = 400;  // 9 rows per page
constexpr Key kFaultRowCount = 20'000;  // 2,223 pages: three pieces of a write

FaultPlan Fails(absl::StatusCode code, uint64_t arrivals_skipped, uint64_t times = 1) {
  return {FaultAction::kFail, absl::Status(code, "planned"), arrivals_skipped, times};
}

struct PlannedErrno {
  absl::StatusCode code;
  int error_number;
};
constexpr std::array<PlannedErrno, 3> kErrors = {{
    {absl::StatusCode::kUnavailable, EIO},
    {absl::StatusCode::kResourceExhausted, ENOSPC},
    {absl::StatusCode::kPermissionDenied, EACCES},
}};

// `status` has the code and names the file and the system's error.
void ExpectNames(const absl::Status& status, const PlannedErrno& planned, const std::string& path) {
  EXPECT_EQ(status.code(), planned.code) << status;
  EXPECT_NE(status.message().find(path), std::string::npos) << status;
  EXPECT_NE(status.message().find(std::generic_category().message(planned.error_number)),
            std::string::npos)
      << status;
}

class PageFaultTest : public testing::Test {
 protected:
  ~PageFaultTest() override { FaultPoints::DisarmAll(); }

  // Fails the first arrival at `point`, then the second one, and so on, until `run` reaches no
  // further one. Returns how many there were.
  static uint64_t ForEachArrival(const std::string& point, absl::StatusCode code,
                                 const std::function<absl::Status()>& run,
                                 const std::function<void(const absl::Status&)>& check) {
    for (uint64_t skipped = 0;; ++skipped) {
      FaultPoints::Arm(point, Fails(code, skipped));
      const absl::Status status = run();
      const bool reached = FaultPoints::Arrivals()[point] > skipped;
      FaultPoints::DisarmAll();
      if (!reached) {
        EXPECT_TRUE(status.ok()) << point << ": " << status;
        return skipped;
      }
      SCOPED_TRACE(absl::StrCat(point, ", arrival ", skipped));
      check(status);
    }
  }
};

class PageWriteFaultTest : public PageFaultTest {
 protected:
  std::string path() const { return directory_.Path("rows"); }

  absl::Status Write() const {
    HPS_ASSIGN_OR_RETURN(const auto writer,
                         PageFileWriter::Create(path(), kTestIncarnation, kFaultRowBytes));
    std::vector<std::byte> row(kFaultRowBytes);
    for (Key key = 0; key < kFaultRowCount; ++key) {
      StampedRow::Write(1, key, 0, row);
      HPS_RETURN_IF_ERROR(writer->Add({&key, 1}, {row.data(), 1, kFaultRowBytes, kFaultRowBytes}));
    }
    return writer->Finish().status();
  }
  // The file has all rows.
  void ExpectComplete() const {
    const auto reader = *PageReader::Create({});
    const PageTable::Part part{path(), kFaultRowCount, 0, kFaultRowCount - 1};
    const auto table = *PageTable::Open({kTestIncarnation, kFaultRowBytes, false, {part}}, *reader);
    const auto cursor = *table->Scan();
    std::vector<Key> keys(kFaultRowCount + 1);
    std::vector<std::byte> rows(keys.size() * kFaultRowBytes);
    const auto count =
        cursor->Next(keys, {rows.data(), keys.size(), kFaultRowBytes, kFaultRowBytes}, {});
    ASSERT_TRUE(count.ok()) << count.status();
    ASSERT_EQ(*count, static_cast<size_t>(kFaultRowCount));
    for (size_t i = 0; i < *count; ++i) {
      ASSERT_EQ(keys[i], static_cast<Key>(i));
      ASSERT_TRUE(StampedRow::Matches(1, keys[i], 0, {&rows[i * kFaultRowBytes], kFaultRowBytes}));
    }
  }
  static std::map<std::string, uint64_t> PointsOf(const std::function<absl::Status()>& run) {
    FaultPoints::Record();
    EXPECT_TRUE(run().ok());
    std::map<std::string, uint64_t> points = FaultPoints::Arrivals();
    std::erase_if(points, [](const auto& point) { return !point.first.starts_with("l3_pages."); });
    return points;
  }

  const TestDirectory directory_;
};

TEST_F(PageWriteFaultTest, ACallThatFailsLeavesNoFile) {
  directory_.Write("other", "precious");
  for (const std::string call : {"create", "write", "sync", "sync_directory"}) {
    for (const PlannedErrno& planned : kErrors) {
      const uint64_t arrivals = ForEachArrival(
          absl::StrCat("l3_pages.", call, ".call"), planned.code,
          [&] {
            std::filesystem::remove(path());
            return Write();
          },
          [&](const absl::Status& status) {
            ExpectNames(status, planned, path());
            EXPECT_EQ(directory_.List(), std::vector<std::string>{"other"});
          });
      EXPECT_GE(arrivals, call == "write" ? 6u : 1u) << call;
    }
  }
  ExpectComplete();
  EXPECT_EQ(directory_.Read("other"), "precious");
}

TEST_F(PageWriteFaultTest, AWriteNamesItsPage) {
  FaultPoints::Arm("l3_pages.write.call", Fails(absl::StatusCode::kResourceExhausted, 1));
  const absl::Status status = Write();
  EXPECT_NE(status.message().find("(from page 1024 on)"), std::string::npos) << status;
}

TEST_F(PageWriteFaultTest, ShortWritesAreContinued) {
  ASSERT_TRUE(Write().ok());
  const std::string bytes = directory_.Read("rows");
  std::filesystem::remove(path());
  FaultPoints::Arm("l3_pages.write.call", Fails(absl::StatusCode::kOutOfRange, 0, UINT64_MAX));
  ASSERT_TRUE(Write().ok());
  EXPECT_TRUE(directory_.Read("rows") == bytes);
}

// Where direct I/O is refused, at the first write or at a later one, the rest goes through the page
// cache.
TEST_F(PageWriteFaultTest, DirectWritingMayBeRefused) {
  ASSERT_TRUE(Write().ok());
  const std::string bytes = directory_.Read("rows");
  for (const uint64_t skipped : {0u, 2u}) {
    std::filesystem::remove(path());
    FaultPoints::Arm("l3_pages.write.call", Fails(absl::StatusCode::kInvalidArgument, skipped));
    ASSERT_TRUE(Write().ok());
    EXPECT_TRUE(directory_.Read("rows") == bytes);
  }
}

TEST_F(PageWriteFaultTest, AStepThatFailsLeavesNoFile) {
  for (const auto& [point, count] : PointsOf([&] { return Write(); })) {
    std::filesystem::remove(path());
    FaultPoints::Arm(point, Fails(absl::StatusCode::kUnavailable, count / 2));
    EXPECT_TRUE(absl::IsUnavailable(Write())) << point;
    FaultPoints::DisarmAll();
    EXPECT_EQ(directory_.List(), std::vector<std::string>{}) << point;
  }
}

// What a killed process leaves does not open, or has all rows. Between footer and header, one of
// the two is missing.
using PageWriteFaultDeathTest = PageWriteFaultTest;
TEST_F(PageWriteFaultDeathTest, AnyStepMayBeTheLast) {
  const std::map<std::string, uint64_t> points = PointsOf([&] { return Write(); });
  for (const char* step : {"create.after", "write.before_piece", "finish.before_index",
                           "finish.before_header", "finish.before_sync", "finish.after_sync"}) {
    EXPECT_TRUE(points.contains(absl::StrCat("l3_pages.", step))) << step;
  }
  size_t complete = 0;
  for (const auto& [point, count] : points) {
    for (const uint64_t skipped : std::set<uint64_t>{0, count / 2, count - 1}) {
      SCOPED_TRACE(absl::StrCat(point, ", arrival ", skipped));
      std::filesystem::remove(path());
      EXPECT_EXIT(
          {
            FaultPoints::Arm(point, {.action = FaultAction::kAbort, .arrivals_skipped = skipped});
            static_cast<void>(Write());
          },
          testing::KilledBySignal(SIGKILL), "");
      const auto opened = PageFile::Open({path(), kTestIncarnation, kFaultRowBytes, false});
      if (opened.ok()) {
        ++complete;
        ExpectComplete();
      } else {
        EXPECT_TRUE(absl::IsDataLoss(opened.status()) || absl::IsNotFound(opened.status()))
            << opened.status();
      }
    }
  }
  EXPECT_GE(complete, 5u);  // the steps behind the footer
}

// Catches: the system takes a read that it did not take at first, when the file may be closed.
TEST(UringFaultTest, AReadThatIsNotTakenNeverBegins) {
  const auto queue = MakeUringQueue();
  if (!queue.ok()) GTEST_SKIP() << "this system refuses io_uring";
  const TestDirectory directory;
  const std::string path = directory.Write("block", std::string(kPageBlockBytes, 'x'));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  std::vector<std::byte> first(kPageBlockBytes), second(kPageBlockBytes);
  std::array<EndedPageRead, 1> ended;
  const auto expect_not_taken = [&] {
    (*queue)->Begin({file, 0, first, 3});
    EXPECT_EQ((*queue)->Await(ended, kNoDeadline).value(), 1u);
    EXPECT_EQ(ended[0].slot, 3u);
    EXPECT_EQ(ended[0].result, -EAGAIN);
  };
  FaultPoints::Arm("l3_pages.submit", Fails(absl::StatusCode::kUnavailable, 0));
  expect_not_taken();
  // Nor where no new ring can be made.
  FaultPoints::Arm("l3_pages.ring", Fails(absl::StatusCode::kUnavailable, 0));
  expect_not_taken();
  FaultPoints::DisarmAll();
  (*queue)->Begin({file, 0, second, 4});
  EXPECT_EQ((*queue)->Await(ended, kNoDeadline).value(), 1u);
  EXPECT_EQ(ended[0].slot, 4u);
  EXPECT_EQ(ended[0].result, static_cast<int>(kPageBlockBytes));
  EXPECT_EQ(first, std::vector<std::byte>(kPageBlockBytes));
  ::close(file);
}

// Reading, by io_uring and by threads.
class PageReadFaultTest : public PageFaultTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    reader_ = *PageReader::Create({.use_uring = GetParam(), .thread_count = 4});
    if (GetParam() && !reader_->uses_uring()) GTEST_SKIP() << "this system refuses io_uring";
    TestPageTable::Rows rows;
    for (Key key = 0; key < kFaultRowCount; ++key) rows[key * 3] = 1;
    table_.Write(std::move(rows));
    keys_ = table_.Keys();
    opened_ = *table_.Open(*reader_);
  }

  static constexpr size_t kPerPage = 9;
  // Fetches all keys; those of one page have `outcome`, all others are hit. Returns the page.
  size_t ExpectOnePage(FetchOutcome outcome, absl::Status* status) {
    std::vector<std::byte> bytes(keys_.size() * kFaultRowBytes);
    std::vector<FetchOutcome> outcomes(keys_.size());
    *status =
        opened_
            ->Fetch({keys_, {bytes.data(), keys_.size(), kFaultRowBytes, kFaultRowBytes}, outcomes},
                    kNoDeadline)
            .status();
    const auto first = std::find(outcomes.begin(), outcomes.end(), outcome) - outcomes.begin();
    const size_t page = static_cast<size_t>(first) / kPerPage;
    for (size_t i = 0; i < keys_.size(); ++i) {
      const bool hit = outcomes[i] == FetchOutcome::kHit;
      EXPECT_EQ(outcomes[i], i / kPerPage == page ? outcome : FetchOutcome::kHit) << i;
      if (hit) {
        EXPECT_TRUE(
            StampedRow::Matches(1, keys_[i], 1, {&bytes[i * kFaultRowBytes], kFaultRowBytes}));
      }
    }
    return page;
  }

  TestPageTable table_{kFaultRowBytes};
  std::unique_ptr<PageReader> reader_;
  std::unique_ptr<PageTable> opened_;
  std::vector<Key> keys_;
};

TEST_P(PageReadFaultTest, AReadThatFailsMissesItsPageOnly) {
  for (const PlannedErrno& planned : kErrors) {
    for (const uint64_t skipped : {0u, 70u, 2'222u}) {
      FaultPoints::Arm("l3_pages.fetch.read", Fails(planned.code, skipped));
      absl::Status status;
      const size_t page = ExpectOnePage(FetchOutcome::kMiss, &status);
      ExpectNames(status, {absl::StatusCode::kUnavailable, planned.error_number}, table_.path());
      EXPECT_NE(status.message().find(absl::StrCat("page ", page, " of ")), std::string::npos)
          << status;
      FaultPoints::DisarmAll();
      EXPECT_EQ(table_.Fetch(*opened_, keys_).counts.hits, keys_.size());
    }
  }
}

TEST_P(PageReadFaultTest, AFlippedBitLosesItsPageOnly) {
  for (const uint64_t skipped : {0u, 70u, 2'222u}) {
    FaultPoints::Arm("l3_pages.fetch.read", Fails(absl::StatusCode::kDataLoss, skipped));
    absl::Status status;
    ExpectOnePage(FetchOutcome::kLost, &status);
    EXPECT_TRUE(status.ok()) << status;
    FaultPoints::DisarmAll();
    EXPECT_EQ(table_.Fetch(*opened_, keys_).counts.hits, keys_.size());
  }
}

TEST_P(PageReadFaultTest, AShortReadIsReadAgain) {
  FaultPoints::Arm("l3_pages.fetch.read", Fails(absl::StatusCode::kOutOfRange, 0, UINT64_MAX));
  EXPECT_EQ(table_.Fetch(*opened_, keys_).counts.hits, keys_.size());
  // ... and a file that has become shorter has lost its page.
  FaultPoints::Arm("l3_pages.fetch.read", Fails(absl::StatusCode::kOutOfRange, 100));
  FaultPoints::Arm("l3_pages.fetch.read_alone", Fails(absl::StatusCode::kOutOfRange, 0));
  absl::Status status;
  ExpectOnePage(FetchOutcome::kLost, &status);
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Queues, PageReadFaultTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Uring" : "Threads"; });

class PageOpenFaultTest : public PageReadFaultTest {};

// Header, footer, and the index in one read. An error of the disk alone is none of the table's.
TEST_P(PageOpenFaultTest, OpeningNamesTheCallThatFails) {
  for (const std::string call : {"open", "read"}) {
    for (const PlannedErrno& planned : kErrors) {
      if (planned.error_number == EIO) continue;
      const uint64_t arrivals = ForEachArrival(
          absl::StrCat("l3_pages.", call, ".call"), planned.code,
          [&] { return table_.Open(*reader_).status(); },
          [&](const absl::Status& status) { ExpectNames(status, planned, table_.path()); });
      EXPECT_EQ(arrivals, call == "read" ? 3u : 1u);
    }
  }
}

TEST_P(PageOpenFaultTest, AFlippedBitIsRepairedFromItsCopy) {
  ForEachArrival(
      "l3_pages.read.call", absl::StatusCode::kDataLoss,
      [&]() -> absl::Status {
        HPS_ASSIGN_OR_RETURN(opened_, table_.Open(*reader_));
        return absl::OkStatus();
      },
      [&](const absl::Status& status) {
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(opened_->is_impaired());
        EXPECT_EQ(table_.Fetch(*opened_, keys_).counts.hits, keys_.size());
      });
}

TEST_P(PageOpenFaultTest, AnUnreadableHeaderFooterOrIndexIsReplaced) {
  for (const uint64_t skipped : {0u, 1u, 2u}) {
    FaultPoints::Arm("l3_pages.read.call", Fails(absl::StatusCode::kUnavailable, skipped));
    const auto opened = table_.Open(*reader_);
    FaultPoints::DisarmAll();
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE((*opened)->is_impaired());
    EXPECT_EQ(table_.Fetch(**opened, keys_).counts.hits, keys_.size());
  }
}

// Neither header nor footer can be read, or neither index nor pages.
TEST_P(PageOpenFaultTest, AnUnreadableFileMissesItsKeys) {
  for (const uint64_t skipped : {0u, 2u}) {
    FaultPoints::Arm("l3_pages.read.call", Fails(absl::StatusCode::kUnavailable, skipped, 2));
    opened_ = *table_.Open(*reader_);
    FaultPoints::DisarmAll();
    EXPECT_TRUE(opened_->is_impaired());
    std::vector<std::byte> row(kFaultRowBytes);
    std::vector<FetchOutcome> outcomes(1);
    const absl::Status status = opened_
                                    ->Fetch({std::span(keys_).first(1),
                                             {row.data(), 1, kFaultRowBytes, kFaultRowBytes},
                                             outcomes},
                                            kNoDeadline)
                                    .status();
    ExpectNames(status, kErrors[0], table_.path());
    EXPECT_EQ(outcomes[0], FetchOutcome::kMiss);
    EXPECT_TRUE(absl::IsUnavailable(opened_->FindDamage().status()));
  }
}

TEST_P(PageOpenFaultTest, ShortReadsAreContinued) {
  FaultPoints::Arm("l3_pages.read.call", Fails(absl::StatusCode::kOutOfRange, 0, UINT64_MAX));
  opened_ = *table_.Open(*reader_);
  EXPECT_FALSE(opened_->is_impaired());
  EXPECT_TRUE(opened_->FindDamage()->empty());
  FaultPoints::DisarmAll();
  EXPECT_EQ(table_.Fetch(*opened_, keys_).counts.hits, keys_.size());
}

TEST_P(PageOpenFaultTest, AWalkNamesTheCallThatFails) {
  for (const PlannedErrno& planned : kErrors) {
    const uint64_t arrivals = ForEachArrival(
        "l3_pages.read.call", planned.code, [&] { return opened_->FindDamage().status(); },
        [&](const absl::Status& status) {
          ExpectNames(status, planned, table_.path());
          EXPECT_NE(status.message().find("(pages "), std::string::npos) << status;
        });
    EXPECT_EQ(arrivals, 9u);
  }
}

TEST_P(PageOpenFaultTest, AWalkFindsAFlippedBit) {
  FaultPoints::Arm("l3_pages.read.call", Fails(absl::StatusCode::kDataLoss, 1));
  const auto damage = opened_->FindDamage();
  ASSERT_TRUE(damage.ok()) << damage.status();
  ASSERT_EQ(damage->size(), 1u);
  EXPECT_EQ(damage->front().row_count, kPerPage);
  EXPECT_EQ(damage->front().first, Key{(256 + 128) * kPerPage * 3});
}

// Where direct I/O is refused, rows are read through the page cache.
TEST_P(PageOpenFaultTest, DirectReadingMayBeRefused) {
  FaultPoints::Arm("l3_pages.open.turn_direct", Fails(absl::StatusCode::kInvalidArgument, 0));
  opened_ = *table_.Open(*reader_, true);
  EXPECT_EQ(table_.Fetch(*opened_, keys_).counts.hits, keys_.size());
  EXPECT_TRUE(opened_->FindDamage()->empty());
}

INSTANTIATE_TEST_SUITE_P(Queues, PageOpenFaultTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Uring" : "Threads"; });

}  // namespace
}  // namespace hps
