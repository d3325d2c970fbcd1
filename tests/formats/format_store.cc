#include "tests/formats/format_store.h"

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l3_rocksdb/rocks_store.h"
#include "testing/await.h"
#include "testing/fakes/stamped_rows.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 28;
constexpr Version kUpdated = (Version{1} << 48) | 77;
constexpr Key kRowCount = 200;
constexpr Key kStagedRowCount = 20;
constexpr uint64_t kMergedKeys = 5;  // of the table that is updated; fewer are changed later

struct FormatTable {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  uint32_t dim = 8;
  std::vector<Key> keys{};  // as imported
  std::byte default_byte{0};
};

std::vector<Key> Keys(Key count) {
  std::vector<Key> keys = {std::numeric_limits<Key>::min(), -1};
  for (Key key = 0; key < count - 3; ++key) keys.push_back(3 * key);
  keys.push_back(std::numeric_limits<Key>::max());
  return keys;
}

// In the order of their import.
std::vector<FormatTable> Tables() {
  return {{.name = "m/updated", .keys = Keys(kRowCount), .default_byte = std::byte{0x3f}},
          {.name = "m/half", .dtype = Dtype::kFloat16, .dim = 3, .keys = Keys(10)},
          {.name = "m/brain", .dtype = Dtype::kBfloat16, .dim = 16, .keys = Keys(33)},
          {.name = "n/empty"}};
}
FormatTable StagedTable() { return {.name = "s/staged", .dim = 4, .keys = Keys(kStagedRowCount)}; }

TableSpec SpecOf(const FormatTable& table) {
  TableSpec spec = {.name = table.name, .dim = table.dim, .dtype = table.dtype, .default_row = {}};
  if (table.default_byte != std::byte{0})
    spec.default_row.assign(spec.row_bytes(), table.default_byte);
  return spec;
}

absl::Status Fill(BulkImport& import, const std::vector<FormatTable>& tables) {
  for (size_t i = 0; i < tables.size(); ++i) {
    StampedRows rows(kStamp + i, SpecOf(tables[i]).row_bytes(), tables[i].keys);
    HPS_RETURN_IF_ERROR(import.Add(i, 0, rows.keys(), rows.rows()));
  }
  return import.Commit().status();
}

const std::vector<StreamPosition>& Positions() {
  static const std::vector<StreamPosition> positions = {{0, 1, 77}, {3, 2, uint64_t{1} << 40}};
  return positions;
}
// New keys and old ones; some old ones are deleted.
const std::vector<Key>& UpdatedKeys() {
  static const std::vector<Key> keys = {-1, 0, 1, 2, 300, std::numeric_limits<Key>::max()};
  return keys;
}
const std::vector<Key>& DeletedKeys() {
  static const std::vector<Key> keys = {3, 303};
  return keys;
}

// The changes of the first keys are merged into a new page file, the others stay.
absl::Status Update(DurableStore& store) {
  HPS_ASSIGN_OR_RETURN(const auto table, store.OpenTable("m/updated"));
  const auto middle = UpdatedKeys().begin() + kMergedKeys - 1;
  StampedRows merged(kStamp, table->spec().row_bytes(), {UpdatedKeys().begin(), middle}, kUpdated);
  StampedRows others(kStamp, table->spec().row_bytes(), {middle, UpdatedKeys().end()}, kUpdated);
  HPS_RETURN_IF_ERROR(
      table->Write({merged.batch(), {DeletedKeys().data(), 1}, {Positions().data(), 1}}));
  if (!HoldsInTime([&] { return store.Statistics().merges > 0; }))
    return absl::DeadlineExceededError("the changes were not merged");
  return table->Write({others.batch(), {DeletedKeys().data() + 1, 1}, Positions()});
}

// The network of a model. No reader of ONNX looks at it: the store keeps bytes.
ModelNetwork NetworkOf(const std::string& model) {
  ModelNetwork network{.onnx = "the network of " + model,
                       .inputs = {{.name = "rows", .table = "half", .pooling = RowPooling::kMean},
                                  {.name = "dense"}}};
  network.digest = NetworkDigest(network);
  return network;
}

// With the network of model "m".
absl::Status Import(const RocksStoreOptions& options, const std::vector<FormatTable>& tables) {
  std::vector<TableSpec> specs;
  for (const FormatTable& table : tables) specs.push_back(SpecOf(table));
  HPS_ASSIGN_OR_RETURN(const auto store, OpenRocksStore(options));
  HPS_ASSIGN_OR_RETURN(const auto import, store->BeginImport(specs));
  HPS_RETURN_IF_ERROR(import->SetNetwork("m", NetworkOf("m")));
  return Fill(*import, tables);
}

