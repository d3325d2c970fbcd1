#include "l3_rocksdb/catalog_records.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/record_codec.h"
#include "l3_pages/record_fields.h"
#include "l3_rocksdb/hash_set.h"
#include "l3_rocksdb/key_codec.h"
#include "l3_rocksdb/status.h"
#include "l3_rocksdb/store_iterator.h"

namespace hps {
namespace {

constexpr char kFormatTag = 'F';
constexpr char kTableTag = 'T';
constexpr char kUsedTag = 'U';
constexpr char kChangedTag = 'C';
constexpr char kPositionTag = 'P';
constexpr char kNetworkTag = 'N';
constexpr char kNetworkBytesTag = 'B';

std::string_view ViewOf(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }
rocksdb::Slice SliceOf(std::string_view view) { return {view.data(), view.size()}; }

void AppendBigEndian64(std::string& to, uint64_t value) {
  char bytes[8];
  StoreBigEndian64(bytes, value);
  to.append(bytes, sizeof(bytes));
}

std::string IncarnationKey(char tag, Incarnation incarnation) {
  std::string key(1, tag);
  AppendBigEndian64(key, incarnation);
  return key;
}

uint64_t RecordChecksum(std::string_view key, std::string_view payload) {
  std::string covered(key);
  covered.append(payload);
  return XXH3_64bits(covered.data(), covered.size());
}

std::string RecordValue(std::string_view key, std::string_view payload) {
  std::string value(payload);
  char checksum[8];
  StoreLittleEndian<uint64_t>(checksum, RecordChecksum(key, payload));
  value.append(checksum, sizeof(checksum));
  return value;
}

void PutRecord(rocksdb::WriteBatch& batch, std::string_view key, std::string_view payload) {
  const std::string value = RecordValue(key, payload);
  batch.Put(SliceOf(key), SliceOf(value));
}

absl::Status DamagedRecord(std::string_view key) {
  const std::string printable = absl::CHexEscape(absl::string_view(key.data(), key.size()));
  return absl::DataLossError(
      absl::StrCat("store catalog: the record '", printable, "' is damaged"));
}

// Returns the payload of a record, or nullopt if its checksum is wrong.
std::optional<std::string_view> Payload(std::string_view key, std::string_view value) {
  if (value.size() < sizeof(uint64_t)) return std::nullopt;
  const std::string_view payload = value.substr(0, value.size() - sizeof(uint64_t));
  const uint64_t stored = LoadLittleEndian<uint64_t>(value.data() + payload.size());
  if (stored != RecordChecksum(key, payload)) return std::nullopt;
  return payload;
}

bool ReadTable(std::string_view key, std::string_view payload, TableRecord& table) {
  RecordReader reader(payload);
  table.spec.name = std::string(key.substr(1));
  table.incarnation = reader.Take<uint64_t>();
  table.row_count = reader.Take<uint64_t>();
  table.order = reader.Take<uint64_t>();
  TakeShape(reader, table.spec);
  const uint32_t file_count = reader.Take<uint32_t>();
  for (uint32_t i = 0; i < file_count && reader.good(); ++i)
    table.page_files.push_back(TakePageFile(reader));
  table.first_file = reader.Take<uint64_t>();
  return reader.AtEnd() && ValidateTableSpec(table.spec).ok();
}

bool ReadNetworkRecord(std::string_view payload, NetworkRecord& network) {
  RecordReader reader(payload);
  network.id = reader.Take<uint64_t>();
  network.digest = std::string(reader.TakeText());
  network.onnx_bytes = reader.Take<uint64_t>();
  return TakeInputs(reader, network.inputs) && reader.AtEnd();
}

// Reads a record of one incarnation. Returns false if the record is unreadable.
bool ReadIncarnationRecord(std::string_view key, std::string_view payload,
                           IncarnationRecords& records) {
  RecordReader reader(payload);
  const std::string_view rest = key.substr(1 + sizeof(Incarnation));
  switch (key[0]) {
    case kChangedTag:
      records.changed = true;
      return rest.empty() && reader.AtEnd();
    case kPositionTag: {
      StreamPosition position;
      if (rest.size() != sizeof(uint32_t)) return false;
      position.partition = __builtin_bswap32(LoadLittleEndian<uint32_t>(rest.data()));
      position.generation = reader.Take<uint16_t>();
      position.offset = reader.Take<uint64_t>();
      records.positions.push_back(position);
      return reader.AtEnd();
    }
    default:
      return false;
  }
}

// The fields of TableRecord that the record of the used incarnation holds.
using UsedRecords = std::map<Incarnation, TableRecord>;

bool ReadUsed(std::string_view payload, TableRecord& used) {
  RecordReader reader(payload);
  used.model_version = reader.Take<uint64_t>();
  const bool has_start = TakeUpdateStart(reader, used.update_start);
  used.update_records_lost = reader.Take<uint64_t>();
  used.import_id = std::string(reader.TakeText());
  used.unordered_hashes = std::string(reader.TakeText());
  const size_t hash_bytes = used.unordered_hashes.size();
  return reader.AtEnd() && has_start && (hash_bytes == 0 || hash_bytes == kHashSetBytes);
}

absl::Status ReadRecord(std::string_view key, std::string_view value, CatalogContents& contents,
                        UsedRecords& used) {
  const std::optional<std::string_view> payload = Payload(key, value);
  if (!payload.has_value() || key.empty()) return DamagedRecord(key);
  if (key[0] == kFormatTag) {
    RecordReader reader(*payload);
    contents.format_version = reader.Take<uint32_t>();
    return absl::OkStatus();
  }
  if (key[0] == kTableTag) {
    TableRecord table;
    if (!ReadTable(key, *payload, table)) return DamagedRecord(key);
    contents.tables[table.spec.name] = std::move(table);
    return absl::OkStatus();
  }
  if (key[0] == kNetworkTag) {
    NetworkRecord network;
    if (!ReadNetworkRecord(*payload, network)) return DamagedRecord(key);
    contents.networks[std::string(key.substr(1))] = std::move(network);
    return absl::OkStatus();
  }
  if (key.size() < 1 + sizeof(Incarnation)) return DamagedRecord(key);
  const Incarnation incarnation = LoadBigEndian64(key.data() + 1);
  if (key[0] == kUsedTag) {
    const bool is_read = payload->empty() || ReadUsed(*payload, used[incarnation]);
    return is_read ? absl::OkStatus() : DamagedRecord(key);
  }
  if (!ReadIncarnationRecord(key, *payload, contents.incarnations[incarnation]))
    return DamagedRecord(key);
  return absl::OkStatus();
}

}  // namespace

std::vector<const TableRecord*> CatalogContents::InOrder() const {
  std::vector<const TableRecord*> ordered;
  for (const auto& [name, table] : tables) ordered.push_back(&table);
  std::sort(ordered.begin(), ordered.end(),
            [](const TableRecord* a, const TableRecord* b) { return a->order < b->order; });
  return ordered;
}

uint64_t CatalogContents::NextModelVersion(const std::string& model) const {
  const std::string prefix = model + "/";
  uint64_t newest = 0;
  for (auto table = tables.lower_bound(prefix);
       table != tables.end() && table->first.starts_with(prefix); ++table) {
    newest = std::max({newest, table->second.model_version, uint64_t{1}});
  }
  return newest + 1;
}

bool CatalogContents::SameTables(const CatalogContents& other) const {
  return std::equal(tables.begin(), tables.end(), other.tables.begin(), other.tables.end(),
                    [](const auto& a, const auto& b) {
                      return a.first == b.first && a.second.incarnation == b.second.incarnation;
                    });
}

// Reads this record alone, because the others of another format may be unreadable.
absl::Status CheckFormat(rocksdb::DB& db) {
  std::string value;
  const std::string key(1, kFormatTag);
  const rocksdb::Status got = db.Get(rocksdb::ReadOptions(), key, &value);
  if (got.IsNotFound()) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(FromReadStatus(got, "reading the store's format version"));
  CatalogContents contents;
  UsedRecords used;
  HPS_RETURN_IF_ERROR(ReadRecord(key, value, contents, used));
  if (contents.format_version == kStoreFormatVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "its format version is ", contents.format_version, ", and this hps reads version ",
      kStoreFormatVersion, " only: import its tables again, into a new store"));
}

