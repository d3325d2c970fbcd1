#include "train_cpu/shared_word.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

namespace hps {
namespace {

constexpr std::chrono::seconds kLongTime{60};

TEST(SharedWord, TimesOutAndReturnsWhatHasBeenReached) {
  SharedWord word = 5;
  EXPECT_FALSE(WaitForWord(word, 6, std::chrono::milliseconds(2)));
  EXPECT_FALSE(WaitForWord(word, 6, std::chrono::nanoseconds(0)));
  EXPECT_TRUE(WaitForWord(word, 5, std::chrono::nanoseconds(0)));
  EXPECT_TRUE(WaitForWord(word, 4, kLongTime));
  word = 1;  // after 2^32 - 1 and 0
  EXPECT_TRUE(WaitForWord(word, UINT32_MAX, kLongTime));
}

// Two processes in turns; what one wrote before it raised its word is there.
TEST(SharedWord, ProcessesTakeTurns) {
  constexpr uint32_t kTurns = 300;
  struct Memory {
    SharedWord words[2] = {0, 0};
    uint32_t value = 0;
  };
  void* const mapped =
      mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = new (mapped) Memory();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (uint32_t turn = 1; turn <= kTurns; ++turn) {
      if (!WaitForWord(memory->words[0], turn, kLongTime)) _exit(1);
      ++memory->value;
      RaiseWord(memory->words[1], turn);
    }
    _exit(0);
  }
  for (uint32_t turn = 1; turn <= kTurns; ++turn) {
    ++memory->value;
    RaiseWord(memory->words[0], turn);
    ASSERT_TRUE(WaitForWord(memory->words[1], turn, kLongTime));
    ASSERT_EQ(memory->value, 2 * turn);
  }
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(mapped, sizeof(Memory));
}

}  // namespace
}  // namespace hps
