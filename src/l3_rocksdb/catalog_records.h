// The catalog: the store's records of its tables. They are in the same RocksDB as the changes, in
// the default column family (docs/store_format.md, "Catalog").
//
// Every record ends with the XXH3-64 of its key and payload. A damaged record is reported as
// DATA_LOSS that names the record; it is never read as another table. The functions are stateless.
// They add changes to the caller's write batch, so the changes are atomic with the rest of the
// batch.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "hps/types.h"
#include "l3_pages/page_format.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

struct TableRecord {
  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;  // at import, or at the last merge of changes
  uint64_t order = 0;      // position of the table's first import
  // The version of the model when this table was last imported, or when another table of the model
  // was dropped later.
  uint64_t model_version = 0;
  UpdateStart update_start{};
  uint64_t update_records_lost = 0;  // see TableInfo
  std::string import_id{};           // see TableInfo
  std::string unordered_hashes{};    // DurableTable::UnorderedHashes, as in hash_set.h
  // Of the imported rows; the column family has what changed since these files were made.
  std::vector<PageFileRecord> page_files{};  // ascending key ranges; none for a table without rows
  // The number of the first of them; the others follow. Also in the name of the column family.
  // Grows with each merge of changes into new files; 0: as imported.
  uint64_t first_file = 0;
};

// The dense network of a model. Its bytes are the one record of a column family of their own, so
// that damage to them is no damage to the catalog. It is written before the switch that names it.
struct NetworkRecord {
  Incarnation id = 0;  // in the name of the column family, and in the key of the record
  std::string digest;
  uint64_t onnx_bytes = 0;
  std::vector<NetworkInput> inputs;
};

struct IncarnationRecords {
  bool changed = false;  // since its import, or since its page files were made
  std::vector<StreamPosition> positions;
};

struct CatalogContents {
  uint32_t format_version = 0;  // 0 = no record: the store is being created
  std::map<std::string, TableRecord> tables;
  std::map<Incarnation, IncarnationRecords> incarnations;  // those with a record
  std::map<std::string, NetworkRecord> networks;           // by model

  std::vector<const TableRecord*> InOrder() const;
  // The model version that the next change of the model's tables creates; the first is 1.
  uint64_t NextModelVersion(const std::string& model) const;
  // True if both catalogs name the same incarnations.
  bool SameTables(const CatalogContents& other) const;
};

// Errors: FAILED_PRECONDITION (another format), DATA_LOSS (a damaged record), and RocksDB's errors
// (FromReadStatus).
absl::Status CheckFormat(rocksdb::DB& db);
absl::StatusOr<CatalogContents> ReadCatalog(rocksdb::DB& db);

absl::StatusOr<IncarnationRecords> ReadIncarnation(rocksdb::DB& db, Incarnation incarnation);

// True if an import with this number was ever committed.
absl::StatusOr<bool> WasUsed(rocksdb::DB& db, Incarnation incarnation);

void PutFormat(rocksdb::WriteBatch& batch);
void PutTable(rocksdb::WriteBatch& batch, const TableRecord& table);
void DeleteTable(rocksdb::WriteBatch& batch, const std::string& name);
// Marks the incarnation as used, and keeps what may change of the table without an import.
void PutUsed(rocksdb::WriteBatch& batch, const TableRecord& table);
// As above, of a table that is no longer current.
void PutUsed(rocksdb::WriteBatch& batch, Incarnation incarnation);
void DeleteUsed(rocksdb::WriteBatch& batch, Incarnation incarnation);

// The number under which the store remembers that the table has had the import id: no incarnation,
// because it has more bits than those.
Incarnation ImportIdNumber(const std::string& table, const std::string& import_id);
void PutChanged(rocksdb::WriteBatch& batch, Incarnation incarnation);
void DeleteChanged(rocksdb::WriteBatch& batch, Incarnation incarnation);
void PutPosition(rocksdb::WriteBatch& batch, Incarnation incarnation,
                 const StreamPosition& position);

void PutNetwork(rocksdb::WriteBatch& batch, const std::string& model, const NetworkRecord& network);
void DeleteNetwork(rocksdb::WriteBatch& batch, const std::string& model);
void PutNetworkBytes(rocksdb::WriteBatch& batch, rocksdb::ColumnFamilyHandle* family,
                     Incarnation id, std::string_view onnx);
// Errors: NOT_FOUND (no such record), DATA_LOSS (it is damaged, or has not the record's digest),
// and RocksDB's errors.
absl::StatusOr<ModelNetwork> ReadNetwork(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family,
                                         const NetworkRecord& network);

// Deletes all records of the incarnation except the one that marks its number as used, which loses
// its fields.
absl::Status DeleteIncarnation(rocksdb::DB& db, rocksdb::WriteBatch& batch,
                               Incarnation incarnation);

}  // namespace hps
