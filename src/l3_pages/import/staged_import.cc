#include "l3_pages/import/staged_import.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "base/record_codec.h"
#include "l3_pages/page_file.h"
#include "l3_pages/record_fields.h"

namespace hps {
namespace {

constexpr uint64_t kManifestMagic = 0x3147415453535048;  // "HPSSTAG1"
constexpr uint32_t kManifestVersion = 7;

void AddTable(RecordWriter& record, const StagedTable& table) {
  record.AddText(table.spec.name).Add(table.incarnation).Add(table.row_count);
  AddShape(table.spec, record);
  record.Add(static_cast<uint32_t>(table.files.size()));
  for (const StagedPageFile& file : table.files) {
    record.AddText(file.name);
    AddPageFile(file.record, record);
  }
}

// Whether `file` may follow the files of `table`, and lies in the directory.
bool IsNextFile(const StagedPageFile& file, const StagedTable& table) {
  const PageFileRecord& has = file.record;
  return file.name.find('/') == std::string::npos && has.row_count > 0 &&
         has.first_key <= has.last_key &&
         (table.files.empty() || table.files.back().record.last_key < has.first_key);
}

// False: no import can have the table.
bool TakeTable(RecordReader& reader, StagedTable& table) {
  table.spec.name = std::string(reader.TakeText());
  table.incarnation = reader.Take<uint64_t>();
  table.row_count = reader.Take<uint64_t>();
  TakeShape(reader, table.spec);
  const uint32_t count = reader.Take<uint32_t>();
  // The checksum was correct, so `count` is as written; the reader ends at the end of the bytes.
  for (uint32_t i = 0; i < count && reader.good(); ++i) {
    StagedPageFile file = {.name = std::string(reader.TakeText()), .record = TakePageFile(reader)};
    if (!IsNextFile(file, table)) return false;
    table.files.push_back(std::move(file));
  }
  return ValidateTableSpec(table.spec).ok();
}

bool TakeNetwork(RecordReader& reader, StagedNetwork& network) {
  network.model = std::string(reader.TakeText());
  network.digest = std::string(reader.TakeText());
  return TakeInputs(reader, network.inputs);
}

}  // namespace

std::vector<TableSpec> StagedImport::specs() const {
  std::vector<TableSpec> specs;
  for (const StagedTable& table : tables) specs.push_back(table.spec);
  return specs;
}

TableInfo InfoOf(const StagedImport& import, const StagedTable& table) {
  TableInfo info;
  info.spec = table.spec;
  info.incarnation = table.incarnation;
  info.row_count = table.row_count;
  info.import_id = import.import_id;
  return info;
}

absl::Status CheckStagedPages(const StagedImport& import, const StagedTable& table,
                              const StagedPageFile& file) {
  const std::string path = import.directory + "/" + file.name;
  const auto damaged = [&path](const std::string& why) {
    return absl::DataLossError(absl::StrCat("'", path, "': ", why));
  };
  const auto opened = PageFile::Open({path, table.incarnation, table.spec.row_bytes(), false});
  if (absl::IsNotFound(opened.status())) return damaged("the file is missing");
  HPS_RETURN_IF_ERROR(opened.status());
  HPS_ASSIGN_OR_RETURN(const std::vector<PageKeyRange> lost, (*opened)->FindDamage());
  const PageFileDescription& found = (*opened)->description();
  if (!lost.empty() || (*opened)->is_impaired() || found.row_count != file.record.row_count ||
      found.first_key != file.record.first_key || found.last_key != file.record.last_key) {
    return damaged("the file has changed since it was written");
  }
  return absl::OkStatus();
}

std::set<std::string> TablesOf(const StagedImport& import) {
  std::set<std::string> names;
  for (const StagedTable& table : import.tables) names.insert(table.spec.name);
  if (import.network.has_value()) names.insert(import.network->model + "/");
  return names;
}

bool IsReplacedBy(const StagedImport& import, const std::set<std::string>& names) {
  const std::set<std::string> own = TablesOf(import);
  return std::includes(names.begin(), names.end(), own.begin(), own.end());
}

std::string EncodeStagedImport(const StagedImport& import) {
  RecordWriter record;
  record.Add(kManifestMagic).Add(kManifestVersion).Add(import.order);
  AddUpdateStart(import.update_start, record);
  record.AddText(import.import_id);
  record.Add(static_cast<uint8_t>(import.network.has_value() ? 1 : 0));
  record.Add(static_cast<uint32_t>(import.tables.size()));
  for (const StagedTable& table : import.tables) AddTable(record, table);
  if (import.network.has_value()) {
    record.AddText(import.network->model).AddText(import.network->digest);
    AddInputs(import.network->inputs, record);
  }
  const uint64_t checksum = XXH3_64bits(record.text().data(), record.text().size());
  record.Add(checksum);
  return record.text();
}

absl::StatusOr<StagedImport> DecodeStagedImport(std::string_view bytes) {
  const absl::Status damaged = absl::DataLossError("the manifest of a staged import is damaged");
  if (bytes.size() < sizeof(uint64_t)) return damaged;
  const std::string_view covered = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (LoadLittleEndian<uint64_t>(bytes.data() + covered.size()) !=
      XXH3_64bits(covered.data(), covered.size())) {
    return damaged;
  }
  RecordReader reader(covered);
  if (reader.Take<uint64_t>() != kManifestMagic) return damaged;
  if (reader.Take<uint32_t>() != kManifestVersion)
    return absl::FailedPreconditionError("a staged import was made by another version of hps");
  StagedImport import;
  import.order = reader.Take<uint64_t>();
  if (!TakeUpdateStart(reader, import.update_start)) return damaged;
  import.import_id = std::string(reader.TakeText());
  if (!import.import_id.empty() && !ValidateImportId(import.import_id).ok()) return damaged;
  const bool has_network = reader.Take<uint8_t>() != 0;
  const uint32_t table_count = reader.Take<uint32_t>();
  for (uint32_t i = 0; i < table_count && reader.good(); ++i) {
    if (!TakeTable(reader, import.tables.emplace_back())) return damaged;
  }
  if (has_network && !TakeNetwork(reader, import.network.emplace())) return damaged;
  if (!reader.AtEnd()) return damaged;
  return import;
}

}  // namespace hps
