#include "l2_redis/redis_pieces.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "l2_redis/command_writer.h"

namespace hps {
namespace {

void AppendNames(const RedisPiece& piece, RedisPieces& pieces) {
  for (const uint32_t i : pieces.PositionsOf(piece))
    pieces.names->AppendName(piece.partition, piece.generation, pieces.keys[i], pieces.bytes);
}

}  // namespace

void RedisPieces::Divide(const RowNames& of, const SlotMap& slots, std::span<const Key> batch_keys,
                         size_t keys_max, bool with_empty) {
  names = &of;
  keys = batch_keys;
  groups.Group(of, keys);
  pieces.clear();
  requests.clear();
  for (size_t partition = 0; partition < of.partition_count(); ++partition) {
    uint32_t first = groups.begins[partition];
    const uint32_t end = groups.begins[partition + 1];
    if (first == end && !with_empty) continue;
    const uint16_t slot = of.slot(partition);
    const RedisRequest request = {.slot = slot, .epoch = slots.Epoch(slot)};
    do {
      const auto count = static_cast<uint32_t>(std::min<size_t>(end - first, keys_max));
      pieces.push_back({.partition = partition, .first = first, .count = count});
      requests.push_back(request);
      first += count;
    } while (first < end);
  }
}

void RedisPieces::Keep(std::span<const size_t> numbers) {
  for (size_t kept = 0; kept < numbers.size(); ++kept) {
    const RedisRequest asked = requests[numbers[kept]];
    pieces[kept] = pieces[numbers[kept]];
    requests[kept] = {.slot = asked.slot, .epoch = asked.epoch};
  }
  pieces.resize(numbers.size());
  requests.resize(numbers.size());
}

void RedisPieces::WriteFetches() {
  WriteRequests([&](size_t request) {
    const RedisPiece& piece = pieces[request];
    AppendCommandHeader(piece.count + 2, bytes);
    AppendPart("MGET", bytes);
    names->AppendChangeName(piece.partition, piece.generation, bytes);
    AppendNames(piece, *this);
  });
}

void RedisPieces::WriteErasures() {
  WriteRequests([&](size_t request) {
    AppendCommandHeader(pieces[request].count + 1, bytes);
    AppendPart("DEL", bytes);
    AppendNames(pieces[request], *this);
  });
}

void RedisPieces::AppendScript(const RedisScriptCall& call, const RedisPiece& piece,
                               size_t argument_count) {
  AppendCommandHeader(4 + size_t{piece.count} + argument_count, bytes);
  AppendPart(call.with_text ? "EVAL" : "EVALSHA", bytes);
  AppendPart(call.with_text ? call.script.text : call.script.sha1, bytes);
  AppendPart(absl::StrCat(piece.count + 1), bytes);
  names->AppendChangeName(piece.partition, piece.generation, bytes);
  AppendNames(piece, *this);
}

}  // namespace hps
