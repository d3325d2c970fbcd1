#include "l2_redis/hugectr_redis.h"

#include <poll.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "base/text.h"
#include "l2_redis/hugectr_names.h"
#include "l2_redis/redis_error.h"
#include "l2_redis/slot_map.h"

namespace hps {
namespace {

constexpr size_t kScanCount = 1000;
// A piece of a hash. A server may send several times what it is asked for.
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kPieceRowsMin = 16;
constexpr size_t kPieceRowsMax = 4096;
// Servers that one after the other send a client on: a slot may move twice, not more.
constexpr int kRedirectsMax = 5;
constexpr int kRetryPauseMs = 200;
constexpr char kFirstCursor[] = "0";

// The reply to SCAN or HSCAN: the next cursor, and a list. Null: it is none.
const std::vector<Reply>* ScanPiece(const Reply& reply) {
  const std::vector<Reply>& parts = reply.elements;
  const bool is_piece = reply.is_array && parts.size() == 2 &&
                        parts[0].type == ReplyType::kString && !parts[0].is_array &&
                        parts[1].is_array;
  if (!is_piece) return nullptr;
  for (const Reply& element : parts[1].elements)
    if (element.is_array || element.type != ReplyType::kString) return nullptr;
  return &parts[1].elements;
}

absl::Status NoPieceError(const RedisSession& session, const char* command) {
  return absl::DataLossError(absl::StrCat("redis server ", session.address().Text(), ": ", command,
                                          " is not answered by a cursor and a list of strings"));
}

absl::Status WithAddress(const RedisSession& session, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("redis server ", session.address().Text(), ": ", why.message()));
}

bool MaySucceedLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HugectrRedis>> HugectrRedis::Open(Options options) {
  std::unique_ptr<HugectrRedis> redis(new HugectrRedis(std::move(options)));
  HPS_RETURN_IF_ERROR(redis->LearnNodes());
  HPS_RETURN_IF_ERROR(redis->ListTables());
  return redis;
}

RedisSession& HugectrRedis::SessionOf(const RedisAddress& address) {
  std::unique_ptr<RedisSession>& session = sessions_[address.Text()];
  if (session == nullptr) {
    session = std::make_unique<RedisSession>(address, options_.credentials, options_.timeout);
  }
  return *session;
}

absl::Status HugectrRedis::LearnNodes() {
  RedisSession& session = SessionOf(options_.address);
  HPS_ASSIGN_OR_RETURN(const Reply info, session.Ask({"INFO", "server"}));
  if (info.is_error()) return WithAddress(session, StatusOfRedisError(info.text));
  nodes_ = {options_.address};
  // "redis_mode:cluster"; Valkey 8 says "server_mode:cluster".
  if (info.text.find("_mode:cluster") == std::string::npos) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const Reply slots, session.Ask({"CLUSTER", "SLOTS"}));
  if (slots.is_error()) return WithAddress(session, StatusOfRedisError(slots.text));
  HPS_ASSIGN_OR_RETURN(const std::vector<SlotRange> ranges,
                       ParseClusterSlots(slots, options_.address));
  size_t slot_count = 0;
  nodes_.clear();
  for (const SlotRange& range : ranges) {
    slot_count += range.slot_count();
    if (std::find(nodes_.begin(), nodes_.end(), range.master) == nodes_.end())
      nodes_.push_back(range.master);
  }
  if (slot_count == kRedisSlotCount) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(options_.url, ": ", kRedisSlotCount - slot_count,
                   " hash slots of the cluster have no server, so rows may be missing"));
}

absl::Status HugectrRedis::ListTables() {
  for (const RedisAddress& node : nodes_)
    HPS_RETURN_IF_ERROR(ListTablesOf(SessionOf(node), partitions_max_));
  for (const auto& [table, partition] : partitions_max_) tables_.push_back(table);
  if (!tables_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      options_.url, ": expected hashes named hps_et{hps_et.MODEL.TABLE/pN}v, found none"));
}