absl::StatusOr<CatalogContents> ReadCatalog(rocksdb::DB& db) {
  HPS_RETURN_IF_ERROR(CheckFormat(db));
  CatalogContents contents;
  UsedRecords used;
  const std::unique_ptr<rocksdb::Iterator> it = NewStoreIterator(db, db.DefaultColumnFamily());
  for (it->SeekToFirst(); it->Valid(); it->Next())
    HPS_RETURN_IF_ERROR(ReadRecord(ViewOf(it->key()), ViewOf(it->value()), contents, used));
  HPS_RETURN_IF_ERROR(FromReadStatus(it->status(), "reading the store's catalog"));
  if (contents.format_version == 0 && !contents.tables.empty())
    return absl::DataLossError("store catalog: the record of the format version is missing");
  for (auto& [name, table] : contents.tables) {
    const auto found = used.find(table.incarnation);
    if (found == used.end()) continue;
    table.model_version = found->second.model_version;
    table.update_start = found->second.update_start;
    table.update_records_lost = found->second.update_records_lost;
    table.import_id = found->second.import_id;
    table.unordered_hashes = found->second.unordered_hashes;
  }
  return contents;
}

absl::StatusOr<IncarnationRecords> ReadIncarnation(rocksdb::DB& db, Incarnation incarnation) {
  IncarnationRecords records;
  const std::unique_ptr<rocksdb::Iterator> it = NewStoreIterator(db, db.DefaultColumnFamily());
  for (const char tag : {kChangedTag, kPositionTag}) {
    const std::string prefix = IncarnationKey(tag, incarnation);
    for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix); it->Next()) {
      const std::string_view key = ViewOf(it->key());
      const std::optional<std::string_view> payload = Payload(key, ViewOf(it->value()));
      if (!payload.has_value() || !ReadIncarnationRecord(key, *payload, records))
        return DamagedRecord(key);
    }
    HPS_RETURN_IF_ERROR(FromReadStatus(it->status(), "reading the store's catalog"));
  }
  return records;
}

