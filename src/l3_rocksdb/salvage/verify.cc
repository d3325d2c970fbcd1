#include "l3_rocksdb/salvage/verify.h"

#include <rocksdb/file_checksum.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/file_checksum.h"
#include "l3_rocksdb/files/log_check.h"
#include "l3_rocksdb/files/manifest_mark.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "l3_rocksdb/files/reader_file_system.h"
#include "l3_rocksdb/files/store_files.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/row_progress.h"
#include "l3_rocksdb/salvage/key_list.h"
#include "l3_rocksdb/salvage/repair.h"
#include "l3_rocksdb/salvage/row_walk.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr Duration kOpenTimeout = std::chrono::seconds(10);

class Verifier {
 public:
  Verifier(const RocksStoreOptions& options, const ProgressFunction& progress)
      : options_(options), env_(EnvOf(options)), progress_(progress) {}

  // Checks everything that can be checked. Fills the report and the set of damaged tables.
  absl::Status Run();

  VerifyReport& report() { return report_; }
  // Without those in page files, which are not repaired.
  std::set<std::string> tables_to_repair() const {
    std::set<std::string> names;
    for (const std::string& name : damaged_tables_) {
      if (!page_tables_.contains(name)) names.insert(name);
    }
    return names;
  }
  // Whose networks are damaged.
  const std::set<std::string>& damaged_models() const { return damaged_models_; }
  const std::optional<Damage>& log_damage() const { return log_damage_; }
  void Add(Damage damage);

 private:
  const std::string& path() const { return options_.config.path; }
  void AddToLogs(const Damage& damage) {
    if (!log_damage_.has_value()) log_damage_ = damage;
    Add(damage);
  }
  absl::Status CheckCurrent();
  absl::Status CheckLogs();
  absl::Status CheckMark();
  absl::Status CheckUnopened(const absl::Status& why);
  absl::Status CheckTableFiles(Database& database);
  absl::Status CheckNamesAllFiles(const std::vector<rocksdb::LiveFileMetaData>& named);
  absl::Status CheckTableFile(const rocksdb::LiveFileMetaData& file, const std::string& table);
  absl::Status CheckNetworkFile(const rocksdb::LiveFileMetaData& file, const std::string& model);
  absl::Status CheckNetworks(Database& database);
  absl::Status CheckRows(Database& database, const std::string& name, RowProgress& progress);
  absl::Status CheckPageFiles(const Database::Pin& pin, RowProgress& progress);
  absl::Status FailedRead(const rocksdb::Status& status, const std::string& file) const {
    return FromRocksStatus(status, absl::StrCat("reading '", path(), "/", file, "'"));
  }

  const RocksStoreOptions options_;
  rocksdb::Env* const env_;
  const ProgressFunction& progress_;
  VerifyReport report_;
  std::set<std::string> damaged_tables_;
  std::set<std::string> page_tables_;
  std::set<std::string> damaged_models_;
  std::optional<Damage> log_damage_{};  // the first; prevents a repair
  bool mark_damaged_ = false;
};

// Counts the rows and the damage of one table.
class RowCheck final : public RowVisitor {
 public:
  RowCheck(Verifier& verifier, const Database::Pin& pin, RowProgress& progress)
      : verifier_(verifier), pin_(pin), progress_(progress) {}

  absl::Status OnRow(Key, std::string_view value) override {
    ++(value.size() == kRowTailBytes ? lost_count_ : row_count_);
    verifier_.report().bytes += value.size();
    progress_.AddRow();
    return absl::OkStatus();
  }
  absl::Status OnLostRow(Key key, const std::string& why) override {
    ++lost_count_;
    progress_.AddRow();
    verifier_.Add({name(), "", key, why});
    return absl::OkStatus();
  }
  absl::Status OnGap(Key first, Key last, const std::string& why) override {
    verifier_.Add(
        {name(), "", std::nullopt,
         absl::StrCat("unreadable entries from key ", first, " to key ", last, ": ", why)});
    return absl::OkStatus();
  }
  absl::Status OnDamagedList(Key first, Key last) override {
    verifier_.Add(
        {name(), "", std::nullopt,
         absl::StrCat("the key list is damaged too, from key ", first, " to key ", last)});
    return absl::OkStatus();
  }

