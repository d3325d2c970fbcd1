#include "l3_pages/page_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "l3_pages/page_reader.h"

namespace hps {
namespace {

constexpr size_t kSetFrames = 64;

// Every page is filled with its own number.
class PageCacheTest : public testing::Test {
 protected:
  void Start(uint64_t bytes) {
    cache_ = *PageCache::Create(bytes);
    file_ = cache_->AddFile();
  }
  void Insert(uint64_t page) const {
    const std::vector<uint64_t> words(kPageBlockBytes / sizeof(uint64_t), page);
    cache_->Insert(PageCache::NameOf(file_, page), std::as_bytes(std::span(words)));
  }
  // Whether it is cached; if so, also compares it.
  bool Use(uint64_t page) const {
    return cache_->Use(PageCache::NameOf(file_, page), [&](const std::byte* bytes) {
      std::vector<uint64_t> words(kPageBlockBytes / sizeof(uint64_t));
      std::memcpy(words.data(), bytes, kPageBlockBytes);
      EXPECT_EQ(std::count(words.begin(), words.end(), page),
                static_cast<std::ptrdiff_t>(words.size()));
    });
  }

  std::unique_ptr<PageCache> cache_;
  uint64_t file_ = 0;
};

TEST_F(PageCacheTest, HasNoMoreFramesThanItsBytes) {
  for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{8} << 20, uint64_t{100'000'000}}) {
    Start(bytes);
    EXPECT_LE(cache_->frame_count() * kPageBlockBytes, bytes);
    EXPECT_GE(cache_->frame_count() * kPageBlockBytes, bytes * 3 / 4);
  }
  Start(1);
  EXPECT_EQ(cache_->frame_count(), kSetFrames);
}

TEST(PageCacheMemoryTest, SaysThatThereIsNotEnough) {
  const auto cache = PageCache::Create(uint64_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(cache.status())) << cache.status();
  const auto reader = PageReader::Create({.cache_bytes = uint64_t{1} << 60});
  EXPECT_TRUE(absl::IsResourceExhausted(reader.status())) << reader.status();
}

TEST_F(PageCacheTest, KeepsPagesOfFilesApart) {
  Start(uint64_t{8} << 20);
  Insert(5);
  EXPECT_TRUE(Use(5));
  EXPECT_FALSE(Use(6));
  const uint64_t other = cache_->AddFile();
  EXPECT_FALSE(cache_->Use(PageCache::NameOf(other, 5), [](const std::byte*) {}));
}

TEST_F(PageCacheTest, UsesAllFrames) {
  Start(1);
  for (uint64_t page = 0; page < kSetFrames; ++page) Insert(page);
  for (uint64_t page = 0; page < kSetFrames; ++page) EXPECT_TRUE(Use(page)) << page;
}

TEST_F(PageCacheTest, AScanDisplacesNoUsedPage) {
  Start(1);
  for (uint64_t page = 0; page < 40; ++page) Insert(page);
  for (uint64_t page = 0; page < 40; ++page) ASSERT_TRUE(Use(page)) << page;
  for (uint64_t page = 1'000; page < 11'000; ++page) Insert(page);
  for (uint64_t page = 0; page < 40; ++page) EXPECT_TRUE(Use(page)) << page;
}

TEST_F(PageCacheTest, KeepsAPageThatComesBackSoon) {
  Start(1);
  for (uint64_t page = 0; page < kSetFrames; ++page) Insert(page);
  Insert(100);
  for (uint64_t page = 101; page < 120; ++page) Insert(page);
  ASSERT_FALSE(Use(100));
  Insert(100);
  for (uint64_t page = 1'000; page < 2'000; ++page) Insert(page);
  EXPECT_TRUE(Use(100));
}

// Pages that are not used any more make room for others.
TEST_F(PageCacheTest, FollowsAChangeOfTheUsedPages) {
  Start(1);
  for (uint64_t first : {0u, 100u, 200u}) {
    for (int round = 0; round < 20; ++round) {
      for (uint64_t page = first; page < first + 40; ++page) {
        if (!Use(page)) Insert(page);
      }
    }
    size_t cached = 0;
    for (uint64_t page = first; page < first + 40; ++page) cached += Use(page) ? 1 : 0;
    EXPECT_EQ(cached, 40u) << first;
  }
}

TEST_F(PageCacheTest, ManyThreadsNeverSeeAnotherPage) {
  Start(uint64_t{1} << 20);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 3'000; ++i) {
        const uint64_t page = random() % 8 == 0 ? random() % 5'000 : random() % 100;
        cache_->PrefetchSet(PageCache::NameOf(file_, page));
        cache_->Prefetch(PageCache::NameOf(file_, page), 256);
        if (!Use(page)) Insert(page);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hps