absl::StatusOr<bool> WasUsed(rocksdb::DB& db, Incarnation incarnation) {
  std::string value;
  const rocksdb::Status got =
      db.Get(rocksdb::ReadOptions(), IncarnationKey(kUsedTag, incarnation), &value);
  if (got.IsNotFound()) return false;
  HPS_RETURN_IF_ERROR(FromReadStatus(got, "reading the incarnations of the store"));
  return true;
}

void PutFormat(rocksdb::WriteBatch& batch) {
  PutRecord(batch, std::string_view(&kFormatTag, 1),
            RecordWriter().Add(kStoreFormatVersion).text());
}

void PutTable(rocksdb::WriteBatch& batch, const TableRecord& table) {
  RecordWriter record;
  record.Add(table.incarnation).Add(table.row_count).Add(table.order);
  AddShape(table.spec, record);
  record.Add(static_cast<uint32_t>(table.page_files.size()));
  for (const PageFileRecord& file : table.page_files) AddPageFile(file, record);
  record.Add(table.first_file);
  PutRecord(batch, std::string(1, kTableTag) + table.spec.name, record.text());
}

void DeleteTable(rocksdb::WriteBatch& batch, const std::string& name) {
  batch.Delete(std::string(1, kTableTag) + name);
}

void PutUsed(rocksdb::WriteBatch& batch, const TableRecord& table) {
  RecordWriter record;
  record.Add(table.model_version);
  AddUpdateStart(table.update_start, record);
  record.Add(table.update_records_lost);
  record.AddText(table.import_id).AddText(table.unordered_hashes);
  PutRecord(batch, IncarnationKey(kUsedTag, table.incarnation), record.text());
}