  uint64_t row_count() const { return row_count_; }
  uint64_t lost_count() const { return lost_count_; }

 private:
  const std::string& name() const { return pin_.family().table.spec.name; }

  Verifier& verifier_;
  const Database::Pin& pin_;
  RowProgress& progress_;
  uint64_t row_count_ = 0;
  uint64_t lost_count_ = 0;
};

// Counts what the changes of a table in page files add to its rows and remove from them.
class ChangeCheck final : public RowVisitor {
 public:
  ChangeCheck(Verifier& verifier, const Database::Pin& pin) : verifier_(verifier), pin_(pin) {}

  absl::Status OnRow(Key key, std::string_view value) override {
    verifier_.report().bytes += value.size();
    keys_.push_back(key);
    deleted_.push_back(value.size() == kDeletionBytes);
    return keys_.size() == kKeysAtOnce ? Finish() : absl::OkStatus();
  }
  absl::Status OnLostRow(Key key, const std::string& why) override {
    ++lost_count_;
    verifier_.Add({name(), "", key, why});
    return absl::OkStatus();
  }
  absl::Status OnGap(Key first, Key last, const std::string& why) override {
    verifier_.Add(
        {name(), "", std::nullopt,
         absl::StrCat("unreadable changes from key ", first, " to key ", last, ": ", why)});
    return absl::OkStatus();
  }
  absl::Status OnDamagedList(Key, Key) override { return absl::OkStatus(); }  // has none

  // Compares the keys since the last call with the page files.
  absl::Status Finish();

  uint64_t rows_added() const { return rows_added_; }
  uint64_t rows_removed() const { return rows_removed_; }
  uint64_t lost_count() const { return lost_count_; }

 private:
  static constexpr size_t kKeysAtOnce = 1024;

  const std::string& name() const { return pin_.family().table.spec.name; }

  Verifier& verifier_;
  const Database::Pin& pin_;
  std::vector<Key> keys_{};
  std::vector<bool> deleted_{};
  uint64_t rows_added_ = 0;
  uint64_t rows_removed_ = 0;
  uint64_t lost_count_ = 0;
};

absl::Status ChangeCheck::Finish() {
  const size_t row_bytes = pin_.family().table.spec.row_bytes();
  std::vector<std::byte> rows(keys_.size() * row_bytes);
  std::vector<FetchOutcome> outcomes(keys_.size());
  HPS_RETURN_IF_ERROR(
      pin_.family()
          .pages->table
          ->Fetch({keys_, {rows.data(), keys_.size(), row_bytes, row_bytes}, outcomes}, kNoDeadline)
          .status());
  for (size_t i = 0; i < keys_.size(); ++i) {
    const bool had_row = outcomes[i] == FetchOutcome::kHit;
    if (deleted_[i] && had_row) ++rows_removed_;
    if (!deleted_[i] && !had_row) ++rows_added_;
  }
  keys_.clear();
  deleted_.clear();
  return absl::OkStatus();
}

void Verifier::Add(Damage damage) {
  if (!damage.table.empty()) damaged_tables_.insert(damage.table);
  ++report_.damage_count;
  if (report_.damage.size() < kDamageListedMax) report_.damage.push_back(std::move(damage));
}

absl::Status Verifier::CheckCurrent() {
  std::string content;
  const rocksdb::Status read = rocksdb::ReadFileToString(env_, path() + "/CURRENT", &content);
  if (!read.ok() && !IsDamage(read)) return FailedRead(read, "CURRENT");
  if (!read.ok()) {
    AddToLogs({"", "CURRENT", std::nullopt, read.ToString()});
    return absl::OkStatus();
  }
  const bool well_formed = content.starts_with("MANIFEST-") && content.ends_with('\n') &&
                           content.find('/') == std::string::npos;
  if (!well_formed) {
    Add({"", "CURRENT", std::nullopt, "does not name a MANIFEST"});
    return absl::OkStatus();
  }
  const std::string manifest = content.substr(0, content.size() - 1);
  const rocksdb::Status found = env_->FileExists(path() + "/" + manifest);
  if (!found.ok() && !IsDamage(found)) return FailedRead(found, manifest);
  if (!found.ok()) Add({"", "CURRENT", std::nullopt, "names a MANIFEST that does not exist"});
  return absl::OkStatus();
}

