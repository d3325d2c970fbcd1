// An import as its staging directory holds it, and the manifest that says so (docs/store_format.md,
// "Staging"). Values only; the files of the directory are written by PageImport, and the directory
// belongs to l3_rocksdb/files/staging.h.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "hps/types.h"
#include "l3_pages/page_format.h"

namespace hps {

// A page file in the staging directory. It has rows.
struct StagedPageFile {
  std::string name;
  PageFileRecord record;
};

struct StagedTable {
  TableSpec spec;
  Incarnation incarnation = 0;
  uint64_t row_count = 0;
  std::vector<StagedPageFile> files{};  // ascending, disjoint key ranges
};

// The dense network of an import; its bytes are the file kStagedNetworkName of the directory.
struct StagedNetwork {
  std::string model;
  std::string digest;
  std::vector<NetworkInput> inputs;
};
inline constexpr char kStagedNetworkName[] = "network";

struct StagedImport {
  std::string directory;
  uint64_t order = 0;  // the order in which staged imports became ready
  UpdateStart update_start{};
  std::string import_id{};  // of all tables; may be empty
  std::vector<StagedTable> tables;
  std::optional<StagedNetwork> network{};

  std::vector<TableSpec> specs() const;
};

// The table as it will be, but for its bytes.
TableInfo InfoOf(const StagedImport& import, const StagedTable& table);

// Reads all of a staged page file, which may have been damaged since it was written. Errors:
// DATA_LOSS (the file is damaged or missing), UNAVAILABLE, RESOURCE_EXHAUSTED.
absl::Status CheckStagedPages(const StagedImport& import, const StagedTable& table,
                              const StagedPageFile& file);

// Whether all tables and the network of `import` are among `names`, as TablesOf gives them.
bool IsReplacedBy(const StagedImport& import, const std::set<std::string>& names);
// The names of the tables, and for a network "MODEL/", which is no table's.
std::set<std::string> TablesOf(const StagedImport& import);

// Converts an import to the bytes of its manifest and back. Errors: DATA_LOSS, FAILED_PRECONDITION
// (another version of hps made it).
std::string EncodeStagedImport(const StagedImport& import);
absl::StatusOr<StagedImport> DecodeStagedImport(std::string_view bytes);

}  // namespace hps
