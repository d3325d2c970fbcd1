#include "l2_redis/hugectr_redis.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "base/text.h"
#include "l2_redis/hugectr_names.h"
#include "l2_redis/redis_error.h"
#include "l2_redis/slot_map.h"
#include "tier/foreign_store.h"

namespace hps {
namespace {

constexpr size_t kScanCount = 1000;
// What to do if hashes do not fit the number of partitions.
constexpr std::string_view kPartitionsAdvice =
    "Give --partitions the num_partitions of HugeCTR HPS. If it was changed, hashes of the earlier "
    "number are left in Redis: delete the table's hashes, and let HugeCTR fill them again";
// A piece of a hash. A server may send several times what it is asked for.
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kPieceRowsMin = 16;
constexpr size_t kPieceRowsMax = 4096;
// Servers that one after the other send a client on: a slot may move twice, not more.
constexpr int kRedirectsMax = 5;
constexpr int kRetryPauseMs = 200;
constexpr char kFirstCursor[] = "0";
// A whole SCAN takes about one reply for kScanCount keys, or for ten times as many places of a
// table that was larger before. It must end within this many replies, and kScanSlack times those
// for the keys that there are at its begin.
constexpr uint64_t kScanRepliesMin = 10'000;
constexpr uint64_t kScanSlack = 4;

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

// The keys of database 0, which alone clusters and HugeCTR use: "db0:keys=N,..."; 0 if it has none.
uint64_t KeyCountOf(std::string_view keyspace) {
  constexpr std::string_view kKeys = "db0:keys=";
  const size_t at = keyspace.find(kKeys);
  if (at == keyspace.npos) return 0;
  const std::string_view digits = keyspace.substr(at + kKeys.size());
  uint64_t count = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), count);
  return count;
}

absl::Status NoPieceError(const RedisSession& session, const char* command) {
  return absl::DataLossError(absl::StrCat("redis server ", session.address().Text(), ": ", command,
                                          " is not answered by a cursor and a list of strings"));
}

absl::Status WithAddress(const RedisSession& session, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("redis server ", session.address().Text(), ": ", why.message()));
}

// Passes on the records of one part; a key of another part is an error.
class PartSink final : public ForeignRecordSink {
 public:
  struct Part {
    std::string what;  // begins the message
    uint32_t number = 0;
    uint32_t count = 0;
  };

  PartSink(Part part, ForeignRecordSink& sink) : part_(std::move(part)), sink_(sink) {}

  void Begin() override { sink_.Begin(); }
  absl::Status Add(std::string_view key, std::string_view row) override {
    HPS_RETURN_IF_ERROR(CheckHugectrSizes(part_.what, key.size(), row.size()));
    const Key number = HugectrKey(key);
    const uint32_t its_part = HugectrPartition(number, part_.count);
    if (its_part == part_.number) return sink_.Add(key, row);
    return absl::InvalidArgumentError(absl::StrCat(
        part_.what, ": key ", number, " is in partition ", part_.number, " and belongs into ",
        its_part, " of ", part_.count, ". ", std::string(kPartitionsAdvice)));
  }

 private:
  const Part part_;
  ForeignRecordSink& sink_;
};

bool MaySucceedLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HugectrRedis>> HugectrRedis::Open(Options options) {
  std::unique_ptr<HugectrRedis> redis(new HugectrRedis(std::move(options)));
  HPS_RETURN_IF_ERROR(redis->LearnNodes(redis->options_.address));
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

absl::Status HugectrRedis::LearnNodes(const RedisAddress& from) {
  RedisSession& session = SessionOf(from);
  HPS_ASSIGN_OR_RETURN(const Reply info, session.Ask({"INFO", "server"}));
  if (info.is_error()) return WithAddress(session, StatusOfRedisError(info.text));
  // "redis_mode:cluster"; Valkey 8 says "server_mode:cluster".
  if (info.text.find("_mode:cluster") == std::string::npos) {
    nodes_ = {from};
    return absl::OkStatus();
  }
  HPS_ASSIGN_OR_RETURN(const Reply slots, session.Ask({"CLUSTER", "SLOTS"}));
  if (slots.is_error()) return WithAddress(session, StatusOfRedisError(slots.text));
  HPS_ASSIGN_OR_RETURN(const std::vector<SlotRange> ranges, ParseClusterSlots(slots, from));
  size_t slot_count = 0;
  std::vector<RedisAddress> nodes;
  for (const SlotRange& range : ranges) {
    slot_count += range.slot_count();
    if (std::find(nodes.begin(), nodes.end(), range.master) == nodes.end())
      nodes.push_back(range.master);
  }
  if (slot_count != kRedisSlotCount) {
    return absl::UnavailableError(
        absl::StrCat(options_.url, ": ", kRedisSlotCount - slot_count,
                     " hash slots of the cluster have no server, so rows may be missing"));
  }
  nodes_ = std::move(nodes);
  return absl::OkStatus();
}

absl::Status HugectrRedis::Retry(const std::function<absl::Status(size_t)>& attempt) const {
  Deadline give_up = kNoDeadline;
  for (size_t number = 0;; ++number) {
    const absl::Status status = attempt(number);
    if (!MaySucceedLater(status)) return status;
    if (give_up == kNoDeadline) give_up = DeadlineAfter(RealClock(), options_.retry_for);
    if (RealClock().Now() >= give_up) return status;
    poll(nullptr, 0, kRetryPauseMs);
  }
}

absl::Status HugectrRedis::ListTables() {
  const absl::Status listed = Retry([this](size_t attempt) {
    // A replica may have taken a master's place. The server that is asked may be the one that
    // ended: then the next attempt asks another.
    const RedisAddress from = nodes_[attempt % nodes_.size()];
    if (attempt > 0) HPS_RETURN_IF_ERROR(LearnNodes(from));
    partitions_max_.clear();
    for (const RedisAddress& node : nodes_)
      HPS_RETURN_IF_ERROR(ListTablesOf(SessionOf(node), partitions_max_));
    return absl::OkStatus();
  });
  HPS_RETURN_IF_ERROR(listed);
  for (const auto& [table, partition] : partitions_max_) tables_.push_back(table);
  if (!tables_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      options_.url, ": expected hashes named hps_et{hps_et.MODEL.TABLE/pN}v, found none"));
}