absl::Status HugectrRedis::ListTablesOf(RedisSession& session,
                                        std::map<std::string, uint32_t>& partitions) {
  std::string cursor = kFirstCursor;
  do {
    HPS_ASSIGN_OR_RETURN(const Reply reply,
                         session.Ask({"SCAN", cursor, "MATCH", kHugectrHashPattern, "COUNT",
                                      std::to_string(kScanCount)}));
    if (reply.is_error()) return WithAddress(session, StatusOfRedisError(reply.text));
    const std::vector<Reply>* const names = ScanPiece(reply);
    if (names == nullptr) return NoPieceError(session, "SCAN");
    for (const Reply& name : *names) {
      const auto hash = ParseHugectrHashName(name.text);
      if (!hash.has_value()) {  // an import must not omit a table
        return absl::InvalidArgumentError(
            absl::StrCat(options_.url, ": '", PrintableText(name.text.substr(0, 300)),
                         "' is not named hps_et{hps_et.MODEL.TABLE/pN}v"));
      }
      uint32_t& partition_max = partitions[hash->table];
      partition_max = std::max(partition_max, hash->partition);
    }
    cursor = reply.elements[0].text;
  } while (cursor != kFirstCursor);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> HugectrRedis::PartCount(const std::string& table) {
  const auto found = partitions_max_.find(table);
  if (found == partitions_max_.end()) {
    return absl::NotFoundError(absl::StrCat(options_.url, ": no table '", table,
                                            "'; Redis has: ", absl::StrJoin(tables_, ", ")));
  }
  if (found->second < options_.partition_count) return options_.partition_count;
  return absl::InvalidArgumentError(
      absl::StrCat(options_.url, ", table '", table, "': expected ", options_.partition_count,
                   " partitions, found number ", found->second,
                   " (counted from 0): give --partitions the ", "num_partitions of HugeCTR HPS"));
}

absl::Status HugectrRedis::ReadPart(const std::string& table, uint32_t part,
                                    ForeignRecordSink& sink) {
  const std::string hash = HugectrHashName(table, part);
  Deadline give_up = kNoDeadline;
  for (size_t attempt = 0;; ++attempt) {
    sink.Begin();
    // Another master each time: the first one may be down, and any of them knows the slot's.
    const absl::Status status = ReadHash(nodes_[attempt % nodes_.size()], hash, sink);
    if (!MaySucceedLater(status)) return status;
    if (give_up == kNoDeadline) give_up = DeadlineAfter(RealClock(), options_.retry_for);
    if (RealClock().Now() >= give_up) return status;
    poll(nullptr, 0, kRetryPauseMs);
  }
}

absl::Status HugectrRedis::ReadHash(const RedisAddress& first, const std::string& hash,
                                    ForeignRecordSink& sink) {
  RedisSession* session = &SessionOf(first);
  bool is_asking = false;
  int redirects = 0;
  std::string cursor = kFirstCursor;
  size_t row_bytes = 0;  // of this hash; another table's rows may be far wider
  for (;;) {
    const bool is_continued = cursor != kFirstCursor;
    if (is_asking) HPS_RETURN_IF_ERROR(session->Ask({"ASKING"}).status());
    const size_t rows = row_bytes == 0
                            ? kPieceRowsMin
                            : std::clamp(kPieceBytes / row_bytes, kPieceRowsMin, kPieceRowsMax);
    HPS_ASSIGN_OR_RETURN(const Reply reply,
                         session->Ask({"HSCAN", hash, cursor, "COUNT", std::to_string(rows)}));
    if (reply.is_error()) {
      const auto other = RedirectOf(reply.text, session->address());
      // Its slot has moved on, or the client asked the wrong server. What was read before is of
      // another cursor.
      if (!other.has_value() || cursor != kFirstCursor || ++redirects > kRedirectsMax)
        return WithAddress(*session, StatusOfRedisError(reply.text));
      is_asking = RedisErrorOf(reply.text) == RedisError::kAsk;
      session = &SessionOf(*other);
      continue;
    }
    const std::vector<Reply>* const piece = ScanPiece(reply);
    if (piece == nullptr || piece->size() % 2 != 0) return NoPieceError(*session, "HSCAN");
    for (size_t i = 0; i < piece->size(); i += 2) {
      row_bytes = (*piece)[i + 1].text.size();
      HPS_RETURN_IF_ERROR(sink.Add((*piece)[i].text, (*piece)[i + 1].text));
    }
    cursor = reply.elements[0].text;
    if (cursor != kFirstCursor) continue;
    // An empty last piece may be the end of the hash, or the hash was removed meanwhile.
    if (!is_continued || !piece->empty()) return absl::OkStatus();
    if (is_asking) HPS_RETURN_IF_ERROR(session->Ask({"ASKING"}).status());
    HPS_ASSIGN_OR_RETURN(const Reply again,
                         session->Ask({"HSCAN", hash, kFirstCursor, "COUNT", "1"}));
    const std::vector<Reply>* const begin = ScanPiece(again);
    if (begin != nullptr && !begin->empty()) return absl::OkStatus();
    return WithAddress(*session, absl::UnavailableError("a hash was removed while it was read"));
  }
}

}  // namespace hps