absl::Status Verifier::CheckLogs() {
  std::vector<std::string> names;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env_->GetChildren(path(), &names), absl::StrCat("listing '", path(), "'")));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!name.starts_with("MANIFEST-") && !name.ends_with(".log")) continue;
    // CheckMark checks that the MANIFEST reaches the marked length.
    const auto damage = CheckLog(env_, path() + "/" + name, true);
    HPS_RETURN_IF_ERROR(damage.status());
    if (!damage->has_value()) continue;
    AddToLogs(
        {"", name, std::nullopt, absl::StrCat((*damage)->what, " at byte ", (*damage)->offset)});
  }
  return absl::OkStatus();
}

// A damaged mark only disables a check. A repair rewrites it.
absl::Status Verifier::CheckMark() {
  HPS_ASSIGN_OR_RETURN(const ManifestMark mark, ReadManifestMark(env_, path()));
  if (mark.state == ManifestMark::State::kDamaged) {
    mark_damaged_ = true;
    Add({"", "hps.manifest", std::nullopt, "both copies are damaged"});
  }
  if (mark.state == ManifestMark::State::kOneCopy)
    Add({"", "hps.manifest", std::nullopt, "one of two copies is damaged"});
  const absl::Status checked = CheckManifest(env_, path(), mark);
  if (checked.ok() || !absl::IsDataLoss(checked)) return checked;
  AddToLogs({"", "hps.manifest", std::nullopt, std::string(checked.message())});
  return absl::OkStatus();
}

