// The contract of page queues, for io_uring and for threads.
#include "l3_pages/page_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <thread>

#include "base/limits.h"
#include "l3_pages/page_reader.h"
#include "l3_pages/pread_queue.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

constexpr size_t kBlock = 4096;
constexpr size_t kBlockCount = 1000;

// Occupies a worker until the latch opens.
class BlockedWorker final : public Task {
 public:
  explicit BlockedWorker(Latch& go_on) : go_on_(go_on) {}
  void Run() override { go_on_.WaitUntil(kNoDeadline); }

 private:
  Latch& go_on_;
};

class PageQueueTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    reader_ = *PageReader::Create({.reads_max = 100, .use_uring = GetParam(), .thread_count = 3});
    if (GetParam() && !reader_->uses_uring()) GTEST_SKIP() << "this system refuses io_uring";
    std::string bytes(kBlockCount * kBlock, '\0');
    for (size_t i = 0; i < kBlockCount; ++i)
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * kBlock), kBlock, Fill(i));
    directory_.Write("blocks", bytes);
    file_ = ::open(directory_.Path("blocks").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(file_, 0);
  }
  void TearDown() override {
    if (file_ >= 0) ::close(file_);
  }

  static char Fill(size_t block) { return static_cast<char>(block * 31 + 7); }
  static std::span<std::byte> SlotBytes(PageReader::Lease& lease, size_t slot) {
    return lease.bytes().subspan(slot * kBlock, kBlock);
  }

  TestDirectory directory_;
  std::unique_ptr<PageReader> reader_;
  int file_ = -1;
};

TEST_P(PageQueueTest, ReadsAllSlotsManyTimes) {
  auto lease = *reader_->Acquire(kNoDeadline);
  PageQueue& queue = lease.queue();
  std::array<EndedPageRead, 5> ended;
  EXPECT_EQ(*queue.Await(ended, kNoDeadline), 0u);
  std::vector<size_t> blocks(kPageSlotsMax);
  size_t begun = 0;
  size_t done = 0;
  const auto begin = [&](size_t slot) {
    blocks[slot] = begun * 7919 % kBlockCount;
    queue.Begin({file_, blocks[slot] * kBlock, SlotBytes(lease, slot), slot});
    ++begun;
  };
  for (size_t slot = 0; slot < kPageSlotsMax; ++slot) begin(slot);
  while (queue.in_flight() > 0) {
    const auto count = queue.Await(ended, kNoDeadline);
    ASSERT_TRUE(count.ok()) << count.status();
    ASSERT_GT(*count, 0u);
    for (size_t i = 0; i < *count; ++i) {
      const size_t slot = ended[i].slot;
      ASSERT_EQ(ended[i].result, static_cast<int>(kBlock));
      for (const std::byte byte : SlotBytes(lease, slot))
        ASSERT_EQ(static_cast<char>(byte), Fill(blocks[slot]));
      ++done;
      if (begun < 2000) begin(slot);
    }
  }
  EXPECT_EQ(done, begun);
  EXPECT_GE(begun, 2000u);
}

TEST_P(PageQueueTest, TellsErrorsAndTheEndOfTheFile) {
  auto lease = *reader_->Acquire(kNoDeadline);
  lease.queue().Begin({-1, 0, SlotBytes(lease, 0), 0});
  lease.queue().Begin({file_, kBlockCount * kBlock - 10, SlotBytes(lease, 1), 1});
  lease.queue().Begin({file_, kBlockCount * kBlock, SlotBytes(lease, 2), 2});
  std::map<size_t, int> results;
  std::array<EndedPageRead, kPageSlotsMax> ended;
  while (lease.queue().in_flight() > 0) {
    const size_t count = *lease.queue().Await(ended, kNoDeadline);
    for (size_t i = 0; i < count; ++i) results[ended[i].slot] = ended[i].result;
  }
  EXPECT_EQ(results, (std::map<size_t, int>{{0, -EBADF}, {1, 10}, {2, 0}}));
}

