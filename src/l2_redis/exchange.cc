#include "l2_redis/exchange.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/text.h"

namespace hps {
namespace {

int MillisecondsUntil(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - RealClock().Now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

}  // namespace

Exchange::Exchange(RedisNode& node, std::unique_ptr<RedisConnection> connection,
                   std::span<const RedisBatch> batches, std::vector<RequestPlace> requests)
    : node_(&node),
      connection_(std::move(connection)),
      batches_(batches),
      requests_(std::move(requests)) {}

Exchange::~Exchange() {
  if (connection_ != nullptr) Fail(absl::CancelledError("the exchange was given up"));
}

void Exchange::Advance(SlotMap& slots) {
  absl::Status status;
  if (sent_ || !connection_->ready()) status = connection_->Advance(*this);
  if (status.ok() && !sent_ && connection_->ready()) {
    Send(slots);
    status = connection_->Flush();
  }
  if (!status.ok()) return Fail(status);
  if (sent_ && all_answered()) node_->Return(std::exchange(connection_, nullptr));
}

// Queues the requests whose names are of a current epoch. The others are dropped: their epochs have
// ended, for instance because this function sees that the server has restarted.
void Exchange::Send(SlotMap& slots) {
  // The epochs end before the new run is noted: a call that finds the run noted finds them ended.
  if (node_->IsOtherRun(connection_->run_id())) slots.EndEpochsOf(node_);
  node_->NoteRun(connection_->run_id());
  std::erase_if(requests_, [&](RequestPlace place) {
    const RedisRequest& request = RequestAt(batches_, place);
    return slots.Epoch(request.slot) != request.epoch;
  });
  for (const RequestPlace place : requests_) {
    const RedisRequest& request = RequestAt(batches_, place);
    connection_->Queue(
        batches_[place.batch].bytes.substr(request.begin, request.end - request.begin));
  }
  sent_ = true;
}

void Exchange::Fail(const absl::Status& why) {
  connection_.reset();
  node_->Return(nullptr);
  failure_ = why;
}

bool Exchange::OnArray(ReplyPlace place, size_t count) {
  return !all_answered() && place.depth == 0 && sink().OnArray(current().request, count);
}

bool Exchange::OnValue(ReplyPlace place, const ReplyValue& value) {
  if (all_answered() || place.depth > 1) return false;
  if (value.type != ReplyType::kError)
    return sink().OnValue(current().request, place.depth == 0 ? replies_ : place.index, value);
  if (place.depth != 0) return false;
  const RedisError error = RedisErrorOf(value.text);
  if (error == RedisError::kNoScript || error == RedisError::kOutOfMemory) {
    sink().OnRefused(current().request, replies_, error);
    return true;
  }
  lost_ = true;
  if (error == RedisError::kNode) {
    if (failure_.ok()) failure_ = absl::UnavailableError(PrintableText(value.text.substr(0, 200)));
  } else {
    ++redirects_[static_cast<size_t>(error)];
  }
  return true;
}

bool Exchange::OnEnd() {
  if (all_answered()) return false;
  RedisRequest& request = RequestAt(batches_, current());
  if (++replies_ < request.reply_count) return true;
  request.answered = !std::exchange(lost_, false);
  replies_ = 0;
  ++next_;
  return true;
}

absl::StatusOr<Reply> AskRedis(RedisNode& node, std::string_view command, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<RedisConnection> connection, node.Acquire(deadline));
  return AskRedis(node, std::move(connection), command, deadline);
}

absl::StatusOr<Reply> AskRedis(RedisNode& node, std::unique_ptr<RedisConnection> connection,
                               std::string_view command, Deadline deadline) {
  absl::StatusOr<Reply> reply = AskConnection(*connection, command, deadline);
  if (!reply.ok()) connection.reset();
  node.Return(std::move(connection));
  if (reply.ok() && reply->is_error())
    return absl::UnavailableError(PrintableText(std::string_view(reply->text).substr(0, 200)));
  return reply;
}

absl::StatusOr<Reply> AskConnection(RedisConnection& connection, std::string_view command,
                                    Deadline deadline) {
  ReplyTreeSink sink;
  bool sent = false;
  for (;;) {
    HPS_RETURN_IF_ERROR(connection.Advance(sink));
    if (!sink.replies().empty()) return std::move(sink.replies().front());
    if (connection.ready() && !sent) {
      connection.Queue(command);
      sent = true;
      continue;
    }
    std::array<pollfd, 1> waits = {
        pollfd{.fd = connection.descriptor(), .events = connection.events()}};
    if (poll(waits.data(), 1, MillisecondsUntil(deadline)) == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer in time", std::string(connection.hint())));
    }
  }
}

void AwaitExchanges(std::span<Exchange> exchanges, Deadline deadline) {
  std::vector<pollfd> waits;
  waits.reserve(exchanges.size());
  for (const Exchange& exchange : exchanges) {
    if (!exchange.done())
      waits.push_back({.fd = exchange.descriptor(), .events = exchange.events()});
  }
  poll(waits.data(), waits.size(), MillisecondsUntil(deadline));
}

}  // namespace hps
