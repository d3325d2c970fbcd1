// Pages of page files in memory, in a fixed number of frames of kPageBlockBytes.
//
// Contract: a page in the cache is intact. Its checksum was verified before Insert, so that a fetch
// need not verify it again. Larger pages, of rows wider than 1,346 bytes, are not cached.
//
// The frames are divided into sets of 64. A page can be in one set only, chosen by a hash; the lock
// of the set is held while its rows are copied, which takes less than a microsecond. So readers
// meet only if they want pages of the same set at the same moment.
//
// Within a set, S3-FIFO decides which page goes (Yang et al., "FIFO queues are all you need for
// cache eviction", SOSP 2023). A new page goes through a short queue. It gets a place among the
// other 56 only if it was used again meanwhile, or is read again soon after it has left. So a scan
// of pages that are used once displaces little.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "l3_pages/page_file_handle.h"
#include "l3_pages/page_format.h"

namespace hps {

class PageCache {
 public:
  // Which page: the number of its file, and its own, in one; and their hash.
  struct PageName {
    uint64_t id = 0;
    uint64_t hash = 0;
  };

  // Allocates frames, and what is known of them, of at most `bytes` in total; at least one set. The
  // system provides the memory of a frame at its first use. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<PageCache>> Create(uint64_t bytes);
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  // Returns a number for a file that was opened. No two files get the same number, so the cache
  // need not be told when a file is closed: its pages are not used again, and others displace them.
  // Returns 0 if no number is left: the pages of a file with number 0 are not cached.
  uint64_t AddFile();

  static PageName NameOf(uint64_t file, uint64_t page);
  // Begins to load what Prefetch and Use need.
  void PrefetchSet(const PageName& name) const { __builtin_prefetch(&SetOf(name)); }
  // Begins to load the first `bytes` of the page, if it is cached.
  void Prefetch(const PageName& name, size_t bytes) const;
  // Calls use(const std::byte* page) if the page is cached, and returns whether it is. `use` must
  // not call the cache.
  template <typename Function>
  bool Use(const PageName& name, const Function& use);
  // Inserts a page of kPageBlockBytes, unless it is cached. REQUIRES: the page is intact.
  void Insert(const PageName& name, std::span<const std::byte> page);

  size_t frame_count() const { return set_count_ * kWays; }

 private:
  static constexpr size_t kWays = 64;
  static constexpr size_t kNewWays = 8;  // the short queue: ways 0 to 7
  static constexpr size_t kNoWay = kWays;
  static constexpr uint8_t kUsesMax = 3;

  // A way is a place for a page; an id of 0: the way is empty.
  struct alignas(64) Set {
    std::array<uint8_t, kWays> tags{};  // a byte of the hash, to find an id without reading all
    mutable Mutex mutex;                // of all of this, the tags included, and of the frames
    uint8_t next_new = 0;               // the ways whose pages go next
    uint8_t next_kept = kNewWays;
    uint8_t next_gone = 0;
    std::array<uint64_t, kWays> ids{};
    std::array<uint8_t, kWays> uses{};    // since the page came, or was spared
    std::array<uint8_t, kWays> frames{};  // of the set's frames, that of the way
    std::array<uint32_t, kWays> gone{};   // part of the hashes of pages that left the short queue
  };

  PageCache() = default;
  static uint64_t HashOf(uint64_t id) { return HashKey(static_cast<Key>(id), kPageCacheHashSeed); }
  static uint32_t MarkOf(uint64_t hash) { return static_cast<uint32_t>(hash) | 1; }
  static size_t Find(const Set& set, const PageName& name) HPS_REQUIRES(set.mutex);
  static size_t MakeRoom(Set& set, const PageName& name) HPS_REQUIRES(set.mutex);
  static size_t MakeKeptRoom(Set& set) HPS_REQUIRES(set.mutex);
  Set& SetOf(const PageName& name) const { return sets_[HashToRange(name.hash, set_count_)]; }
  std::byte* FrameOf(const Set& set, size_t way) const {
    const auto first = static_cast<size_t>(&set - sets_.get()) * kWays;
    return frames_.get() + (first + set.frames[way]) * kPageBlockBytes;
  }

  static constexpr uint64_t kPageCacheHashSeed = 0xd1b54a32d192ed03;

  size_t set_count_ = 0;
  std::unique_ptr<Set[]> sets_;
  AlignedBytes frames_;
  std::atomic<uint64_t> files_{0};
};

template <typename Function>
bool PageCache::Use(const PageName& name, const Function& use) {
  Set& set = SetOf(name);
  MutexLock lock(set.mutex);
  const size_t way = Find(set, name);
  if (way == kNoWay) return false;
  if (set.uses[way] < kUsesMax) ++set.uses[way];
  use(FrameOf(set, way));
  return true;
}

}  // namespace hps
