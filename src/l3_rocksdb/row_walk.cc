#include "l3_rocksdb/row_walk.h"

#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"

namespace hps {
namespace {

constexpr uint64_t kLastBits = std::numeric_limits<uint64_t>::max();

rocksdb::ReadOptions WithoutFillingTheCache() {
  rocksdb::ReadOptions read_options;
  read_options.fill_cache = false;
  return read_options;
}

// Keys are numbers here: their ordered bits.
class Walk {
 public:
  Walk(const Database::Pin& pin, RowVisitor& visitor) : pin_(pin), visitor_(visitor) {}

  absl::Status Run();

 private:
  rocksdb::Status Seek(uint64_t bits);
  absl::StatusOr<uint64_t> EndOfGap(uint64_t begin);
  absl::Status VisitRow();
  absl::Status PassGap(const rocksdb::Status& why);
  absl::Status Failed(const rocksdb::Status& status) const;

  const Database::Pin& pin_;
  RowVisitor& visitor_;
  std::unique_ptr<rocksdb::Iterator> it_;  // null before the first seek
  uint64_t next_ = 0;                      // every key before it has been visited
  bool done_ = false;
};

// Goes to the first key at or after `bits`. With a new iterator: after damage the old one is no
// good. That both show the same, the caller of WalkRows sees to.
rocksdb::Status Walk::Seek(uint64_t bits) {
  char key[kKeyBytes];
  StoreBigEndian64(key, bits);
  it_ = NewStoreIterator(pin_.database().db(), pin_.family().handle, WithoutFillingTheCache());
  it_->Seek({key, kKeyBytes});
  return it_->status();
}

// The first position after `begin` at which reading works again, found by doubling steps and then
// halving: good rows between two damages can be missed only if they are fewer than the damage
// before them is long. 0 = nothing after `begin` can be read. Errors: a read that failed without
// damage.
absl::StatusOr<uint64_t> Walk::EndOfGap(uint64_t begin) {
  uint64_t bad = begin;
  uint64_t good = begin;
  for (uint64_t step = 1;; step = step > kLastBits / 2 ? kLastBits : step * 2) {
    if (bad == kLastBits) return uint64_t{0};
    good = step > kLastBits - begin ? kLastBits : begin + step;
    const rocksdb::Status sought = Seek(good);
    if (sought.ok()) break;
    if (!IsDamage(sought)) return Failed(sought);
    bad = good;
  }
  while (good - bad > 1) {
    const uint64_t middle = bad + (good - bad) / 2;
    const rocksdb::Status sought = Seek(middle);
    if (!sought.ok() && !IsDamage(sought)) return Failed(sought);
    (sought.ok() ? good : bad) = middle;
  }
  return good;
}

absl::Status Walk::Failed(const rocksdb::Status& status) const {
  return FromRocksStatus(status,
                         absl::StrCat("table '", pin_.family().table.spec.name, "': reading rows"));
}

absl::Status Walk::VisitRow() {
  const TableRecord& table = pin_.family().table;
  if (it_->key().size() != kKeyBytes) {
    return absl::DataLossError(absl::StrCat("table '", table.spec.name, "': a key of ",
                                            it_->key().size(), " bytes, expected ", kKeyBytes));
  }
  const Key key = DecodeKey(it_->key().data());
  const std::string_view value(it_->value().data(), it_->value().size());
  done_ = OrderedBits(key) == kLastBits;
  next_ = OrderedBits(key) + 1;
  if (CheckRow(table.incarnation, key, value, table.spec.row_bytes()) == RowState::kDamaged)
    return visitor_.OnDamagedRow(key);
  return visitor_.OnRow(key, value);
}

// Reports the gap at next_ and goes to its end.
absl::Status Walk::PassGap(const rocksdb::Status& why) {
  const uint64_t begin = next_;
  HPS_ASSIGN_OR_RETURN(const uint64_t end, EndOfGap(begin));
  done_ = end == 0;
  HPS_RETURN_IF_ERROR(visitor_.OnGap(
      KeyOfOrderedBits(begin), KeyOfOrderedBits(done_ ? kLastBits : end - 1), why.ToString()));
  if (done_) return absl::OkStatus();
  next_ = end;
  const rocksdb::Status sought = Seek(end);
  return sought.ok() || IsDamage(sought) ? absl::OkStatus() : Failed(sought);
}

absl::Status Walk::Run() {
  Seek(0);
  while (!done_) {
    if (it_->Valid()) {
      HPS_RETURN_IF_ERROR(VisitRow());
      if (!done_) it_->Next();
      continue;
    }
    if (it_->status().ok()) return absl::OkStatus();
    // Once more: it may not last.
    const rocksdb::Status status = Seek(next_);
    if (status.ok()) continue;
    if (!IsDamage(status)) return Failed(status);
    HPS_RETURN_IF_ERROR(PassGap(status));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WalkRows(const Database::Pin& pin, RowVisitor& visitor) {
  Walk walk(pin, visitor);
  return walk.Run();
}

}  // namespace hps
