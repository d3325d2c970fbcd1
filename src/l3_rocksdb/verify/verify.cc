#include "l3_rocksdb/verify/verify.h"

#include <rocksdb/file_checksum.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <map>
#include <optional>
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
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/row_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"
#include "types/progress_reporter.h"

namespace hps {
namespace {

constexpr Duration kOpenTimeout = std::chrono::seconds(10);

class Verifier {
 public:
  Verifier(const RocksStoreOptions& options, const ProgressFunction& progress)
      : options_(options), env_(EnvOf(options)), progress_(progress) {}

  // Checks everything that can be checked. Fills the report.
  absl::Status Run();

  VerifyReport& report() { return report_; }
  // By model.
  const std::map<std::string, Incarnation>& damaged_networks() const { return damaged_networks_; }
  bool is_mark_damaged() const {
    return mark_ == ManifestMark::State::kOneCopy || mark_ == ManifestMark::State::kDamaged;
  }
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
  absl::Status CheckNetworkFile(const rocksdb::LiveFileMetaData& file, const std::string& model,
                                Incarnation id);
  absl::Status CheckNetworks(Database& database);
  absl::Status CheckTable(Database& database, const std::string& name);
  absl::Status CheckPageFiles(const FamilyPin& pin);
  absl::Status CheckChanges(const FamilyPin& pin);
  absl::Status FailedRead(const rocksdb::Status& status, const std::string& file) const {
    return FromRocksStatus(status, absl::StrCat("reading '", path(), "/", file, "'"));
  }

  const RocksStoreOptions options_;
  rocksdb::Env* const env_;
  const ProgressFunction& progress_;
  VerifyReport report_;
  std::map<std::string, Incarnation> damaged_networks_;
  std::optional<Damage> log_damage_{};  // the first; prevents a repair
  ManifestMark::State mark_ = ManifestMark::State::kWhole;
};

// The changes of one table, each with its own checksum: what they add to the rows of its page files
// and remove from them.
class ChangeCheck {
 public:
  ChangeCheck(Verifier& verifier, const FamilyPin& pin)
      : verifier_(verifier), pin_(pin), name_(pin.family().table.spec.name) {}

  // Reads all changes in the order of their keys. Repeats a failed read once, because the reason
  // may not be damage. The changes after damage can't be read in this order, so they count as lost.
  absl::Status Run();

  uint64_t rows_added() const { return rows_added_; }
  uint64_t rows_removed() const { return rows_removed_; }
  uint64_t lost_count() const { return lost_count_; }

 private:
  static constexpr size_t kKeysAtOnce = 1024;

  rocksdb::Status ReadAfter(rocksdb::Slice last);
  absl::Status Visit(const rocksdb::Iterator& it);
  absl::Status CompareWithPages();
  uint64_t RecordCount() const;

