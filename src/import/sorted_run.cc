#include "import/sorted_run.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigitValues = size_t{1} << kDigitBits;
constexpr int kDigits = (64 + kDigitBits - 1) / kDigitBits;

// Prefetch distance that covers a cache miss and a TLB miss.
constexpr uint64_t kPrefetchRows = 24;

constexpr size_t Digit(OrderedKey key, int digit) {
  return (key >> (digit * kDigitBits)) & (kDigitValues - 1);
}

}  // namespace

void SortEntries(std::span<SortEntry> entries, std::span<SortEntry> scratch) {
  HPS_CHECK(scratch.size() >= entries.size());
  if (entries.size() < 2) return;
  std::vector<std::array<uint64_t, kDigitValues>> counts(kDigits);
  for (const SortEntry& entry : entries) {
    for (int digit = 0; digit < kDigits; ++digit)
      ++counts[static_cast<size_t>(digit)][Digit(entry.key, digit)];
  }
  std::span<SortEntry> from = entries;
  std::span<SortEntry> to = scratch.first(entries.size());
  for (int digit = 0; digit < kDigits; ++digit) {
    auto& starts = counts[static_cast<size_t>(digit)];
    if (starts[Digit(from[0].key, digit)] == from.size()) continue;
    uint64_t start = 0;
    for (uint64_t& count : starts) start += std::exchange(count, start);
    for (const SortEntry& entry : from) to[starts[Digit(entry.key, digit)]++] = entry;
    std::swap(from, to);
  }
  if (from.data() != entries.data()) std::copy(from.begin(), from.end(), entries.begin());
}

absl::StatusOr<uint64_t> LowerBound(const SortedRun& run, size_t row_bytes, OrderedKey key) {
  uint64_t begin = 0;
  uint64_t end = run.row_count;
  while (begin < end) {
    const uint64_t middle = begin + (end - begin) / 2;
    OrderedKey found = 0;
    if (run.spill == nullptr) {
      found = run.entries.elements()[middle].key;
    } else {
      const uint64_t offset = run.spill_offset + middle * (kRecordHeadBytes + row_bytes);
      HPS_RETURN_IF_ERROR(run.spill->ReadAt(offset, std::as_writable_bytes(std::span(&found, 1))));
    }
    if (found < key) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

RunCursor::RunCursor(const RunSlice& slice, size_t row_bytes, std::span<std::byte> buffer)
    : slice_(slice), row_bytes_(row_bytes), buffer_(buffer), next_(slice.begin) {
  HPS_CHECK(slice.begin <= slice.end && slice.end <= slice.run->row_count);
  HPS_CHECK(slice.run->spill == nullptr || buffer.size() >= kRecordHeadBytes + row_bytes);
  if (slice.run->spill != nullptr) return;
  const uint64_t ahead = std::min(slice.end, slice.begin + kPrefetchRows);
  for (uint64_t i = slice.begin; i < ahead; ++i) {
    const uint64_t row = slice.run->entries.elements()[i].position - slice.run->first_position;
    __builtin_prefetch(slice.run->rows.elements().data() + row * row_bytes);
  }
}

absl::Status RunCursor::Advance() {
  if (next_ == slice_.end) {
    done_ = true;
    return absl::OkStatus();
  }
  if (slice_.run->spill == nullptr) {
    LoadFromMemory();
    return absl::OkStatus();
  }
  if (buffer_next_ == buffer_end_) HPS_RETURN_IF_ERROR(Refill());
  const std::byte* record = buffer_.data() + buffer_next_;
  entry_ = LoadLittleEndian<SortEntry>(record);
  row_ = record + kRecordHeadBytes;
  buffer_next_ += kRecordHeadBytes + row_bytes_;
  ++next_;
  return absl::OkStatus();
}

absl::Status RunCursor::Refill() {
  const size_t record_bytes = kRecordHeadBytes + row_bytes_;
  const uint64_t count = std::min<uint64_t>(slice_.end - next_, buffer_.size() / record_bytes);
  buffer_next_ = 0;
  buffer_end_ = count * record_bytes;
  return slice_.run->spill->ReadAt(slice_.run->spill_offset + next_ * record_bytes,
                                   buffer_.first(buffer_end_));
}

void RunCursor::LoadFromMemory() {
  const std::span<const SortEntry> entries = slice_.run->entries.elements();
  const std::byte* rows = slice_.run->rows.elements().data();
  if (next_ + kPrefetchRows < slice_.end) {
    const uint64_t ahead = entries[next_ + kPrefetchRows].position - slice_.run->first_position;
    for (size_t byte = 0; byte < row_bytes_; byte += 64)
      __builtin_prefetch(rows + ahead * row_bytes_ + byte);
  }
  entry_ = entries[next_++];
  row_ = rows + (entry_.position - slice_.run->first_position) * row_bytes_;
}

}  // namespace hps
