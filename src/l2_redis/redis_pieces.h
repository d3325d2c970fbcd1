// The keys of one call in pieces, with a request to Redis for each piece. RedisTable and
// SharedRedisTable write their commands with it.
//
// A piece has keys of one partition, whose rows lie in one hash slot. A thread reuses its pieces,
// so that a fetch allocates nothing once they are large enough. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "hps/types.h"
#include "l2_redis/redis_batch.h"
#include "l2_redis/redis_script.h"
#include "l2_redis/row_names.h"
#include "l2_redis/slot_map.h"

namespace hps {

struct RedisPiece {
  size_t partition = 0;
  uint32_t first = 0;  // of its keys in the groups
  uint32_t count = 0;
  uint64_t generation = 0;  // of the names of its rows
};

struct RedisPieces {
  // Divides the keys into pieces of at most `keys_max` keys; with_empty: also a piece for each
  // partition that has no keys. `of` and `batch_keys` must outlive the use of the pieces.
  // REQUIRES: the slots are prepared.
  void Divide(const RowNames& of, const SlotMap& slots, std::span<const Key> batch_keys,
              size_t keys_max, bool with_empty = false);
  // Keeps the pieces with these numbers, which ascend.
  void Keep(std::span<const size_t> numbers);

  // The positions of a piece's keys in the batch, descending: an insertion keeps the first row of a
  // key, which is the last of the batch.
  std::span<const uint32_t> PositionsOf(const RedisPiece& piece) const {
    return std::span(groups.positions).subspan(piece.first, piece.count);
  }

  // Writes all requests: `write` appends the commands of the request with a number.
  template <typename Write>
  void WriteRequests(Write write) {
    bytes.clear();
    for (size_t number = 0; number < requests.size(); ++number) {
      requests[number].begin = bytes.size();
      write(number);
      requests[number].end = bytes.size();
    }
  }
  // MGET of the number of the partition's last change, then of the rows.
  void WriteFetches();
  // DEL of the rows.
  void WriteErasures();
  // Appends the call of a script up to its arguments. Its keys are the name of the number of the
  // partition's last change, then those of the rows.
  void AppendScript(const RedisScriptCall& call, const RedisPiece& piece, size_t argument_count);

  RedisBatch Batch(RequestSink* sink, Unanswered unanswered = Unanswered::kLeavesRows) {
    return {.bytes = bytes, .requests = requests, .sink = sink, .unanswered = unanswered};
  }

  const RowNames* names = nullptr;
  std::span<const Key> keys;
  KeyGroups groups;
  std::vector<RedisPiece> pieces;
  std::vector<RedisRequest> requests;  // [pieces]
  std::string bytes;
};

// The pieces of this thread for part number `part` of a fetch; other calls use part 0.
template <typename Pieces>
Pieces& ThreadPieces(size_t part = 0) {
  thread_local std::deque<Pieces> all;
  while (all.size() <= part) all.emplace_back();
  return all[part];
}

}  // namespace hps
