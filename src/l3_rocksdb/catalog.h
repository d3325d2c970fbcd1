// The catalog: what the store knows about its tables, kept in the same RocksDB as the rows, in the
// default column family (docs/store_format.md, "Catalog").
//
// Every record ends with an XXH3-64 of its key and payload: a damaged record is DATA_LOSS that
// names it, never a wrong table. Functions are stateless; changes are put into the caller's write
// batch, so that they are atomic with whatever else it holds.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "hps/types.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

struct TableRecord {
  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;  // at import
  uint64_t order = 0;      // of the table's first import
  // The version that its model had when this table was last imported, or when another table of the
  // model was dropped later. 0: written by an hps that did not count versions.
  uint64_t model_version = 0;
};

// Keys from `first` to `last` that are not found may have been there: they are lost, not absent.
struct LostRange {
  Key first = 0;
  Key last = 0;
};

struct IncarnationRecords {
  bool changed = false;  // since its import
  std::vector<StreamPosition> positions;
  std::vector<LostRange> lost_ranges;  // ascending
};

struct CatalogContents {
  uint32_t format_version = 0;  // 0 = no record: a store in the making
  std::map<std::string, TableRecord> tables;
  std::map<Incarnation, IncarnationRecords> incarnations;  // those with a record

  std::vector<const TableRecord*> InOrder() const;
  // The version of the model that the next change of its tables makes, from 1.
  uint64_t NextModelVersion(const std::string& model) const;
  // Whether both name the same incarnations.
  bool SameTables(const CatalogContents& other) const;
};

// Errors: DATA_LOSS (a damaged record), FAILED_PRECONDITION (a newer format), as RocksDB's.
absl::StatusOr<CatalogContents> ReadCatalog(rocksdb::DB& db);

absl::StatusOr<IncarnationRecords> ReadIncarnation(rocksdb::DB& db, Incarnation incarnation);

// Whether an import with this number was ever committed.
absl::StatusOr<bool> WasUsed(rocksdb::DB& db, Incarnation incarnation);

void PutFormat(rocksdb::WriteBatch& batch, uint32_t format_version = kStoreFormatVersion);
void PutTable(rocksdb::WriteBatch& batch, const TableRecord& table);
void DeleteTable(rocksdb::WriteBatch& batch, const std::string& name);
void PutUsed(rocksdb::WriteBatch& batch, Incarnation incarnation, uint64_t model_version = 0);
void DeleteUsed(rocksdb::WriteBatch& batch, Incarnation incarnation);
void PutChanged(rocksdb::WriteBatch& batch, Incarnation incarnation);
void PutPosition(rocksdb::WriteBatch& batch, Incarnation incarnation,
                 const StreamPosition& position);
void PutLostRange(rocksdb::WriteBatch& batch, Incarnation incarnation, const LostRange& range);

// Deletes all but the mark that the incarnation was used.
absl::Status DeleteIncarnation(rocksdb::DB& db, rocksdb::WriteBatch& batch,
                               Incarnation incarnation);

}  // namespace hps
