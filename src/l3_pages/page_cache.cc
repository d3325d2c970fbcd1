#include "l3_pages/page_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"
#include "base/out_of_memory.h"

namespace hps {
namespace {

constexpr int kPageBits = 40;  // of an id; the others are the file's

}  // namespace

absl::StatusOr<std::unique_ptr<PageCache>> PageCache::Create(uint64_t bytes) {
  constexpr uint64_t kSetBytes = kWays * kPageBlockBytes + sizeof(Set);
  std::unique_ptr<PageCache> cache(new PageCache);
  cache->set_count_ = static_cast<size_t>(std::max<uint64_t>(bytes / kSetBytes, 1));
  const size_t frame_bytes = cache->frame_count() * kPageBlockBytes;
  cache->sets_.reset(new (std::nothrow) Set[cache->set_count_]);
  cache->frames_ = AllocateAligned(frame_bytes);
  if (cache->sets_ == nullptr || cache->frames_ == nullptr)
    return OutOfMemory("page cache: out of memory; configure a smaller one");
  for (size_t i = 0; i < cache->set_count_; ++i) {
    for (size_t way = 0; way < kWays; ++way)
      cache->sets_[i].frames[way] = static_cast<uint8_t>(way);
  }
  return cache;
}

uint64_t PageCache::AddFile() {
  const uint64_t file = files_.fetch_add(1, std::memory_order_relaxed) + 1;
  return file >> (64 - kPageBits) == 0 ? file : 0;
}

PageCache::PageName PageCache::NameOf(uint64_t file, uint64_t page) {
  const uint64_t id = (file << kPageBits) | page;
  return {id, HashOf(id)};
}

// Compares eight tags at a time. A byte above an equal one may look equal, too; the id decides.
size_t PageCache::Find(const Set& set, const PageName& name) {
  constexpr uint64_t kLowBits = 0x0101010101010101;
  const uint64_t tag = (name.hash & 0xff) * kLowBits;
  for (size_t first = 0; first < kWays; first += 8) {
    const uint64_t differ = LoadLittleEndian<uint64_t>(set.tags.data() + first) ^ tag;
    uint64_t equal = (differ - kLowBits) & ~differ & (kLowBits << 7);
    for (; equal != 0; equal &= equal - 1) {
      const size_t way = first + static_cast<size_t>(std::countr_zero(equal)) / 8;
      if (set.ids[way] == name.id) return way;
    }
  }
  return kNoWay;
}

void PageCache::Prefetch(const PageName& name, size_t bytes) const {
  const Set& set = SetOf(name);
  MutexLock lock(set.mutex);
  const size_t way = Find(set, name);
  if (way == kNoWay) return;
  const std::byte* const page = FrameOf(set, way);
  for (size_t offset = 0; offset < bytes; offset += 64) __builtin_prefetch(page + offset);
}

void PageCache::Insert(const PageName& name, std::span<const std::byte> page) {
  HPS_CHECK(page.size() == kPageBlockBytes);
  Set& set = SetOf(name);
  MutexLock lock(set.mutex);
  if (Find(set, name) != kNoWay) return;  // another fetch has read it, too
  const size_t way = MakeRoom(set, name);
  set.ids[way] = name.id;
  set.tags[way] = static_cast<uint8_t>(name.hash & 0xff);
  set.uses[way] = 0;
  std::memcpy(FrameOf(set, way), page.data(), page.size());
}

// A way for the page. What was there has gone, or has moved to a kept way.
size_t PageCache::MakeRoom(Set& set, const PageName& name) {
  const auto gone = std::find(set.gone.begin(), set.gone.end(), MarkOf(name.hash));
  if (gone != set.gone.end()) {
    *gone = 0;
    return MakeKeptRoom(set);
  }
  const size_t way = set.next_new;
  set.next_new = static_cast<uint8_t>((way + 1) % kNewWays);
  if (set.ids[way] == 0) return way;
  if (set.uses[way] > 0 || set.ids[set.next_kept] == 0) {
    const size_t kept = MakeKeptRoom(set);
    std::swap(set.ids[way], set.ids[kept]);
    std::swap(set.tags[way], set.tags[kept]);
    std::swap(set.frames[way], set.frames[kept]);
    set.uses[kept] = 0;
    return way;
  }
  set.gone[set.next_gone] = MarkOf(HashOf(set.ids[way]));
  set.next_gone = static_cast<uint8_t>((set.next_gone + 1) % kWays);
  return way;
}

// CLOCK: the next way that is empty, or whose page was not used since the last round.
size_t PageCache::MakeKeptRoom(Set& set) {
  for (;;) {
    const size_t way = set.next_kept;
    set.next_kept = static_cast<uint8_t>(way + 1 == kWays ? kNewWays : way + 1);
    if (set.ids[way] == 0 || set.uses[way] == 0) return way;
    --set.uses[way];
  }
}

}  // namespace hps
