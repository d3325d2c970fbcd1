// Requests and reports of import, export and verification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/span.h"
#include "hps/table_spec.h"
#include "hps/types.h"

namespace hps {

enum class TableFormat {  // docs/table_formats.md
  kAuto,
  kHugectr,
  kNpy,
  kSafetensors,
  kHugectrBin,
  kHugectrRocksdb,
  kHugectrRedis
};

struct Progress {
  std::string step;  // "reading keys", "sorting", "writing", ...
  uint64_t done = 0;
  uint64_t total = 0;  // 0 = unknown
};
// Called on the thread that imports or exports, at most a few times per second.
using ProgressFunction = std::function<void(const Progress&)>;

// Keys and rows of one table in the caller's memory. Keys in any order, none twice.
struct TableInMemory {
  std::span<const Key> keys;
  std::span<const std::byte> rows;  // [n, dim] packed, little-endian
  uint32_t dim = 0;
  Dtype dtype = Dtype::kFloat32;
};

struct ImportRequest {
  std::string name;  // "<model>/<table>"; or "<model>": each sub-folder or file of `from` is a
                     // table; its model.toml names tables and dense network
  std::string from;  // a path, or redis://HOST:PORT (docs/table_formats.md)
  // Rows in memory, instead of `from`, for one table. Borrowed for the call.
  std::optional<TableInMemory> memory{};
  TableFormat format = TableFormat::kAuto;
  std::optional<uint32_t> dim{};              // required if the files do not contain it
  std::optional<Dtype> dtype{};               // of the stored rows; default: that of the files
  double default_value = 0.0;                 // every element of the default row
  std::optional<std::string> default_file{};  // .npy with [dim] elements, instead of default_value
  std::optional<std::string> tensor{};  // of a safetensors file: [n, dim], keys are row numbers
  // Of kHugectrRedis: the num_partitions of HugeCTR HPS; default kHugectrPartitionsDefault, at most
  // kHugectrPartitionsMax.
  std::optional<uint32_t> partitions{};
  uint64_t memory_bytes_max = uint64_t{512} << 20;  // at least kImportMemoryBytesMin
  uint32_t threads = 0;                             // 0 = number of cores
  ProgressFunction progress{};
  // Where the tables begin to read their update streams. Default: at the time when the import
  // began, by the time stamps of the stream. A topic that does not exist yet is read whole.
  std::optional<UpdateStart> update_start{};
  // Names this version of the rows on all nodes that share a level 2 on Redis (docs/redis.md):
  // [a-zA-Z0-9_.-]{1,64}. Give the same id on all nodes for the same rows, with an `update_start`
  // that is the beginning or a time, and never again for other rows: a store refuses an id that a
  // table of this name had before. The tables then take no direct changes. Empty = the rows are
  // shared with no other node.
  std::string import_id{};
};

inline constexpr uint64_t kImportMemoryBytesMin = 256 << 10;
inline constexpr uint32_t kHugectrPartitionsDefault = 8;  // as there
inline constexpr uint32_t kHugectrPartitionsMax = 4096;

struct ImportedTable {
  TableInfo info;
  uint64_t bytes_read = 0;
  uint64_t non_finite_count = 0;  // NaN and infinite elements; they are imported, with a warning
};

struct ImportReport {
  std::vector<ImportedTable> tables;
  double seconds = 0;
  // Another process has the store open, and commits the import at its next load.
  bool staged = false;
  std::vector<std::string> warnings;
};

// A staged import that has not been committed.
struct PendingImport {
  std::vector<TableInfo> tables;  // as they will be after the commit
  std::string problem{};          // why the import cannot be read; else empty
};

// Takes rows of an export in ascending key order, packed, in the table's dtype. `keys` and `rows`
// are valid during the call. An error ends the export, which returns it.
using RowSink = std::function<absl::Status(std::span<const Key> keys, HostRows rows)>;

struct ExportRequest {
  std::string name;  // "<model>/<table>"; or "<model>": tables, network and model.toml
  std::string to;    // directory; created if missing; must not hold a table
  RowSink sink{};    // instead of `to` and `format`
  TableFormat format = TableFormat::kHugectr;
  ProgressFunction progress{};
};

struct ExportReport {
  uint64_t row_count = 0;
  uint64_t bytes = 0;  // of the files that were written; with a sink, of keys and rows
  double seconds = 0;
};

// One damaged row or file of a store.
struct Damage {
  std::string table;  // empty if unknown
  std::string file;   // relative to the store; empty for a row
  std::optional<Key> key{};
  std::string what;
};

struct VerifyReport {
  uint64_t tables = 0;
  uint64_t rows = 0;       // intact ones
  uint64_t rows_lost = 0;  // at most
  uint64_t bytes = 0;
  std::vector<Damage> damage;                   // the first kDamageListedMax
  uint64_t damage_count = 0;                    // all
  std::vector<std::string> networks_removed{};  // of these models, by this repair
};
inline constexpr size_t kDamageListedMax = 1000;

}  // namespace hps
