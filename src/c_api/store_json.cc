#include "c_api/store_json.h"

#include <string_view>

#include "base/json_writer.h"
#include "types/update_start.h"

namespace hps {
namespace {

void WriteCodes(const ErrorCounts& counts, JsonWriter& json) {
  json.BeginObject();
  for (size_t code = 0; code < counts.size(); ++code) {
    if (counts[code] == 0) continue;
    json.Member(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)), counts[code]);
  }
  json.EndObject();
}

void WriteLevel(const LevelStatistics& level, JsonWriter& json) {
  json.BeginObject().Member("entries", level.entries);
  json.Member("absent_entries", level.absent_entries).Member("bytes_used", level.bytes_used);
  json.Member("bytes_max", level.bytes_max).Member("insertions", level.insertions);
  json.Member("updates", level.updates).Member("evictions", level.evictions);
  json.Member("refused", level.refused).Member("dropped", level.dropped);
  json.Member("not_admitted", level.not_admitted);
  json.Member("errors", level.errors).Name("errors_by_code");
  WriteCodes(level.errors_by_code, json);
  json.EndObject();
}

void WriteTable(const TableStatistics& table, JsonWriter& json) {
  json.BeginObject().Member("name", std::string_view(table.name)).Name("keys").BeginObject();
  for (size_t i = 0; i < kKeyStatusCount; ++i)
    json.Member(kKeyStatusNames[i], table.keys.by_status[i]);
  json.EndObject().Name("l1");
  WriteLevel(table.l1, json);
  json.Name("l1_devices").BeginArray();
  for (const DeviceStatistics& device : table.l1_devices) {
    json.BeginObject().Member("device", device.device).Member("hits", device.hits);
    json.Member("misses", device.misses).Name("l1");
    WriteLevel(device.l1, json);
    json.EndObject();
  }
  json.EndArray().Name("l2");
  WriteLevel(table.l2, json);
  json.Member("l2_bypassed", table.l2_bypassed).EndObject();
}

}  // namespace

std::string TablesJson(std::span<const TableInfo> tables) {
  std::string text;
  JsonWriter json(&text);
  json.BeginArray();
  for (const TableInfo& table : tables) {
    json.BeginObject().Member("name", std::string_view(table.spec.name));
    json.Member("dim", table.spec.dim).Member("dtype", DtypeName(table.spec.dtype));
    json.Member("rows", table.row_count).Member("bytes", table.bytes);
    json.Member("incarnation", table.incarnation);
    json.Member("import_id", std::string_view(table.import_id));
    json.Member("stream_from", std::string_view(FormatUpdateStart(table.update_start)));
    json.EndObject();
  }
  json.EndArray();
  return text;
}

std::string StatisticsJson(const StoreStatistics& statistics) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Member("lookups", statistics.lookups);
  json.Member("promotions_dropped", statistics.promotions_dropped);
  json.Member("deadlines_exceeded", statistics.deadlines_exceeded);
  json.Member("l1_unavailable", statistics.l1_unavailable);
  json.Member("l1_bytes_max", statistics.l1_bytes_max);
  json.Member("l2_bytes_max", statistics.l2_bytes_max);
  json.Member("l3_errors", statistics.l3_errors).Name("l3_errors_by_code");
  WriteCodes(statistics.l3_errors_by_code, json);
  json.Name("l3").BeginObject().Member("damaged_reads", statistics.l3.damaged_reads);
  json.Member("background_errors", statistics.l3.background_errors);
  json.Member("writable", statistics.l3.writable);
  json.Member("read_only", statistics.l3.read_only);
  json.Member("free_bytes", statistics.l3.free_bytes);
  json.Member("merges", statistics.l3.merges);
  json.Member("merged_bytes", statistics.l3.merged_bytes);
  json.Member("merges_failed", statistics.l3.merges_failed).EndObject();
  const UpdateStatistics& updates = statistics.updates;
  json.Name("updates").BeginObject().Member("changes", updates.changes);
  json.Member("changes_failed", updates.changes_failed);
  json.Member("rows_upserted", updates.rows_upserted);
  json.Member("rows_deleted", updates.rows_deleted);
  json.Member("rows_refreshed", updates.rows_refreshed).EndObject();
  json.Name("tables").BeginArray();
  for (const TableStatistics& table : statistics.tables) WriteTable(table, json);
  json.EndArray().EndObject();
  return text;
}

}  // namespace hps
