#include "server/grpc/output_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>

#include "base/bytes.h"
#include "testing/trials.h"

namespace hps::server {
namespace {

// Returns everything that can be read now.
std::string Drain(int fd) {
  std::string text;
  std::array<char, 65536> piece;
  for (ssize_t n = 0; (n = read(fd, piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<size_t>(n));
  return text;
}

TEST(OutputQueueTest, SendsCopiesAndViewsInTheirOrderHoweverOftenItIsBlocked) {
  std::mt19937 random(TestSeed());
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  Transport transport;
  transport.Open(ends[0], nullptr);
  OutputQueue queue;
  EXPECT_EQ(queue.WriteTo(transport), IoState::kDone);
  const uint64_t begin = queue.end();
  const std::string views(size_t{4} << 20, 'v');
  std::string expected;
  for (int i = 0; i < 2000; ++i) {
    const size_t n = random() % (i % 10 == 0 ? 20'000 : 20);
    if (random() % 2 == 0) {
      const std::string copied(n, static_cast<char>('a' + i % 20));
      queue.AddCopy(AsBytes(std::string_view(copied)));
      expected += copied;
    } else {
      queue.AddView(AsBytes(std::string_view(views).substr(i, n)));
      expected.append(n, 'v');
    }
  }
  EXPECT_EQ(queue.bytes(), expected.size());
  std::string sent;
  while (queue.WriteTo(transport) == IoState::kBlocked) sent += Drain(ends[1]);
  sent += Drain(ends[1]);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(sent == expected);
  EXPECT_EQ(queue.sent(), begin + expected.size());
  close(ends[1]);
  queue.AddCopy(AsBytes(std::string_view("x")));
  EXPECT_EQ(queue.WriteTo(transport), IoState::kFailed);
}

// Catches: sent bytes that are kept until the queue is empty.
TEST(OutputQueueTest, DropsWhatIsSentThoughItIsNeverEmpty) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  Transport transport;
  transport.Open(ends[0], nullptr);
  OutputQueue queue;
  const std::string view(1000, 'v');
  std::string expected;
  std::string sent;
  for (int i = 0; i < 20; ++i) {
    while (queue.bytes() < size_t{1} << 20) {
      const std::string copied(1000, static_cast<char>('a' + i));
      queue.AddCopy(AsBytes(std::string_view(copied)));
      queue.AddView(AsBytes(std::string_view(view)));
      expected += copied + view;
    }
    ASSERT_EQ(queue.WriteTo(transport), IoState::kBlocked);
    EXPECT_EQ(queue.end(), expected.size());
    EXPECT_EQ(queue.sent() + queue.bytes(), expected.size());
    sent += Drain(ends[1]);
    EXPECT_EQ(queue.sent(), sent.size());
  }
  EXPECT_LT(queue.kept_bytes(), size_t{4} << 20);
  while (queue.WriteTo(transport) == IoState::kBlocked) sent += Drain(ends[1]);
  sent += Drain(ends[1]);
  EXPECT_TRUE(sent == expected);
  close(ends[1]);
}

}  // namespace
}  // namespace hps::server