absl::Status CheckNetwork(DurableStore& store, const std::string& model) {
  HPS_ASSIGN_OR_RETURN(const std::optional<ModelNetwork> network, store.Network(model));
  const ModelNetwork expected = NetworkOf(model);
  if (network.has_value() && network->onnx == expected.onnx && network->inputs == expected.inputs)
    return absl::OkStatus();
  return absl::DataLossError("the network of model '" + model + "'");
}

absl::Status Wrong(const FormatTable& table, const std::string& what) {
  return absl::DataLossError(absl::StrCat("table '", table.name, "': ", what));
}

bool Contains(const std::vector<Key>& keys, Key key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// The rows of `table`, which was number `number` of its import.
absl::Status CheckRows(DurableTable& opened, const FormatTable& table, size_t number) {
  const bool is_updated = table.name == "m/updated";
  std::vector<Key> asked = table.keys;
  for (const Key key : {Key{1}, Key{2}, Key{-7}, Key{1'000'000}}) asked.push_back(key);
  const FetchedRows rows(opened, asked);
  HPS_RETURN_IF_ERROR(rows.counts.status());
  for (size_t i = 0; i < asked.size(); ++i) {
    const bool is_new = is_updated && Contains(UpdatedKeys(), asked[i]);
    const bool is_deleted = is_updated && Contains(DeletedKeys(), asked[i]);
    const bool exists = is_new || (Contains(table.keys, asked[i]) && !is_deleted);
    const FetchOutcome expected = exists ? FetchOutcome::kHit : FetchOutcome::kAbsent;
    if (rows.outcomes[i] != expected) return Wrong(table, absl::StrCat("key ", asked[i]));
    if (!exists) continue;
    if (rows.versions[i] != (is_new ? kUpdated : 0))
      return Wrong(table, absl::StrCat("the version of key ", asked[i]));
    if (!StampedRow::Matches(kStamp + number, asked[i], rows.versions[i], rows.row(i)))
      return Wrong(table, absl::StrCat("the row of key ", asked[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckTable(DurableStore& store, const FormatTable& table, size_t number) {
  HPS_ASSIGN_OR_RETURN(const auto opened, store.OpenTable(table.name));
  const TableSpec spec = SpecOf(table);
  const TableSpec& stored = opened->spec();
  if (stored.dim != spec.dim || stored.dtype != spec.dtype ||
      stored.default_row != spec.default_row)
    return Wrong(table, "its dim, dtype or default row");
  HPS_RETURN_IF_ERROR(CheckRows(*opened, table, number));
  HPS_ASSIGN_OR_RETURN(const std::vector<StreamPosition> positions, opened->Positions());
  const bool is_updated = table.name == "m/updated";
  if (positions != (is_updated ? Positions() : std::vector<StreamPosition>()))
    return Wrong(table, "its stream positions");
  return absl::OkStatus();
}

}  // namespace

RocksStoreOptions FormatStoreOptions(const std::string& path, OpenMode mode) {
  RocksStoreOptions options;
  options.config.path = path;
  options.config.cache_bytes = 1 << 20;
  options.config.write_buffer_bytes = 1 << 20;
  options.config.free_bytes_min = 0;
  options.mode = mode;
  return options;
}

absl::Status MakeFormatStore(const std::string& path) {
  RocksStoreOptions options = FormatStoreOptions(path, OpenMode::kCreate);
  HPS_RETURN_IF_ERROR(Import(options, Tables()));
  options.role = OwnerRole::kServer;
  options.merge_keys_min = kMergedKeys;
  options.config.merge_share = 0.001;
  HPS_ASSIGN_OR_RETURN(const auto server, OpenRocksStore(options));
  HPS_RETURN_IF_ERROR(Update(*server));
  const TableSpec staged = SpecOf(StagedTable());
  options.role = OwnerRole::kCommand;
  HPS_ASSIGN_OR_RETURN(const auto import, StageImport(options, {&staged, 1}));
  HPS_RETURN_IF_ERROR(import->SetNetwork("s", NetworkOf("s")));
  return Fill(*import, {StagedTable()});
}

absl::Status CheckFormatStore(DurableStore& store, bool has_staged) {
  const std::vector<FormatTable> tables = Tables();
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> listed, store.Tables());
  if (listed.size() != tables.size() + (has_staged ? 1 : 0))
    return absl::DataLossError(absl::StrCat("there are ", listed.size(), " tables"));
  for (size_t i = 0; i < tables.size(); ++i) {
    if (listed[i].spec.name != tables[i].name)
      return absl::DataLossError(absl::StrCat("table ", i, " is '", listed[i].spec.name, "'"));
    HPS_RETURN_IF_ERROR(CheckTable(store, tables[i], i));
  }
  HPS_RETURN_IF_ERROR(CheckNetwork(store, "m"));
  if (!has_staged) return absl::OkStatus();
  HPS_RETURN_IF_ERROR(CheckNetwork(store, "s"));
  return CheckTable(store, StagedTable(), 0);
}

}  // namespace hps