absl::Status HugectrRedis::ListTablesOf(RedisSession& session,
                                        std::map<std::string, uint32_t>& partitions) {
  HPS_ASSIGN_OR_RETURN(const Reply keyspace, session.Ask({"INFO", "keyspace"}));
  if (keyspace.is_error()) return WithAddress(session, StatusOfRedisError(keyspace.text));
  const uint64_t key_count = KeyCountOf(keyspace.text);
  const uint64_t replies_max = kScanRepliesMin + key_count / kScanCount * kScanSlack;
  std::string cursor = kFirstCursor;
  for (uint64_t replies = 0; replies < replies_max; ++replies) {
    HPS_ASSIGN_OR_RETURN(const Reply reply,
                         session.Ask({"SCAN", cursor, "MATCH", kHugectrHashPattern, "COUNT",
                                      std::to_string(kScanCount)}));
    if (reply.is_error()) return WithAddress(session, StatusOfRedisError(reply.text));
    const std::vector<Reply>* const names = ScanPiece(reply);
    if (names == nullptr) return NoPieceError(session, "SCAN");
    HPS_RETURN_IF_ERROR(NoteHashes(*names, partitions));
    cursor = reply.elements[0].text;
    if (cursor == kFirstCursor) return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "redis server ", session.address().Text(), ": SCAN did not end within ", replies_max,
      " replies, and the server says that it has ", key_count, " keys: this Redis is damaged"));
}

absl::Status HugectrRedis::NoteHashes(const std::vector<Reply>& names,
                                      std::map<std::string, uint32_t>& partitions) const {
  for (const Reply& name : names) {
    const auto hash = ParseHugectrHashName(name.text);
    if (!hash.has_value()) {  // an import must not omit a table
      return absl::InvalidArgumentError(
          absl::StrCat(options_.url, ": '", PrintableText(name.text.substr(0, 300)),
                       "' is not named hps_et{hps_et.MODEL.TABLE/pN}v"));
    }
    uint32_t& partition_max = partitions[hash->table];
    partition_max = std::max(partition_max, hash->partition);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> HugectrRedis::PartCount(const std::string& table) {
  const auto found = partitions_max_.find(table);
  if (found == partitions_max_.end()) {
    return absl::NotFoundError(absl::StrCat(options_.url, ": no table '", table,
                                            "'; Redis has: ", absl::StrJoin(tables_, ", ")));
  }
  if (found->second < options_.partition_count) return options_.partition_count;
  return absl::InvalidArgumentError(absl::StrCat(options_.url, ", table '", table, "': expected ",
                                                 options_.partition_count, " partitions, found '",
                                                 HugectrHashName(table, found->second), "'. ",
                                                 std::string(kPartitionsAdvice)));
}

absl::Status HugectrRedis::ReadPart(const std::string& table, uint32_t part,
                                    ForeignRecordSink& sink) {
  const std::string hash = HugectrHashName(table, part);
  PartSink checked({.what = absl::StrCat(options_.url, ", table '", table, "', hash '", hash, "'"),
                    .number = part,
                    .count = options_.partition_count},
                   sink);
  return Retry([&](size_t attempt) {
    checked.Begin();
    // Another master each time: the first one may be down, and any of them knows the slot's.
    return ReadHash(nodes_[attempt % nodes_.size()], hash, checked);
  });
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
