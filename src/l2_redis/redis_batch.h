// Commands for Redis, and where their replies go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "l2_redis/redis_error.h"
#include "l2_redis/reply_reader.h"

namespace hps {

// Commands for one slot, sent together.
struct RedisRequest {
  uint16_t slot = 0;
  uint64_t epoch = 0;  // of the slot, when the commands were written
  size_t begin = 0;    // of their bytes
  size_t end = 0;
  size_t reply_count = 1;
  // Set by RedisClient::Execute. `sent`: a node may have got the commands. `answered`: every reply
  // arrived, and none says that another node has the slot or that this node fails. If it is false,
  // it is not known which commands were executed.
  bool sent = false;
  bool answered = false;
  bool to_replica = false;  // set by Execute, too
};

// What a request without an answer means for the rows that its slot holds. If they can't be trusted
// any more, the slot's epoch ends.
enum class Unanswered {
  kNothing,     // it only reads
  kRunsLate,    // a node that got it may put rows there later, behind newer changes
  kLeavesRows,  // rows that were to be changed may be unchanged
};

// Takes the replies to the requests of a batch; `request` is a request's number there. False
// refuses the reply.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // The reply is an array, whose elements follow by OnValue.
  virtual bool OnArray(size_t request, size_t count) = 0;
  // `index` is the element's in the array, else the reply's in the request.
  virtual bool OnValue(size_t request, size_t index, const ReplyValue& value) = 0;
  // An error reply: kNoScript or kOutOfMemory. The request counts as answered.
  virtual void OnRefused(size_t request, size_t index, RedisError error) = 0;
};

struct RedisBatch {
  std::string_view bytes;
  std::span<RedisRequest> requests;
  RequestSink* sink = nullptr;
  Unanswered unanswered = Unanswered::kLeavesRows;
  bool reads_replicas = false;  // a slot's replica may get its requests, if there is one
};

// A request of one of several batches that are sent together.
struct RequestPlace {
  uint32_t batch = 0;
  uint32_t request = 0;  // its number in the batch
};

inline RedisRequest& RequestAt(std::span<const RedisBatch> batches, RequestPlace place) {
  return batches[place.batch].requests[place.request];
}

}  // namespace hps