void PutUsed(rocksdb::WriteBatch& batch, Incarnation incarnation) {
  PutRecord(batch, IncarnationKey(kUsedTag, incarnation), {});
}

Incarnation ImportIdNumber(const std::string& table, const std::string& import_id) {
  static_assert(kIncarnationBits < 63);
  const std::string text = absl::StrCat(table, "\n", import_id);
  return XXH3_64bits(text.data(), text.size()) | uint64_t{1} << 63;
}

void DeleteUsed(rocksdb::WriteBatch& batch, Incarnation incarnation) {
  batch.Delete(IncarnationKey(kUsedTag, incarnation));
}

void PutChanged(rocksdb::WriteBatch& batch, Incarnation incarnation) {
  PutRecord(batch, IncarnationKey(kChangedTag, incarnation), {});
}

void DeleteChanged(rocksdb::WriteBatch& batch, Incarnation incarnation) {
  batch.Delete(IncarnationKey(kChangedTag, incarnation));
}

void PutPosition(rocksdb::WriteBatch& batch, Incarnation incarnation,
                 const StreamPosition& position) {
  std::string key = IncarnationKey(kPositionTag, incarnation);
  char partition[4];
  StoreLittleEndian<uint32_t>(partition, __builtin_bswap32(position.partition));
  key.append(partition, sizeof(partition));
  PutRecord(batch, key, RecordWriter().Add(position.generation).Add(position.offset).text());
}

void PutNetwork(rocksdb::WriteBatch& batch, const std::string& model,
                const NetworkRecord& network) {
  RecordWriter record;
  record.Add(network.id).AddText(network.digest).Add(network.onnx_bytes);
  AddInputs(network.inputs, record);
  PutRecord(batch, std::string(1, kNetworkTag) + model, record.text());
}

void DeleteNetwork(rocksdb::WriteBatch& batch, const std::string& model) {
  batch.Delete(std::string(1, kNetworkTag) + model);
}

void PutNetworkBytes(rocksdb::WriteBatch& batch, rocksdb::ColumnFamilyHandle* family,
                     Incarnation id, std::string_view onnx) {
  const std::string key = IncarnationKey(kNetworkBytesTag, id);
  batch.Put(family, key, RecordValue(key, onnx));
}

absl::StatusOr<ModelNetwork> ReadNetwork(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                         const NetworkRecord& network) {
  const std::string key = IncarnationKey(kNetworkBytesTag, network.id);
  std::string value;
  const rocksdb::Status got = db.Get(rocksdb::ReadOptions(), family, key, &value);
  if (got.IsNotFound()) return absl::NotFoundError("the network's bytes are missing");
  HPS_RETURN_IF_ERROR(FromReadStatus(got, "reading a network"));
  if (!Payload(key, value).has_value())
    return absl::DataLossError("the network's bytes are damaged");
  value.resize(value.size() - sizeof(uint64_t));
  ModelNetwork read{.onnx = std::move(value), .inputs = network.inputs};
  read.digest = NetworkDigest(read);
  if (read.digest == network.digest && read.onnx.size() == network.onnx_bytes) return read;
  return absl::DataLossError(
      absl::StrCat("the network's digest is ", read.digest, ", expected ", network.digest));
}

absl::Status DeleteIncarnation(rocksdb::DB& db, rocksdb::WriteBatch& batch,
                               Incarnation incarnation) {
  const std::unique_ptr<rocksdb::Iterator> it = NewStoreIterator(db, db.DefaultColumnFamily());
  for (const char tag : {kChangedTag, kPositionTag}) {
    const std::string prefix = IncarnationKey(tag, incarnation);
    for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix); it->Next())
      batch.Delete(it->key());
    HPS_RETURN_IF_ERROR(FromReadStatus(it->status(), "reading the store's catalog"));
  }
  HPS_ASSIGN_OR_RETURN(const bool was_used, WasUsed(db, incarnation));
  if (was_used) PutUsed(batch, incarnation);
  return absl::OkStatus();
}

}  // namespace hps
