#include "server/grpc/message_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "testing/trials.h"

namespace hps::server {
namespace {

using Step = MessageReader::Step;

constexpr uint64_t kMessageMax = 1 << 20;

std::string Framed(const std::string& message, char flag = 0) {
  std::string bytes(1, flag);
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes += static_cast<char>(message.size() >> static_cast<unsigned>(shift));
  return bytes + message;
}

class MessageReaderTest : public testing::Test {
 protected:
  absl::Status Add(std::string_view bytes) { return reader_.Add(AsBytes(bytes), pool_); }
  absl::StatusOr<Step> Front() { return reader_.Front(kMessageMax, pool_, &message_); }

  BufferPool pool_{{.lent_bytes_max = uint64_t{8} << 20}};
  MessageReader reader_;
  MessageReader::Message message_;
};

TEST_F(MessageReaderTest, PutsMessagesTogetherHoweverTheyAreCut) {
  std::mt19937 random(TestSeed());
  std::vector<std::string> messages;
  std::string bytes;
  for (const size_t n : {0, 1, 4, 5, 31, 32, 33, 4090, 4096, 70'000, 300'000, 0, 0, 7}) {
    messages.push_back(std::string(n, static_cast<char>('a' + messages.size())));
    bytes += Framed(messages.back(), static_cast<char>(messages.size() % 2));
  }
  for (int round = 0; round < 20; ++round) {
    size_t next = 0;
    bool in_use = false;  // a message is looked up while more bytes arrive
    for (size_t at = 0; at < bytes.size();) {
      const size_t n =
          std::min<size_t>(1 + random() % (round % 2 == 0 ? 20'000 : 900), bytes.size() - at);
      ASSERT_TRUE(Add(std::string_view(bytes).substr(at, n)).ok());
      at += n;
      if (in_use && random() % 4 != 0) continue;
      for (;;) {
        if (in_use) {
          ASSERT_EQ(AsText(message_.bytes), messages[next]);
          ASSERT_EQ(message_.is_compressed, next % 2 == 0);
          reader_.Pop();
          ++next;
        }
        const absl::StatusOr<Step> step = Front();
        ASSERT_TRUE(step.ok()) << step.status();
        in_use = *step == Step::kMessage;
        if (!in_use || random() % 3 == 0) break;
      }
    }
    while (in_use) {
      ASSERT_EQ(AsText(message_.bytes), messages[next++]);
      reader_.Pop();
      in_use = *Front() == Step::kMessage;
    }
    EXPECT_EQ(next, messages.size());
    EXPECT_FALSE(reader_.has_more());
    EXPECT_EQ(reader_.lent_bytes(), 0u);
  }
}

// Catches: bytes that arrive between the end of a message and the check for the next one, put
// before bytes that arrived while that message was in use.
TEST_F(MessageReaderTest, KeepsTheOrderOfWhatComesAfterAMessageIsDropped) {
  const std::string second = Framed("second", '\0');
  const std::string third = Framed("third", '\0');
  ASSERT_TRUE(Add(Framed("first", '\1') + second.substr(0, 3)).ok());
  ASSERT_EQ(*Front(), Step::kMessage);
  ASSERT_TRUE(Add(second.substr(3, 4)).ok());
  reader_.Pop();
  ASSERT_TRUE(Add(second.substr(7) + third).ok());
  reader_.Pop();  // there is none at the front
  for (const char* const text : {"second", "third"}) {
    ASSERT_EQ(*Front(), Step::kMessage);
    EXPECT_EQ(AsText(message_.bytes), text);
    reader_.Pop();
  }
  EXPECT_EQ(reader_.lent_bytes(), 0u);
}

// Catches: a compressed message whose memory is held during its lookup, because the next message
// has arrived.
TEST_F(MessageReaderTest, AMessageThatIsDroppedLeavesItsMemoryToNone) {
  const std::string later = Framed("later");
  ASSERT_TRUE(Add(Framed(std::string(kMessageMax, 'x'))).ok());
  ASSERT_EQ(*Front(), Step::kMessage);
  ASSERT_TRUE(Add(later.substr(0, 7)).ok());
  reader_.Pop();
  EXPECT_EQ(reader_.lent_bytes(), BufferPool::LentFor(2 * later.size()));
  EXPECT_EQ(pool_.lent_bytes(), reader_.lent_bytes());
  ASSERT_TRUE(Add(later.substr(7)).ok());
  ASSERT_EQ(*Front(), Step::kMessage);
  EXPECT_EQ(AsText(message_.bytes), "later");
}

TEST_F(MessageReaderTest, RefusesWhatIsTooLongBeforeItComes) {
  const std::string prefix = Framed(std::string(kMessageMax + 1, 'x')).substr(0, 5);
  ASSERT_TRUE(Add(prefix).ok());
  EXPECT_EQ(Front().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_LE(pool_.lent_bytes(), 16u << 10);
}

TEST_F(MessageReaderTest, TakesMemoryForWhatHasComeNotForWhatIsAnnounced) {
  const std::string whole = Framed(std::string(kMessageMax, 'x'));
  ASSERT_TRUE(Add(whole.substr(0, 100)).ok());
  EXPECT_EQ(*Front(), Step::kNeedsMore);
  EXPECT_LE(pool_.lent_bytes(), 16u << 10);
}

TEST_F(MessageReaderTest, RefusesFlagsThatAreNone) {
  ASSERT_TRUE(Add(Framed("", 2)).ok());
  EXPECT_EQ(Front().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MessageReaderTest, SaysWhenThereIsNoMemory) {
  BufferPool small({.lent_bytes_max = 4096});
  EXPECT_EQ(reader_.Add(AsBytes(std::string_view(Framed(std::string(5000, 'x')))), small).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(small.lent_bytes(), 0u);
}

TEST_F(MessageReaderTest, KnowsWhetherMoreHasCome) {
  EXPECT_FALSE(reader_.has_more());
  ASSERT_TRUE(Add(Framed("one")).ok());
  EXPECT_EQ(*Front(), Step::kMessage);
  EXPECT_FALSE(reader_.has_more());
  ASSERT_TRUE(Add("x").ok());
  EXPECT_TRUE(reader_.has_more());
  reader_.Pop();
  EXPECT_TRUE(reader_.has_more());
  EXPECT_EQ(*Front(), Step::kNeedsMore);
  reader_.Clear();
  EXPECT_EQ(pool_.lent_bytes(), 0u);
}

}  // namespace
}  // namespace hps::server
