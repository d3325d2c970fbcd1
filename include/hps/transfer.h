// Tables in and out of a store: the requests and reports of import, export and verify.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hps/table_spec.h"
#include "hps/types.h"

namespace hps {

enum class TableFormat { kAuto, kHugectr, kNpy, kSafetensors };

// Called from the importing thread now and then, at most a few times a second.
struct Progress {
  std::string step;  // "reading keys", "sorting", "writing", ...
  uint64_t done = 0;
  uint64_t total = 0;  // 0 = not known
};
using ProgressFunction = std::function<void(const Progress&)>;

struct ImportRequest {
  std::string name;  // "<model>/<table>"; or "<model>": every sub-folder or file of `from`
  std::string from;
  TableFormat format = TableFormat::kAuto;
  std::optional<uint32_t> dim{};              // needed where the files don't tell
  std::optional<Dtype> dtype{};               // needed where the files don't tell; else float32
  double default_value = 0.0;                 // every element of the default row
  std::optional<std::string> default_file{};  // .npy with [dim] elements, instead of default_value
  std::optional<std::string> tensor{};  // safetensors: one [n, dim] tensor, keys = row numbers
  uint64_t memory_bytes_max = uint64_t{512} << 20;  // at least kImportMemoryBytesMin
  uint32_t threads = 0;                             // 0 = the number of cores
  ProgressFunction progress{};
};

inline constexpr uint64_t kImportMemoryBytesMin = 256 << 10;

struct ImportedTable {
  TableInfo info;
  uint64_t bytes_read = 0;
  uint64_t non_finite_count = 0;  // NaN and infinite elements: allowed, counted, warned about
};

struct ImportReport {
  std::vector<ImportedTable> tables;
  double seconds = 0;
  bool staged = false;  // a server has the store: it will take the import on `load`
  std::vector<std::string> warnings;
};

// An import that was left staged and waits for the owner of the store.
struct WaitingImport {
  std::vector<TableInfo> tables;  // as they will be
  std::string problem{};          // why it can't be read; else empty
};

struct ExportRequest {
  std::string name;  // "<model>/<table>"
  std::string to;    // a directory, created; it must not hold a table already
  TableFormat format = TableFormat::kHugectr;
  ProgressFunction progress{};
};

struct ExportReport {
  uint64_t row_count = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

// One damaged place of a store.
struct Damage {
  std::string table;  // empty when it can't be told
  std::string file;   // relative to the store; empty when it is a row
  std::optional<Key> key{};
  std::string what;
};

struct VerifyReport {
  uint64_t tables = 0;
  uint64_t rows = 0;       // that are whole
  uint64_t rows_lost = 0;  // of keys that exist: marked by a repair before, or damaged
  uint64_t bytes = 0;
  std::vector<Damage> damage;     // the first kDamageListedMax of them
  uint64_t damage_count = 0;      // all
  uint64_t rows_marked_lost = 0;  // with repair: they answer kDefaultDegraded, never kAbsent
};
inline constexpr size_t kDamageListedMax = 1000;

}  // namespace hps
