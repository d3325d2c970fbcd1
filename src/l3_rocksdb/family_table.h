// The open column families of a store, and who reads them.
//
// A family stays open while the catalog names it or a pin holds it. The last of the two to go hands
// it over for its drop (FamilyFiles::Retire). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "l3_rocksdb/family.h"
#include "l3_rocksdb/store_db.h"

namespace hps {

class Database;

// Keeps a family readable and its database open. Movable; empty after a move.
class FamilyPin {
 public:
  FamilyPin() = default;
  FamilyPin(FamilyPin&&) = default;
  FamilyPin& operator=(FamilyPin&& other) noexcept {
    Release();
    database_ = std::move(other.database_);
    family_ = other.family_;
    return *this;
  }
  ~FamilyPin() { Release(); }

  // Another pin of the same family.
  FamilyPin Share() const;

  explicit operator bool() const { return database_ != nullptr; }
  Database& database() const { return *database_; }
  Family& family() const { return *family_; }

 private:
  friend class FamilyTable;
  FamilyPin(std::shared_ptr<Database> database, Family* family)
      : database_(std::move(database)), family_(family) {}
  void Release();

  std::shared_ptr<Database> database_;
  Family* family_ = nullptr;
};

class FamilyTable {
 public:
  FamilyTable(Database& database, StoreDb& store) : database_(database), store_(store) {}
  // Destroys the handles of the families that are left.
  ~FamilyTable();

  Family& Add(const TableRecord& table, rocksdb::ColumnFamilyHandle* handle,
              std::shared_ptr<const FamilyPages> pages = nullptr);

  // An empty pin if there is no such family.
  FamilyPin Pin(const FamilyId& id);
  // REQUIRES: the caller has a pin of it, or has just added it.
  FamilyPin Pin(Family& family);
  enum class Kind { kAny, kNetwork };
  // None while the database is being made or destroyed.
  std::vector<FamilyPin> PinAll(Kind kind = Kind::kAny);
  // The handles of the pinned families; of all while the database is being made or destroyed, when
  // no other thread drops one.
  std::vector<rocksdb::ColumnFamilyHandle*> HandlesOf(const std::vector<FamilyPin>& pins);

  // Both return a family that has no readers and is not current, for its drop; null if it is
  // needed.
  std::unique_ptr<Family> Unpin(Family* family);
  // The catalog no longer names the family. Ends its merge. `room` is held until it is dropped.
  std::unique_ptr<Family> NoteReplaced(const FamilyId& id, SpaceReserve::Loan room = {});

  // The catalog names `to` instead of `from`, which has been merged into it.
  void NoteMerged(Family& from, Family& to, const TableRecord& record,
                  std::shared_ptr<const FamilyPages> pages);
  // The merge of the family's changes has ended without a switch.
  void NoteNotMerged(Family& from);

  // The tables whose current family `are_meant`.
  std::vector<std::string> TablesThat(absl::FunctionRef<bool(Family&)> are_meant) const;
  bool AnyOf(Incarnation incarnation) const;
  PageFileSet PageFiles() const;
  // Null if there is no such family, or it has none.
  std::shared_ptr<const FamilyPages> PagesOf(const FamilyId& id) const;

 private:
  std::unique_ptr<Family> TakeUnneeded(Family* family) HPS_REQUIRES(mutex_);

  Database& database_;
  StoreDb& store_;
  mutable Mutex mutex_;
  std::map<FamilyId, std::unique_ptr<Family>> families_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
