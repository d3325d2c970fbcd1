#include "l3_rocksdb/import/file_ingestion.h"

#include <rocksdb/file_checksum.h>
#include <rocksdb/metadata.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l3_rocksdb/status.h"

namespace hps {
namespace {

constexpr size_t kKeyListBatchBytes = 1 << 20;

using FamilyHandles = std::vector<rocksdb::ColumnFamilyHandle*>;

// Ingests the files of one column family. If the file system supports links, RocksDB takes links to
// the files, and the staging directory keeps the files.
rocksdb::IngestExternalFileArg IngestionOf(rocksdb::Env* env, const StagedImport& import,
                                           const std::vector<StagedFile>& files,
                                           rocksdb::ColumnFamilyHandle* family) {
  rocksdb::IngestExternalFileArg ingestion;
  ingestion.column_family = family;
  ingestion.options.move_files = true;
  ingestion.options.write_global_seqno = false;    // the files keep their checksums
  ingestion.options.verify_file_checksum = false;  // already done
  for (const StagedFile& file : files) {
    const std::string path = import.directory + "/" + file.name;
    const std::string link = path + kLinkSuffix;
    const bool linked = env->FileExists(link).ok() || env->LinkFile(path, link).ok();
    ingestion.options.move_files &= linked;
    ingestion.external_files.push_back(linked ? link : path);
    ingestion.files_checksums.push_back(file.checksum);
    ingestion.files_checksum_func_names.emplace_back(rocksdb::kStandardDbFileChecksumFuncName);
  }
  if (!ingestion.options.move_files) {
    for (size_t i = 0; i < files.size(); ++i)
      ingestion.external_files[i] = import.directory + "/" + files[i].name;
  }
  return ingestion;
}

// Checks that RocksDB has ingested the files with their key ranges. Key lists may be compacted.
absl::Status CheckIngested(Database& database, rocksdb::ColumnFamilyHandle* family,
                           const std::vector<StagedFile>& files) {
  rocksdb::ColumnFamilyMetaData taken;
  database.db().GetColumnFamilyMetaData(family, &taken);
  const auto is_taken = [&](const StagedFile& file, const rocksdb::LevelMetaData& level) {
    return std::any_of(level.files.begin(), level.files.end(), [&](const auto& found) {
      if (family != database.key_list())
        return found.smallestkey == file.first_key && found.largestkey == file.last_key;
      return found.smallestkey <= file.first_key && found.largestkey >= file.last_key;
    });
  };
  for (const StagedFile& file : files) {
    if (std::none_of(taken.levels.begin(), taken.levels.end(),
                     [&](const auto& level) { return is_taken(file, level); }))
      return absl::UnavailableError(
          absl::StrCat("store '", database.path(), "': '", file.name,
                       "' was ingested with another key range than was written"));
  }
  return absl::OkStatus();
}

// Writes the records of the files individually.
absl::Status WriteKeyLists(Database& database, const StagedImport& import,
                           const std::vector<StagedFile>& files) {
  rocksdb::Options options = database.rocks_options().for_key_list_files();
  options.env = database.env();
  rocksdb::WriteBatch batch;
  for (const StagedFile& file : files) {
    const std::string path = import.directory + "/" + file.name;
    const std::string what = absl::StrCat("reading '", path, "'");
    rocksdb::SstFileReader reader(options);
    HPS_RETURN_IF_ERROR(FromReadStatus(reader.Open(path), what));
    const std::unique_ptr<rocksdb::Iterator> it(reader.NewIterator(rocksdb::ReadOptions()));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      batch.Put(database.key_list(), it->key(), it->value());
      if (batch.GetDataSize() < kKeyListBatchBytes) continue;
      HPS_RETURN_IF_ERROR(database.Write(batch, /*durable=*/false));
      batch.Clear();
    }
    HPS_RETURN_IF_ERROR(FromReadStatus(it->status(), what));
  }
  return database.Write(batch, /*durable=*/true);
}

std::vector<rocksdb::IngestExternalFileArg> RowIngestions(Database& database,
                                                          const StagedImport& import,
                                                          const FamilyHandles& handles) {
  std::vector<rocksdb::IngestExternalFileArg> ingestions;
  for (size_t i = 0; i < import.tables.size(); ++i) {
    const std::vector<StagedFile>& files = import.tables[i].row_files;
    if (!files.empty())
      ingestions.push_back(IngestionOf(database.env(), import, files, handles[i]));
  }
  return ingestions;
}

std::vector<StagedFile> KeyFilesOf(const StagedImport& import) {
  std::vector<StagedFile> files;
  for (const StagedTable& table : import.tables)
    files.insert(files.end(), table.key_files.begin(), table.key_files.end());
  return files;
}

// RocksDB reads the neighbours of the files that it ingests. If the key list of another table is
// damaged, RocksDB refuses to ingest key lists, and no import or repair could complete. The records
// of the lists are then written individually.
absl::Status IngestTables(Database& database, const StagedImport& import,
                          const FamilyHandles& handles, const std::vector<StagedFile>& key_files) {
  std::vector<rocksdb::IngestExternalFileArg> ingestions = RowIngestions(database, import, handles);
  ingestions.push_back(IngestionOf(database.env(), import, key_files, database.key_list()));
  const absl::Status ingested = database.Ingest(ingestions);
  if (ingested.ok()) return CheckIngested(database, database.key_list(), key_files);
  if (!absl::IsDataLoss(ingested)) return ingested;
  HPS_RETURN_IF_ERROR(database.Ingest(RowIngestions(database, import, handles)));
  LogWarning(absl::StrCat("writing key lists record by record, because ingesting them failed: ",
                          ingested.ToString()));
  // A compaction of the new records with the damaged ones would end all writing.
  const rocksdb::Status kept =
      database.db().SetOptions(database.key_list(), {{"disable_auto_compactions", "true"}});
  if (!kept.ok()) return FromReadStatus(kept, "disabling compactions of the key lists");
  return WriteKeyLists(database, import, key_files);
}

}  // namespace

absl::Status IngestTableFiles(Database& database, const StagedImport& import,
                              const FamilyHandles& handles) {
  const std::vector<StagedFile> key_files = KeyFilesOf(import);
  if (key_files.empty()) return absl::OkStatus();  // no table has rows
  HPS_RETURN_IF_ERROR(IngestTables(database, import, handles, key_files));
  for (size_t i = 0; i < import.tables.size(); ++i)
    HPS_RETURN_IF_ERROR(CheckIngested(database, handles[i], import.tables[i].row_files));
  return absl::OkStatus();
}

}  // namespace hps
