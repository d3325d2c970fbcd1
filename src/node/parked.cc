#include "hps/parked.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/macros.h"
#include "hps/store.h"
#include "node/tier_factory.h"
#include "tier/durable_tier.h"
#include "update/parked_messages.h"
#include "update/update_message.h"

namespace hps {
namespace {

ParkedMessageInfo InfoOf(const ParkedMessage& message) {
  return {.table = message.table,
          .topic = message.topic,
          .position = message.position,
          .reason = std::string(ParkReasonName(message.reason)),
          .detail = message.detail,
          .time_ms = message.time_ms,
          .payload_bytes = message.payload.size()};
}

absl::Status CheckStore(const Config& config) {
  HPS_RETURN_IF_ERROR(ValidateConfig(config));
  std::error_code error;
  if (std::filesystem::exists(config.store.path + "/CURRENT", error)) return absl::OkStatus();
  if (error == std::errc::permission_denied) {
    return absl::PermissionDeniedError(
        absl::StrCat("store '", config.store.path, "': ", error.message()));
  }
  return absl::NotFoundError(absl::StrCat("there is no store at '", config.store.path, "'"));
}

// What a message may change of a table, and what not.
struct Changes {
  std::map<Key, uint32_t> keys{};  // each once, with the index of its last occurrence
  uint64_t superseded = 0;         // keys with a newer row or a newer deletion
  uint64_t undecided = 0;          // keys that may have been deleted later: no record tells
};

absl::StatusOr<Changes> ChangesOf(DurableTable& table, const UpdateMessage& message,
                                  Version version, bool apply_undecided) {
  Changes changes;
  for (uint32_t i = 0; i < message.count; ++i) changes.keys[message.key(i)] = i;
  std::vector<Key> keys;
  for (const auto& [key, index] : changes.keys) keys.push_back(key);
  const size_t row_bytes = table.spec().row_bytes();
  std::vector<std::byte> rows(keys.size() * row_bytes);
  std::vector<FetchOutcome> outcomes(keys.size());
  std::vector<Version> versions(keys.size());
  std::vector<Version> deletions(keys.size());
  HPS_RETURN_IF_ERROR(table
                          .Fetch({.keys = keys,
                                  .rows = {.data = rows.data(),
                                           .row_count = keys.size(),
                                           .row_bytes = row_bytes,
                                           .stride_bytes = row_bytes},
                                  .outcomes = outcomes,
                                  .versions = versions,
                                  .deletions = deletions},
                                 kNoDeadline)
                          .status());
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_hit = outcomes[i] == FetchOutcome::kHit;
    const Version last = is_hit ? versions[i] : deletions[i];
    const bool is_known =
        is_hit || (outcomes[i] == FetchOutcome::kAbsent && last != kDeletionUnknown);
    if (!is_known && apply_undecided) continue;
    if (is_known && last <= version) continue;
    ++(is_known ? changes.superseded : changes.undecided);
    changes.keys.erase(keys[i]);
  }
  return changes;
}

absl::Status Apply(DurableTable& table, const UpdateMessage& message, Version version,
                   const Changes& changes) {
  if (changes.keys.empty()) return absl::OkStatus();
  const size_t row_bytes = table.spec().row_bytes();
  std::vector<Key> keys;
  std::vector<std::byte> rows;
  for (const auto& [key, index] : changes.keys) {
    keys.push_back(key);
    if (message.kind == UpdateKind::kDelete) continue;
    rows.insert(rows.end(), message.row(index), message.row(index) + row_bytes);
  }
  const std::vector<Version> versions(keys.size(), version);
  DurableWrite write;
  if (message.kind == UpdateKind::kDelete) {
    write.deletes = keys;
    write.delete_versions = versions;
  } else {
    write.upserts = {.keys = keys,
                     .rows = {.data = rows.data(),
                              .row_count = keys.size(),
                              .row_bytes = row_bytes,
                              .stride_bytes = row_bytes},
                     .versions = versions};
  }
  return table.Write(write);
}

bool TakesDirectChanges(std::span<const StreamPosition> positions) {
  return std::any_of(positions.begin(), positions.end(), [](const StreamPosition& position) {
    return position.generation == kDirectGeneration;
  });
}

// Where each table reads the stream from since its import.
using Starts = std::map<std::string, UpdateStart>;

// False: the message stays parked; reason and detail say why.
absl::StatusOr<bool> Replay(DurableStore& store, const Starts& starts, bool apply_undecided,
                            ParkedMessage& parked, ReplayReport& report) {
  if (parked.payload.empty()) return false;
  const auto table = store.OpenTable(parked.table);
  if (absl::IsNotFound(table.status())) {
    parked.detail = std::string(table.status().message());
    return false;
  }
  HPS_RETURN_IF_ERROR(table.status());
  if (!(*table)->Info().import_id.empty()) {
    parked.detail =
        "nodes can share the table's rows, because it was imported with an import id: a replay "
        "would reach this node only. Publish the rows again, or import the table under a new id";
    return false;
  }
  HPS_ASSIGN_OR_RETURN(const std::vector<StreamPosition> positions, (*table)->Positions());
  if (TakesDirectChanges(positions)) {
    parked.detail = "the table takes direct changes now; import it again to follow the stream";
    return false;
  }
  const auto found = starts.find(parked.table);
  const UpdateStart start = found == starts.end() ? UpdateStart() : found->second;
  const bool is_timed = start.kind != UpdateStart::Kind::kBeginning && parked.time_ms != 0;
  if (is_timed && parked.time_ms < start.time_ms) {
    parked.detail = "the table was imported after the message, and the import supersedes it";
    return false;
  }
  const absl::StatusOr<UpdateMessage> message = DecodeUpdate(parked.payload, (*table)->spec());
  if (!message.ok()) {
    parked.reason = ParkReasonOf(message.status()).value_or(parked.reason);
    parked.detail = std::string(message.status().message());
    return false;
  }
  const Version version = VersionAt(parked.position.generation, parked.position.offset);
  HPS_ASSIGN_OR_RETURN(const Changes changes,
                       ChangesOf(**table, *message, version, apply_undecided));
  HPS_RETURN_IF_ERROR(Apply(**table, *message, version, changes));
  report.rows += changes.keys.size();
  report.superseded += changes.superseded;
  report.undecided += changes.undecided;
  if (changes.undecided > 0) {
    parked.detail =
        absl::StrCat(changes.undecided, " of its keys have no row, and the store can't tell ",
                     "whether they were deleted after this message");
    return false;
  }
  ++report.messages;
  return true;
}

}  // namespace

