#include "network/piece_copy.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "base/executor.h"

namespace hps {
namespace {

// With and without helpers.
class PieceCopyTest : public testing::TestWithParam<size_t> {
 protected:
  PieceCopyTest() {
    if (GetParam() == 0) return;
    workers_ = *WorkerPool::Create({.name = "copy", .thread_count = GetParam()});
    teams_ = std::make_unique<ForkJoinPool>(ForkJoinPool::Options{
        .executor = workers_.get(), .helpers_max = GetParam(), .spin = std::chrono::seconds(1)});
  }
  ~PieceCopyTest() override { workers_.reset(); }

  std::unique_ptr<ForkJoinPool> teams_;
  std::unique_ptr<WorkerPool> workers_;
};

INSTANTIATE_TEST_SUITE_P(Helpers, PieceCopyTest, testing::Values(0, 1, 3));

std::vector<std::byte> RandomBytes(std::mt19937_64& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_P(PieceCopyTest, CopiesAllPiecesAndSendsAllInOrder) {
  std::mt19937_64 random(GetParam());
  PieceCopy copy(teams_.get());
  for (const size_t pieces_max : {0, 1, 2, 26, 300}) {
    for (int round = 0; round < 10; ++round) {
      std::vector<std::vector<std::byte>> all;
      std::vector<std::byte> expected;
      for (size_t i = 0; i < pieces_max; ++i) {
        const size_t bytes_max = round % 2 == 0 ? 2'000'000 / pieces_max : 5000;
        all.push_back(RandomBytes(random, i % 5 == 0 ? 0 : random() % (bytes_max + 1)));
        if (pieces_max == 1) all.back() = RandomBytes(random, PieceCopy::kHelpedBytes + 1);
        expected.insert(expected.end(), all.back().begin(), all.back().end());
      }
      const std::vector<PieceCopy::Piece> pieces(all.begin(), all.end());
      std::vector<std::byte> to(expected.size());
      std::vector<std::byte> received;
      ASSERT_EQ(copy.Run(pieces, to.data(),
                         [&](size_t begin, size_t end) {
                           EXPECT_EQ(begin, received.size());
                           EXPECT_LT(begin, end);
                           received.insert(received.end(), to.begin() + begin, to.begin() + end);
                           return absl::OkStatus();
                         }),
                absl::OkStatus());
      ASSERT_TRUE(received == expected) << pieces_max << " pieces, round " << round;
    }
  }
}

TEST_P(PieceCopyTest, AnErrorOfSendEndsIt) {
  const std::vector<std::byte> bytes(20 * PieceCopy::kChunkBytes);
  std::vector<std::byte> to(bytes.size());
  const PieceCopy::Piece pieces[] = {bytes};
  PieceCopy copy(teams_.get());
  size_t calls = 0;
  EXPECT_EQ(copy.Run(pieces, to.data(),
                     [&](size_t, size_t) {
                       ++calls;
                       return absl::InternalError("gone");
                     }),
            absl::InternalError("gone"));
  EXPECT_EQ(calls, 1u);
  // Nobody writes any more, and the next copy is whole.
  std::fill(to.begin(), to.end(), std::byte{1});
  size_t sent = 0;
  EXPECT_EQ(copy.Run(pieces, to.data(),
                     [&](size_t begin, size_t end) {
                       sent += end - begin;
                       return absl::OkStatus();
                     }),
            absl::OkStatus());
  EXPECT_EQ(sent, bytes.size());
  EXPECT_TRUE(to == bytes);
}

}  // namespace
}  // namespace hps
