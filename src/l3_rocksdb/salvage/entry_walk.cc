#include "l3_rocksdb/salvage/entry_walk.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

class EntryWalk {
 public:
  EntryWalk(const IteratorSource& source, const BytesBefore& bytes_before, BitsRange range,
            const std::string& what, EntryVisitor& visitor);
  EntryWalk(const EntryWalk&) = delete;
  EntryWalk& operator=(const EntryWalk&) = delete;

  absl::Status Run();

 private:
  rocksdb::Status Seek(uint64_t bits);
  absl::StatusOr<bool> IsReadable(uint64_t bits);
  template <typename IsReached>
  absl::StatusOr<std::optional<uint64_t>> FirstAfter(uint64_t begin,
                                                     const IsReached& is_reached) const;
  absl::StatusOr<std::optional<uint64_t>> NextBlock(uint64_t bits) const;
  absl::StatusOr<std::optional<uint64_t>> EndOfGap(uint64_t begin);
  absl::Status VisitEntry();
  absl::Status SkipGap(const rocksdb::Status& why);
  absl::Status Failed(const rocksdb::Status& status) const {
    return FromRocksStatus(status, what_);
  }

  const IteratorSource& source_;
  const BytesBefore& bytes_before_;
  const BitsRange range_;
  const std::string& what_;
  EntryVisitor& visitor_;
  char end_[kKeyBytes];
  rocksdb::Slice end_slice_;
  rocksdb::ReadOptions options_;
  std::unique_ptr<rocksdb::Iterator> it_;  // refers to options_; null before the first seek
  uint64_t next_;                          // all keys before it have been visited
  bool done_ = false;
};

EntryWalk::EntryWalk(const IteratorSource& source, const BytesBefore& bytes_before, BitsRange range,
                     const std::string& what, EntryVisitor& visitor)
    : source_(source),
      bytes_before_(bytes_before),
      range_(range),
      what_(what),
      visitor_(visitor),
      next_(range.first) {
  options_.fill_cache = false;
  if (range.last == std::numeric_limits<uint64_t>::max()) return;
  StoreBigEndian64(end_, range.last + 1);
  end_slice_ = rocksdb::Slice(end_, kKeyBytes);
  options_.iterate_upper_bound = &end_slice_;
}

// Seeks the first entry at or after `bits` with a new iterator. An iterator that has reported
// damage cannot be used again.
rocksdb::Status EntryWalk::Seek(uint64_t bits) {
  char key[kKeyBytes];
  StoreBigEndian64(key, bits);
  it_ = source_(options_);
  it_->Seek({key, kKeyBytes});
  return it_->status();
}

// Returns the first position after `begin` where `is_reached` is true, by exponential and then
// binary search. If the answer changes more than once, returns one of the positions where it
// becomes true. nullopt = no probed position is reached. Errors: those of `is_reached`.
template <typename IsReached>
absl::StatusOr<std::optional<uint64_t>> EntryWalk::FirstAfter(uint64_t begin,
                                                              const IsReached& is_reached) const {
  uint64_t before = begin;
  uint64_t reached = begin;
  for (uint64_t step = 1;; step = step > range_.last / 2 ? range_.last : step * 2) {
    if (before == range_.last) return std::nullopt;
    reached = step > range_.last - begin ? range_.last : begin + step;
    HPS_ASSIGN_OR_RETURN(const bool done, is_reached(reached));
    if (done) break;
    before = reached;
  }
  while (reached - before > 1) {
    const uint64_t middle = before + (reached - before) / 2;
    HPS_ASSIGN_OR_RETURN(const bool done, is_reached(middle));
    (done ? reached : before) = middle;
  }
  return reached;
}

// Returns the first position after `bits` that lies in another block of some file, or nullopt.
absl::StatusOr<std::optional<uint64_t>> EntryWalk::NextBlock(uint64_t bits) const {
  const uint64_t here = bytes_before_(bits);
  return FirstAfter(bits,
                    [&](uint64_t at) -> absl::StatusOr<bool> { return bytes_before_(at) != here; });
}

// True if an entry can be read at `bits`. Errors: a read that failed without damage.
absl::StatusOr<bool> EntryWalk::IsReadable(uint64_t bits) {
  const rocksdb::Status sought = Seek(bits);
  if (!sought.ok() && !IsDamage(sought)) return Failed(sought);
  return sought.ok();
}

// Returns the first readable position after `begin`, or nullopt if there is none. Damage covers one
// or more whole blocks, so every block is tried. Errors: a read that failed without damage.
absl::StatusOr<std::optional<uint64_t>> EntryWalk::EndOfGap(uint64_t begin) {
  for (uint64_t bad = begin;;) {
    HPS_ASSIGN_OR_RETURN(const std::optional<uint64_t> block, NextBlock(bad));
    // No index names a block after it.
    if (!block.has_value()) return FirstAfter(bad, [&](uint64_t at) { return IsReadable(at); });
    HPS_ASSIGN_OR_RETURN(const bool readable, IsReadable(*block));
    if (readable) return block;
    bad = *block;
  }
}

absl::Status EntryWalk::VisitEntry() {
  if (it_->key().size() != kKeyBytes) {
    return absl::DataLossError(
        absl::StrCat(what_, ": a key of ", it_->key().size(), " bytes, expected ", kKeyBytes));
  }
  const uint64_t bits = LoadBigEndian64(it_->key().data());
  HPS_ASSIGN_OR_RETURN(const bool proceed,
                       visitor_.OnEntry(bits, {it_->value().data(), it_->value().size()}));
  done_ = !proceed || bits == range_.last;
  next_ = bits + 1;
  return absl::OkStatus();
}

// Reports the gap at next_ and continues after its end.
absl::Status EntryWalk::SkipGap(const rocksdb::Status& why) {
  HPS_ASSIGN_OR_RETURN(const std::optional<uint64_t> end, EndOfGap(next_));
  const uint64_t last = end.has_value() ? *end - 1 : range_.last;
  HPS_RETURN_IF_ERROR(visitor_.OnGap({next_, last}, why));
  done_ = !end.has_value();
  if (done_) return absl::OkStatus();
  next_ = *end;
  const rocksdb::Status sought = Seek(next_);
  return sought.ok() || IsDamage(sought) ? absl::OkStatus() : Failed(sought);
}

absl::Status EntryWalk::Run() {
  Seek(next_).PermitUncheckedError();
  while (!done_) {
    if (it_->Valid()) {
      HPS_RETURN_IF_ERROR(VisitEntry());
      if (!done_) it_->Next();
      continue;
    }
    if (it_->status().ok()) return absl::OkStatus();
    // Retries once: the error may be temporary.
    const rocksdb::Status status = Seek(next_);
    if (status.ok()) continue;
    if (!IsDamage(status)) return Failed(status);
    HPS_RETURN_IF_ERROR(SkipGap(status));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WalkEntries(const IteratorSource& source, const BytesBefore& bytes_before,
                         BitsRange range, const std::string& what, EntryVisitor& visitor) {
  EntryWalk walk(source, bytes_before, range, what, visitor);
  return walk.Run();
}

}  // namespace hps
