#include "l3_rocksdb/family_table.h"

#include "base/macros.h"
#include "l3_rocksdb/database.h"

namespace hps {
FamilyPin FamilyPin::Share() const { return database_->families().Pin(*family_); }

void FamilyPin::Release() {
  if (database_ != nullptr) database_->Unpin(family_);
  database_ = nullptr;
}

FamilyTable::~FamilyTable() {
  MutexLock lock(mutex_);
  for (auto& [id, family] : families_) store_.db().DestroyColumnFamilyHandle(family->handle);
}

Family& FamilyTable::Add(const TableRecord& table, rocksdb::ColumnFamilyHandle* handle,
                         std::shared_ptr<const FamilyPages> pages) {
  auto family = std::make_unique<Family>();
  family->handle = handle;
  family->table = table;
  family->pages = std::move(pages);
  MutexLock lock(mutex_);
  return *(families_[FamilyIdOf(table)] = std::move(family));
}

FamilyPin FamilyTable::Pin(const FamilyId& id) {
  MutexLock lock(mutex_);
  const auto found = families_.find(id);
  if (found == families_.end()) return {};
  ++found->second->pins;
  return FamilyPin(database_.shared_from_this(), found->second.get());
}

FamilyPin FamilyTable::Pin(Family& family) {
  MutexLock lock(mutex_);
  ++family.pins;
  return FamilyPin(database_.shared_from_this(), &family);
}

std::vector<FamilyPin> FamilyTable::PinAll(Kind kind) {
  std::vector<FamilyPin> pins;
  const std::shared_ptr<Database> database = database_.weak_from_this().lock();
  if (database == nullptr) return pins;
  MutexLock lock(mutex_);
  for (const auto& [id, family] : families_) {
    if (kind == Kind::kNetwork && !family->table.spec.name.empty()) continue;
    ++family->pins;
    pins.push_back(FamilyPin(database, family.get()));
  }
  return pins;
}

std::vector<rocksdb::ColumnFamilyHandle*> FamilyTable::HandlesOf(
    const std::vector<FamilyPin>& pins) {
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  for (const FamilyPin& pin : pins) handles.push_back(pin.family().handle);
  if (!database_.weak_from_this().expired()) return handles;
  MutexLock lock(mutex_);
  for (const auto& [id, family] : families_) handles.push_back(family->handle);
  return handles;
}

std::unique_ptr<Family> FamilyTable::Unpin(Family* family) {
  MutexLock lock(mutex_);
  HPS_CHECK(family->pins > 0);
  --family->pins;
  return TakeUnneeded(family);
}

std::unique_ptr<Family> FamilyTable::NoteReplaced(const FamilyId& id, SpaceReserve::Loan room) {
  MutexLock lock(mutex_);
  const auto found = families_.find(id);
  if (found == families_.end()) return nullptr;
  Family& family = *found->second;
  family.room = std::move(room);
  family.current = false;
  if (Family* const successor = family.merge.successor) successor->merge.Cancel();
  return TakeUnneeded(&family);
}

std::unique_ptr<Family> FamilyTable::TakeUnneeded(Family* family) {
  if (family->pins > 0 || family->current) return nullptr;
  return std::move(families_.extract(FamilyIdOf(family->table)).mapped());
}

void FamilyTable::NoteMerged(Family& from, Family& to, const TableRecord& record,
                             std::shared_ptr<const FamilyPages> pages) {
  MutexLock lock(mutex_);
  to.table = record;
  to.pages = std::move(pages);
  to.current = true;
  from.merge.is_done = true;
  from.merge.successor = nullptr;
  from.current = false;
}

void FamilyTable::NoteNotMerged(Family& from) {
  MutexLock lock(mutex_);
  from.merge.successor = nullptr;
}

std::vector<std::string> FamilyTable::TablesThat(absl::FunctionRef<bool(Family&)> are_meant) const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [id, family] : families_) {
    const std::string& name = family->table.spec.name;
    if (family->current && !name.empty() && are_meant(*family)) names.push_back(name);
  }
  return names;
}

bool FamilyTable::AnyOf(Incarnation incarnation) const {
  MutexLock lock(mutex_);
  const auto first = families_.lower_bound({incarnation});
  return first != families_.end() && first->first.incarnation == incarnation;
}

PageFileSet FamilyTable::PageFiles() const {
  MutexLock lock(mutex_);
  PageFileSet files;
  for (const auto& [id, family] : families_) AddPageFiles(family->table, files);
  return files;
}

std::shared_ptr<const FamilyPages> FamilyTable::PagesOf(const FamilyId& id) const {
  MutexLock lock(mutex_);
  const auto found = families_.find(id);
  return found == families_.end() ? nullptr : found->second->pages;
}

}  // namespace hps