// If the store cannot be opened, checks each table file by itself.
absl::Status Verifier::CheckUnopened(const absl::Status& why) {
  Add({"", "", std::nullopt, std::string(why.message())});
  std::vector<std::string> names;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env_->GetChildren(path(), &names), absl::StrCat("listing '", path(), "'")));
  const RocksOptions rocks_options(options_);
  for (const std::string& name : names) {
    if (!name.ends_with(".sst")) continue;
    rocksdb::SstFileReader reader(rocks_options.for_row_files());
    rocksdb::Status status = reader.Open(path() + "/" + name);
    if (status.ok()) status = reader.VerifyChecksum();
    if (status.ok()) continue;
    // "Invalid argument": the file's properties name something that RocksDB does not know.
    if (!IsDamage(status) && !status.IsInvalidArgument()) return FailedRead(status, name);
    Add({"", name, std::nullopt, status.ToString()});
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckTableFile(const rocksdb::LiveFileMetaData& file,
                                      const std::string& table) {
  const std::string name = file.relative_filename;
  const absl::StatusOr<FileChecksum> found = ChecksumOf(env_, path() + "/" + name);
  if (!found.ok()) {
    if (!absl::IsDataLoss(found.status())) return found.status();
    Add({table, name, std::nullopt, std::string(found.status().message())});
    return absl::OkStatus();
  }
  report_.bytes += found->bytes;
  if (file.file_checksum_func_name == rocksdb::kStandardDbFileChecksumFuncName &&
      file.file_checksum != found->checksum) {
    Add({table, name, std::nullopt, "the file's checksum is not the one in the MANIFEST"});
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckNetworkFile(const rocksdb::LiveFileMetaData& file,
                                        const std::string& model) {
  const uint64_t damage_before = report_.damage_count;
  HPS_RETURN_IF_ERROR(CheckTableFile(file, ""));
  if (report_.damage_count == damage_before) return absl::OkStatus();
  damaged_models_.insert(model);
  if (report_.damage.size() == report_.damage_count)
    report_.damage.back().what += absl::StrCat(" (the dense network of model '", model, "')");
  return absl::OkStatus();
}

absl::Status Verifier::CheckNetworks(Database& database) {
  const CatalogContents catalog = database.catalog();
  for (const auto& [model, record] : catalog.networks) {
    const absl::Status read = database.Network(model).status();
    if (read.ok()) continue;
    if (!absl::IsDataLoss(read)) return read;
    damaged_models_.insert(model);
    Add({"", "", std::nullopt, std::string(read.message())});
  }
  return absl::OkStatus();
}

// Without a mark, a MANIFEST that has lost its end is detected by table files that it does not
// name.
absl::Status Verifier::CheckNamesAllFiles(const std::vector<rocksdb::LiveFileMetaData>& named) {
  std::vector<std::string> names;
  HPS_RETURN_IF_ERROR(
      FromRocksStatus(env_->GetChildren(path(), &names), absl::StrCat("listing '", path(), "'")));
  for (const std::string& name : names) {
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const auto& file) {
      return file.relative_filename == name;
    });
    if (!name.ends_with(".sst") || is_named) continue;
    AddToLogs(
        {"", name, std::nullopt, "is not named by the MANIFEST, which may have lost its end"});
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckTableFiles(Database& database) {
  const CatalogContents catalog = database.catalog();
  std::map<std::string, std::string> tables;  // by column family
  for (const auto& [name, table] : catalog.tables) tables[FamilyName(FamilyIdOf(table))] = name;
  std::map<std::string, std::string> models;  // likewise, of networks
  for (const auto& [name, network] : catalog.networks) models[NetworkFamilyName(network.id)] = name;
  std::vector<rocksdb::LiveFileMetaData> files;
  database.db().GetLiveFilesMetaData(&files);
  if (mark_damaged_) HPS_RETURN_IF_ERROR(CheckNamesAllFiles(files));
  uint64_t total = 0;
  for (const rocksdb::LiveFileMetaData& file : files) total += file.size;
  ProgressReporter progress(progress_, total);
  uint64_t done = 0;
  for (const rocksdb::LiveFileMetaData& file : files) {
    progress.Report("reading files", done);
    const auto table = tables.find(file.column_family_name);
    const auto model = models.find(file.column_family_name);
    if (model != models.end()) {
      HPS_RETURN_IF_ERROR(CheckNetworkFile(file, model->second));
    } else {
      HPS_RETURN_IF_ERROR(CheckTableFile(file, table == tables.end() ? "" : table->second));
    }
    done += file.size;
  }
  return absl::OkStatus();
}

// A table in page files. What is lost of it needs no mark: every lookup finds the damage.
absl::Status Verifier::CheckPageFiles(const Database::Pin& pin, RowProgress& progress) {
  const PageTable& table = *pin.family().pages->table;
  const std::string& name = pin.family().table.spec.name;
  page_tables_.insert(name);
  HPS_ASSIGN_OR_RETURN(const std::vector<PageKeyRange> lost, table.FindDamage());
  uint64_t lost_count = 0;
  for (const PageKeyRange& range : lost) {
    lost_count += range.row_count;
    Add({name, "", std::nullopt,
         absl::StrCat("page files: ", range.row_count, " rows of keys ", range.first, " to ",
                      range.last, " are lost; import the table again")});
  }
  if (lost.empty() && table.is_impaired()) {
    Add({name, "", std::nullopt,
         "page files: a header, a footer or an index is damaged; import the table again"});
  }
  report_.bytes += table.file_bytes();
  for (uint64_t i = 0; i < table.row_count(); ++i) progress.AddRow();
  ChangeCheck check(*this, pin);
  HPS_RETURN_IF_ERROR(WalkRows(pin, check));
  HPS_RETURN_IF_ERROR(check.Finish());
  report_.rows_lost += lost_count + check.lost_count();
  report_.rows += table.row_count() - lost_count + check.rows_added() - check.rows_removed();
  return absl::OkStatus();
}

absl::Status Verifier::CheckRows(Database& database, const std::string& name,
                                 RowProgress& progress) {
  const absl::StatusOr<Database::Pin> pin = database.PinTable(name);
  if (!pin.ok()) {
    if (!absl::IsDataLoss(pin.status())) return pin.status();
    Add({name, "", std::nullopt, std::string(pin.status().message())});
    return absl::OkStatus();
  }
  const Family& family = pin->family();
  if (family.pages != nullptr) return CheckPageFiles(*pin, progress);
  RowCheck check(*this, *pin, progress);
  HPS_RETURN_IF_ERROR(WalkRows(*pin, check));
  report_.rows += check.row_count();
  report_.rows_lost += check.lost_count();
  const uint64_t found_count = check.row_count() + check.lost_count();
  if (!family.changed && found_count != family.table.row_count) {
    Add({name, "", std::nullopt,
         absl::StrCat("has ", found_count, " rows, expected ", family.table.row_count)});
  }
  const absl::StatusOr<uint64_t> listed =
      CountKeyList(database.db(), database.key_list(), family.table.incarnation);
  if (!listed.ok()) {
    if (!absl::IsDataLoss(listed.status())) return listed.status();
    Add({name, "", std::nullopt, std::string(listed.status().message())});
  } else if (*listed != family.table.row_count) {
    Add({name, "", std::nullopt,
         absl::StrCat("its key list has ", *listed, " keys, expected ", family.table.row_count)});
  }
  return absl::OkStatus();
}

absl::Status Verifier::Run() {
  HPS_RETURN_IF_ERROR(CheckCurrent());
  HPS_RETURN_IF_ERROR(CheckLogs());
  HPS_RETURN_IF_ERROR(CheckMark());
  RocksStoreOptions reader = options_;
  reader.mode = OpenMode::kReadOnly;
  absl::StatusOr<std::shared_ptr<Database>> database = Database::Open(reader);
  if (!database.ok()) {
    if (!absl::IsDataLoss(database.status())) return database.status();
    HPS_RETURN_IF_ERROR(CheckUnopened(database.status()));
    if (log_damage_.has_value()) return absl::OkStatus();
    database = Database::OpenDamaged(reader);
    if (absl::IsDataLoss(database.status())) return absl::OkStatus();
    HPS_RETURN_IF_ERROR(database.status());
  }
  HPS_RETURN_IF_ERROR(CheckTableFiles(**database));
  const CatalogContents catalog = (*database)->catalog();
  uint64_t total = 0;
  for (const TableRecord* table : catalog.InOrder()) total += table->row_count;
  RowProgress progress(progress_, "reading rows", total);
  for (const TableRecord* table : catalog.InOrder()) {
    HPS_RETURN_IF_ERROR(CheckRows(**database, table->spec.name, progress));
    ++report_.tables;
  }
  return CheckNetworks(**database);
}

absl::Status CheckNoWriter(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const bool written_to, OwnerLock::WriterHasStore(path));
  if (!written_to) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("store '", path, "' is open for writing in another process"));
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyRocksStore(const RocksStoreOptions& options, bool repair,
                                              const ProgressFunction& progress) {
  const absl::StatusOr<StoreFiles> found = FindStore(EnvOf(options), options.config.path);
  if (!found.ok() && !absl::IsDataLoss(found.status())) return found.status();
  if (found.ok() && *found == StoreFiles::kNone)
    return absl::NotFoundError(absl::StrCat("there is no store at '", options.config.path, "'"));
  HPS_RETURN_IF_ERROR(CheckNoWriter(options.config.path));
  // A writer that starts now may delete files; holding them open avoids false reports of damage.
  HPS_ASSIGN_OR_RETURN(const std::shared_ptr<ReaderFileSystem> files,
                       ReaderFileSystem::Take(EnvOf(options)->GetFileSystem(), options.config.path,
                                              nullptr, DeadlineAfter(RealClock(), kOpenTimeout)));
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);
  RocksStoreOptions reader = options;
  reader.env = env.get();
  Verifier verifier(reader, progress);
  HPS_RETURN_IF_ERROR(verifier.Run());
  VerifyReport report = std::move(verifier.report());
  if (!repair || report.damage_count == 0) return report;
  if (const std::optional<Damage>& damage = verifier.log_damage()) {
    return absl::DataLossError(absl::StrCat("store '", options.config.path, "': ", damage->file,
                                            ": ", damage->what,
                                            ": only table files and hps.manifest can be repaired"));
  }
  HPS_ASSIGN_OR_RETURN(report.rows_marked_lost, RepairTables(options, verifier.tables_to_repair(),
                                                             verifier.damaged_models(), progress));
  return report;
}

}  // namespace hps
