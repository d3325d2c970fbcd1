#include "l3_rocksdb/files/parallel_reads.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "l3_pages/uring_queue.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr size_t kBlock = 4096;
constexpr size_t kBlocks = 200;

using rocksdb::FSReadRequest;

// From now on the system refuses this thread the reads of io_uring. False: it has no such filters.
bool RefuseUringReads() {
  std::array<sock_filter, 4> program = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_enter, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

class ParallelReadsTest : public testing::Test {
 protected:
  ParallelReadsTest() {
    for (size_t i = 0; i < kBlocks * kBlock + 100; ++i)
      content_.push_back(static_cast<char>(i * 31 + i / kBlock));
    std::ofstream(path_, std::ios::binary) << content_;
  }

  std::unique_ptr<rocksdb::FSRandomAccessFile> Open(const std::string& path, bool direct) {
    rocksdb::FileOptions options;
    options.use_direct_reads = direct;
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    status_ = FileSystemOf(nullptr)->NewRandomAccessFile(path, options, &file, nullptr);
    return file;
  }

  // Blocks of the file from the last to the first, with gaps.
  void ExpectBlocks(rocksdb::FSRandomAccessFile& file, size_t count) {
    alignas(kBlock) static std::array<char, 100 * kBlock> memory;
    std::vector<FSReadRequest> requests(count);
    for (size_t i = 0; i < count; ++i) {
      requests[i].offset = (kBlocks - 1 - 2 * i) * kBlock;
      requests[i].len = kBlock;
      requests[i].scratch = memory.data() + i * kBlock;
    }
    ASSERT_TRUE(file.MultiRead(requests.data(), count, {}, nullptr).ok());
    for (const FSReadRequest& request : requests) {
      EXPECT_TRUE(request.status.ok()) << request.status.ToString();
      EXPECT_TRUE(request.result == rocksdb::Slice(content_.data() + request.offset, kBlock));
    }
  }

  const TestDirectory directory_;
  const std::string path_ = directory_.path() + "/000001.sst";
  std::string content_;
  rocksdb::IOStatus status_;
};

TEST_F(ParallelReadsTest, ReadsEveryBlock) {
  for (const bool direct : {false, true}) {
    const auto file = Open(path_, direct);
    if (direct && file == nullptr) GTEST_SKIP() << "no direct reads here: " << status_.ToString();
    ASSERT_NE(file, nullptr) << status_.ToString();
    for (const size_t count : {0, 1, 2, 31, 64, 65, 100}) ExpectBlocks(*file, count);
  }
}

// The blocks are read one after the other then, and so are those of later queues. In a process of
// its own, because the filter stays.
TEST_F(ParallelReadsTest, ReadsEveryBlockAfterTheSystemRefusesReads) {
  if (!MakeUringQueue().ok()) GTEST_SKIP() << "this system refuses io_uring";
  // A copy of this process would share its queues with it.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_after_refusal = [this] {
    const auto file = Open(path_, false);
    ExpectBlocks(*file, 100);  // makes a queue
    auto queue = *MakeUringQueue();
    auto dropped = *MakeUringQueue();
    if (!RefuseUringReads()) std::_Exit(0);
    ExpectBlocks(*file, 100);
    EXPECT_TRUE(absl::IsUnimplemented(MakeUringQueue().status()));
    std::array<std::byte, kBlock> into{};
    for (PageQueue* const each : {queue.get(), dropped.get()}) each->Begin({-1, 0, into, 5});
    dropped.reset();  // waits for nothing
    std::array<EndedPageRead, 2> ended;
    EXPECT_EQ(*queue->Await(ended, kNoDeadline), 1u);
    EXPECT_EQ(ended[0].slot, 5u);
    EXPECT_EQ(ended[0].result, -EAGAIN);
    EXPECT_EQ(queue->in_flight(), 0u);
    std::_Exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(read_after_refusal(), testing::ExitedWithCode(0), "");
}

TEST_F(ParallelReadsTest, TheEndOfTheFileIsNoError) {
  const auto file = Open(path_, false);
  std::string memory(3 * kBlock, '\0');
  std::vector<FSReadRequest> requests(3);
  for (size_t i = 0; i < 3; ++i) {
    requests[i].offset = (kBlocks - 1 + i) * kBlock;
    requests[i].len = kBlock;
    requests[i].scratch = memory.data() + i * kBlock;
  }
  ASSERT_TRUE(file->MultiRead(requests.data(), requests.size(), {}, nullptr).ok());
  const size_t expected[] = {kBlock, 100, 0};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(requests[i].status.ok()) << requests[i].status.ToString();
    EXPECT_EQ(requests[i].result.ToString(),
              content_.substr(std::min(requests[i].offset, content_.size()), expected[i]));
  }
}

// A directory opens like a file, but none of its bytes can be read.
TEST_F(ParallelReadsTest, EachFailedReadHasAnError) {
  const std::string path = directory_.path() + "/000002.sst";
  std::filesystem::create_directory(path);
  const auto file = Open(path, false);
  ASSERT_NE(file, nullptr);
  std::string memory(2 * kBlock, '\0');
  std::vector<FSReadRequest> requests(2);
  for (size_t i = 0; i < 2; ++i) {
    requests[i].offset = i * kBlock;
    requests[i].len = kBlock;
    requests[i].scratch = memory.data() + i * kBlock;
  }
  ASSERT_TRUE(file->MultiRead(requests.data(), requests.size(), {}, nullptr).ok());
  for (const FSReadRequest& request : requests) {
    EXPECT_TRUE(request.status.IsIOError()) << request.status.ToString();
    EXPECT_NE(request.status.ToString().find(path), std::string::npos);
  }
}

TEST_F(ParallelReadsTest, AFileThatDoesNotExistIsNotFound) {
  EXPECT_EQ(Open(directory_.path() + "/000003.sst", false), nullptr);
  EXPECT_TRUE(status_.IsPathNotFound() || status_.IsNotFound()) << status_.ToString();
}

}  // namespace
}  // namespace hps
