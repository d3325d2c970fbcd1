#include "l2_redis/fuzz_targets.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "l2_redis/hugectr_names.h"
#include "l2_redis/redis_error.h"
#include "l2_redis/reply_reader.h"
#include "l2_redis/row_value.h"
#include "l2_redis/shared_value.h"
#include "l2_redis/slot_map.h"

namespace hps {
namespace {

constexpr RowIdentity kFuzzedRow = {.incarnation = 77, .generation = 0xabcdef, .key = -5};
constexpr SharedIdentity kFuzzedShared = {.table = 77, .key = -5};
constexpr uint64_t kFuzzedNonce = 123456789;

const RedisAddress& Asked() {
  static const RedisAddress asked = {.host = "10.0.0.1", .port = 7000};
  return asked;
}

bool IsWithin(std::span<const std::byte> inner, std::string_view outer) {
  if (inner.empty()) return true;
  const std::less_equal<const char*> before;
  const std::string_view text = AsText(inner);
  return before(outer.data(), text.data()) &&
         before(text.data() + text.size(), outer.data() + outer.size());
}

void AppendText(const Reply& reply, std::string& out) {
  absl::StrAppend(&out, reply.is_array ? "[" : "", static_cast<int>(reply.type), ":", reply.integer,
                  ":", reply.text.size(), ":", reply.text);
  for (const Reply& element : reply.elements) AppendText(element, out);
  if (reply.is_array) out += "]";
}

// All replies as text, and whether the bytes were taken to their end.
std::string ReadInPieces(std::string_view bytes, size_t piece_bytes, std::vector<Reply>& replies) {
  ReplyReader reader;
  ReplyTreeSink sink;
  bool taken = true;
  while (!bytes.empty() && taken) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    taken = reader.Feed(piece, sink).ok();
    bytes.remove_prefix(piece.size());
  }
  replies = std::move(sink.replies());
  std::string text;
  for (const Reply& reply : replies) AppendText(reply, text);
  return absl::StrCat(text, taken ? " all" : " refused");
}

void CheckMeaning(const Reply& reply) {
  if (const auto ranges = ParseClusterSlots(reply, Asked()); ranges.ok()) {
    for (const SlotRange& range : *ranges) {
      HPS_CHECK(range.first <= range.last && range.last < kRedisSlotCount);
      HPS_CHECK(range.master.port != 0);
    }
  }
  if (const auto address = RedirectOf(reply.text, Asked()); address.has_value())
    HPS_CHECK(address->port != 0 && !address->host.empty());
  HPS_CHECK(!StatusOfRedisError(reply.text).ok());
  if (const auto hash = ParseHugectrHashName(reply.text); hash.has_value())
    HPS_CHECK(HugectrHashName(hash->table, hash->partition) == reply.text);
  for (const Reply& element : reply.elements) CheckMeaning(element);
}

}  // namespace

void FuzzRedisReply(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() > ReplyReader::kPendingBytesMax) return;
  const size_t piece_bytes = std::max<size_t>(1, static_cast<size_t>(bytes[0]));
  const std::string_view text = AsText(bytes.subspan(1));
  std::vector<Reply> replies;
  std::vector<Reply> pieces;
  HPS_CHECK(ReadInPieces(text, text.size(), replies) == ReadInPieces(text, piece_bytes, pieces));
  for (const Reply& reply : replies) CheckMeaning(reply);
}

void FuzzRedisRowValue(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto row_bytes = static_cast<size_t>(bytes[0]);
  const std::string_view value = AsText(bytes.subspan(1));
  const RowValue parsed = ParseRowValue(kFuzzedRow, value, row_bytes);
  if (parsed.valid) {
    HPS_CHECK(IsWithin(parsed.row, value));
    HPS_CHECK(parsed.row.empty() || parsed.row.size() == row_bytes);
    std::string again;
    AppendRowValue(kFuzzedRow, parsed.version, parsed.row, again);
    HPS_CHECK(again == value);
  }
  std::string written;
  AppendRowValue(kFuzzedRow, row_bytes, AsBytes(value), written);
  const RowValue read = ParseRowValue(kFuzzedRow, written, value.size());
  HPS_CHECK(read.valid && read.version == row_bytes && AsText(read.row) == value);
}

void FuzzRedisSharedValue(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto row_bytes = static_cast<size_t>(bytes[0]);
  const std::string_view value = AsText(bytes.subspan(1));
  SharedRow row;
  if (ParseSharedRow(kFuzzedShared, kFuzzedNonce, value, row_bytes, row) ==
      SharedRowState::kCurrent) {
    HPS_CHECK(IsWithin(row.row, value));
    std::string again;
    AppendNonce(row.is_late ? kFuzzedNonce | kLateBit : kFuzzedNonce, again);
    AppendSharedRow(kFuzzedShared, row, again);
    HPS_CHECK(again == value);
  }
  std::string written;
  AppendNonce(kFuzzedNonce, written);
  AppendSharedRow(kFuzzedShared,
                  {.version = row_bytes, .complete_to = row_bytes + 1, .row = AsBytes(value)},
                  written);
  HPS_CHECK(ParseSharedRow(kFuzzedShared, kFuzzedNonce, written, value.size(), row) ==
            SharedRowState::kCurrent);
  HPS_CHECK(row.version == row_bytes && AsText(row.row) == value);
  if (const auto mark = ParseSharedMark(value); mark.has_value()) {
    std::string again;
    AppendNonce(mark->nonce, again);
    AppendVersions(mark->positions, again);
    HPS_CHECK(value.starts_with(again) && value.size() == again.size() + kSharedMarkChecksumBytes);
  }
}

}  // namespace hps