  Verifier& verifier_;
  const FamilyPin& pin_;
  const std::string& name_;
  std::string last_key_{};  // of those that were read, as RocksDB has it
  uint64_t read_count_ = 0;
  std::vector<Key> keys_{};  // not yet compared
  std::vector<bool> deleted_{};
  absl::Status failure_{};
  uint64_t rows_added_ = 0;
  uint64_t rows_removed_ = 0;
  uint64_t lost_count_ = 0;
};

absl::Status ChangeCheck::Run() {
  rocksdb::Status read = ReadAfter({});
  if (!read.ok()) read = ReadAfter(last_key_);
  HPS_RETURN_IF_ERROR(failure_);
  HPS_RETURN_IF_ERROR(CompareWithPages());
  if (read.ok()) return absl::OkStatus();
  if (!IsDamage(read)) return FromRocksStatus(read, absl::StrCat("reading changes of ", name_));
  // A key with records in several files counts several times.
  lost_count_ += std::max(RecordCount(), read_count_ + 1) - read_count_;
  const std::string after = last_key_.size() == kKeyBytes
                                ? absl::StrCat(" after key ", DecodeKey(last_key_.data()))
                                : std::string();
  verifier_.Add({name_, "", std::nullopt,
                 absl::StrCat("unreadable changes", after, ": ", read.ToString(),
                              "; import the table again")});
  return absl::OkStatus();
}

// Reads the changes after the key `last`, or all.
rocksdb::Status ChangeCheck::ReadAfter(rocksdb::Slice last) {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  const auto it = NewStoreIterator(pin_.database().db(), pin_.family().handle, options);
  if (last.empty()) {
    it->SeekToFirst();
  } else {
    it->Seek(last);
    if (it->Valid() && it->key() == last) it->Next();
  }
  for (; failure_.ok() && it->Valid(); it->Next()) failure_.Update(Visit(*it));
  return it->status();
}

absl::Status ChangeCheck::Visit(const rocksdb::Iterator& it) {
  const TableRecord& table = pin_.family().table;
  const std::string_view value(it.value().data(), it.value().size());
  ++read_count_;
  verifier_.report().bytes += value.size();
  last_key_ = it.key().ToString();
  if (last_key_.size() != kKeyBytes) {
    ++lost_count_;
    verifier_.Add({name_, "", std::nullopt,
                   absl::StrCat("a key of ", last_key_.size(), " bytes, expected ", kKeyBytes)});
    return absl::OkStatus();
  }
  const Key key = DecodeKey(last_key_.data());
  const RowState state = CheckRow(table.incarnation, key, value, table.spec.row_bytes());
  if (state == RowState::kDamaged) {
    ++lost_count_;
    verifier_.Add({name_, "", key, "the row's checksum is wrong"});
    return absl::OkStatus();
  }
  keys_.push_back(key);
  deleted_.push_back(state == RowState::kDeleted);
  return keys_.size() == kKeysAtOnce ? CompareWithPages() : absl::OkStatus();
}

// Of the keys since the last call.
absl::Status ChangeCheck::CompareWithPages() {
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

// Of the table's changes in memory and in files.
uint64_t ChangeCheck::RecordCount() const {
  rocksdb::DB& db = pin_.database().db();
  uint64_t count = 0;
  db.GetIntProperty(pin_.family().handle, rocksdb::DB::Properties::kNumEntriesActiveMemTable,
                    &count);
  rocksdb::ColumnFamilyMetaData family;
  db.GetColumnFamilyMetaData(pin_.family().handle, &family);
  for (const rocksdb::LevelMetaData& level : family.levels)
    for (const rocksdb::SstFileMetaData& file : level.files) count += file.num_entries;
  return count;
}

void Verifier::Add(Damage damage) {
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
  mark_ = mark.state;
  if (mark.state == ManifestMark::State::kDamaged)
    Add({"", "hps.manifest", std::nullopt, "both copies are damaged"});
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
    rocksdb::SstFileReader reader(rocks_options.for_one_file());
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
                                        const std::string& model, Incarnation id) {
  const uint64_t damage_before = report_.damage_count;
  HPS_RETURN_IF_ERROR(CheckTableFile(file, ""));
  if (report_.damage_count == damage_before) return absl::OkStatus();
  damaged_networks_[model] = id;
  if (report_.damage.size() == report_.damage_count)
    report_.damage.back().what += absl::StrCat(" (the dense network of model '", model, "')");
  return absl::OkStatus();
}

absl::Status Verifier::CheckNetworks(Database& database) {
  const CatalogContents catalog = database.catalog().contents();
  for (const auto& [model, record] : catalog.networks) {
    const absl::Status read = database.catalog().Network(model).status();
    if (read.ok()) continue;
    if (!absl::IsDataLoss(read)) return read;
    damaged_networks_[model] = record.id;
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
  const CatalogContents catalog = database.catalog().contents();
  std::map<std::string, std::string> tables;  // by column family
  for (const auto& [name, table] : catalog.tables) tables[FamilyName(FamilyIdOf(table))] = name;
  std::map<std::string, std::string> models;  // likewise, of networks
  for (const auto& [name, network] : catalog.networks) models[NetworkFamilyName(network.id)] = name;
  std::vector<rocksdb::LiveFileMetaData> files;
  database.db().GetLiveFilesMetaData(&files);
  if (mark_ == ManifestMark::State::kDamaged) HPS_RETURN_IF_ERROR(CheckNamesAllFiles(files));
  uint64_t total = 0;
  for (const rocksdb::LiveFileMetaData& file : files) total += file.size;
  ProgressReporter progress(progress_, total);
  uint64_t done = 0;
  for (const rocksdb::LiveFileMetaData& file : files) {
    progress.Report("reading files", done);
    const auto table = tables.find(file.column_family_name);
    const auto model = models.find(file.column_family_name);
    if (model != models.end()) {
      HPS_RETURN_IF_ERROR(
          CheckNetworkFile(file, model->second, catalog.networks.at(model->second).id));
    } else {
      HPS_RETURN_IF_ERROR(CheckTableFile(file, table == tables.end() ? "" : table->second));
    }
    done += file.size;
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckPageFiles(const FamilyPin& pin) {
  const PageTable& table = *pin.family().pages->table;
  const std::string& name = pin.family().table.spec.name;
  HPS_ASSIGN_OR_RETURN(const std::vector<PageKeyRange> lost, table.FindDamage());
  for (const PageKeyRange& range : lost) {
    report_.rows_lost += range.row_count;
    report_.rows -= range.row_count;
    Add({name, "", std::nullopt,
         absl::StrCat("page files: ", range.row_count, " rows of keys ", range.first, " to ",
                      range.last, " are lost; import the table again")});
  }
  if (lost.empty() && table.is_impaired()) {
    Add({name, "", std::nullopt,
         "page files: a header, a footer or an index is damaged; import the table again"});
  }
  report_.bytes += table.file_bytes();
  report_.rows += table.row_count();
  return absl::OkStatus();
}

absl::Status Verifier::CheckChanges(const FamilyPin& pin) {
  ChangeCheck check(*this, pin);
  HPS_RETURN_IF_ERROR(check.Run());
  report_.rows_lost += check.lost_count();
  report_.rows += check.rows_added() - check.rows_removed();
  return absl::OkStatus();
}

absl::Status Verifier::CheckTable(Database& database, const std::string& name) {
  const absl::StatusOr<FamilyPin> pin = database.catalog().PinTable(name);
  if (!pin.ok()) {
    if (!absl::IsDataLoss(pin.status())) return pin.status();
    Add({name, "", std::nullopt, std::string(pin.status().message())});
    return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(CheckPageFiles(*pin));
  return CheckChanges(*pin);
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
  const CatalogContents catalog = (*database)->catalog().contents();
  uint64_t total = 0;
  for (const TableRecord* table : catalog.InOrder()) total += table->row_count;
  ProgressReporter progress(progress_, total);
  uint64_t done = 0;
  for (const TableRecord* table : catalog.InOrder()) {
    progress.Report("reading rows", done);
    HPS_RETURN_IF_ERROR(CheckTable(**database, table->spec.name));
    done += table->row_count;
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

// Removes networks, and returns their models. Closing the store writes hps.manifest again.
absl::StatusOr<std::vector<std::string>> Repair(
    const RocksStoreOptions& options, const std::map<std::string, Incarnation>& networks) {
  RocksStoreOptions writer = options;
  writer.mode = OpenMode::kReadWrite;
  HPS_ASSIGN_OR_RETURN(const std::shared_ptr<Database> database, Database::OpenDamaged(writer));
  MutexLock lock(database->change_mutex());
  const CatalogContents catalog = database->catalog().contents();
  std::vector<std::string> removed;
  for (const auto& [model, id] : networks) {
    // Another process may have imported or dropped the model since it was read.
    const auto current = catalog.networks.find(model);
    if (current == catalog.networks.end() || current->second.id != id) continue;
    HPS_RETURN_IF_ERROR(database->DropNetwork(model));
    removed.push_back(model);
  }
  return removed;
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
                                            ": only networks and hps.manifest can be repaired"));
  }
  // Nothing else can be mended, so the store is not opened for writing.
  if (verifier.damaged_networks().empty() && !verifier.is_mark_damaged()) return report;
  HPS_ASSIGN_OR_RETURN(report.networks_removed, Repair(options, verifier.damaged_networks()));
  return report;
}

}  // namespace hps