TEST_P(PageQueueTest, SharesReadsAmongFetches) {
  auto first = std::make_unique<PageReader::Lease>(*reader_->Acquire(kNoDeadline));
  EXPECT_EQ(first->reads_max(), kPageSlotsMax);
  const auto second = *reader_->Acquire(kNoDeadline);
  EXPECT_EQ(first->reads_max(), 50u);
  first.reset();
  EXPECT_EQ(second.reads_max(), kPageSlotsMax);
  std::vector<PageReader::Lease> all;
  while (all.size() + 1 < kFetchScratchesMax) all.push_back(*reader_->Acquire(kNoDeadline));
  EXPECT_EQ(second.reads_max(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(reader_->Acquire(RealClock().Now()).status()));
  std::thread waits([&] { EXPECT_TRUE(reader_->Acquire(kNoDeadline).ok()); });
  all.pop_back();
  waits.join();
}

INSTANTIATE_TEST_SUITE_P(Queues, PageQueueTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Uring" : "Threads"; });

TEST(ThreadPageQueueTest, WaitsNoLongerThanItsDeadline) {
  const TestDirectory directory;
  const std::string path = directory.Write("block", std::string(kBlock, 'x'));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::byte> bytes(kBlock);
  const auto workers = *WorkerPool::Create({.name = "test", .thread_count = 1});
  Latch go_on(1);
  BlockedWorker blocked(go_on);
  ASSERT_TRUE(workers->Post(&blocked).ok());
  const auto queue = *MakePreadQueue(*workers);
  std::array<EndedPageRead, 1> ended;
  queue->Begin({file, 0, bytes, 9});
  const auto late = queue->Await(ended, RealClock().Now() + std::chrono::milliseconds(5));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  EXPECT_EQ(queue->in_flight(), 1u);
  go_on.CountDown();
  EXPECT_EQ(*queue->Await(ended, kNoDeadline), 1u);
  EXPECT_EQ(ended[0].slot, 9u);
  EXPECT_EQ(ended[0].result, static_cast<int>(kBlock));
  EXPECT_EQ(bytes.back(), std::byte{'x'});
  ::close(file);
}

// The queue takes no read that the pool refuses; the fetch reads the page itself.
TEST(ThreadPageQueueTest, TellsThatThePoolIsFull) {
  Latch go_on(1);
  BlockedWorker first(go_on);
  BlockedWorker second(go_on);
  const auto workers = *WorkerPool::Create({.name = "test", .thread_count = 1, .queue_max = 1});
  ASSERT_TRUE(workers->Post(&first).ok());
  while (!workers->Post(&second).ok()) std::this_thread::yield();  // until the first one runs
  const auto queue = *MakePreadQueue(*workers);
  std::vector<std::byte> bytes(kBlock);
  std::array<EndedPageRead, 1> ended;
  queue->Begin({-1, 0, bytes, 3});
  EXPECT_EQ(*queue->Await(ended, kNoDeadline), 1u);
  EXPECT_EQ(ended[0].result, -EAGAIN);
  go_on.CountDown();
}

// A pipe without a writer's bytes stands for a disk that does not answer.
TEST(UringPageQueueTest, AnUnansweredReadKeepsItsMemory) {
  const auto reader = *PageReader::Create({});
  if (!reader->uses_uring()) GTEST_SKIP() << "this system refuses io_uring";
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  std::array<EndedPageRead, 1> ended;
  const std::byte* stuck = nullptr;
  {
    auto lease = *reader->Acquire(kNoDeadline);
    stuck = lease.bytes().data();
    lease.queue().Begin({pipe[0], 0, lease.bytes().first(kBlock), 0});
    const auto count = lease.queue().Await(ended, RealClock().Now() + std::chrono::milliseconds(5));
    EXPECT_TRUE(absl::IsDeadlineExceeded(count.status())) << count.status();
    EXPECT_EQ(lease.queue().in_flight(), 1u);
  }
  EXPECT_NE(reader->Acquire(kNoDeadline)->bytes().data(), stuck);
  ASSERT_EQ(::write(pipe[1], "late", 4), 4);
  // The answer has arrived: both sets of slots can be leased again.
  const auto first = *reader->Acquire(kNoDeadline);
  const auto second = *reader->Acquire(kNoDeadline);
  EXPECT_TRUE(first.bytes().data() == stuck || second.bytes().data() == stuck);
  EXPECT_EQ(first.queue().in_flight() + second.queue().in_flight(), 0u);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace hps