absl::StatusOr<std::vector<ParkedMessageInfo>> ListParkedMessages(const Config& config) {
  HPS_RETURN_IF_ERROR(CheckStore(config));
  HPS_ASSIGN_OR_RETURN(const std::vector<ParkedMessage> messages,
                       ReadParkedMessages(config.store.path));
  std::vector<ParkedMessageInfo> infos;
  for (const ParkedMessage& message : messages) infos.push_back(InfoOf(message));
  return infos;
}

absl::StatusOr<ReplayReport> ReplayParkedMessages(const Config& config,
                                                  const ReplayOptions& options) {
  HPS_RETURN_IF_ERROR(CheckStore(config));
  const auto store = OpenDurableStore(config.store, OpenMode::kReadWrite, StoreRole::kCommand);
  if (absl::IsUnavailable(store.status()) && ServerHasStore(config).value_or(false)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a server has the store '", config.store.path,
                     "': parked messages are replayed while no server runs"));
  }
  HPS_RETURN_IF_ERROR(store.status());
  HPS_ASSIGN_OR_RETURN(std::vector<ParkedMessage> messages, ReadParkedMessages(config.store.path));
  HPS_ASSIGN_OR_RETURN(const std::vector<TableInfo> tables, (*store)->Tables());
  Starts starts;
  for (const TableInfo& table : tables) starts[table.spec.name] = table.update_start;
  ReplayReport report;
  std::vector<ParkedMessage> left;
  for (ParkedMessage& message : messages) {
    HPS_ASSIGN_OR_RETURN(const bool applied,
                         Replay(**store, starts, options.apply_undecided, message, report));
    if (applied) continue;
    report.parked.push_back(InfoOf(message));
    left.push_back(std::move(message));
  }
  HPS_RETURN_IF_ERROR((*store)->Sync());
  HPS_RETURN_IF_ERROR(ReplaceParkedMessages(config.store.path, left));
  return report;
}

}  // namespace hps
