#include "l2_redis/reply_reader.h"

#include <hiredis/read.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

// hiredis wants an object for each value, and takes null for "out of memory".
char object_of_every_value;

ReplyPlace PlaceOf(const redisReadTask* task) {
  ReplyPlace place;
  if (task->parent != nullptr) place.index = static_cast<size_t>(task->idx);
  for (const redisReadTask* at = task->parent; at != nullptr; at = at->parent) ++place.depth;
  return place;
}

void* Pass(const redisReadTask* task, const ReplyValue& value) {
  auto* const sink = static_cast<ReplySink*>(task->privdata);
  return sink->OnValue(PlaceOf(task), value) ? &object_of_every_value : nullptr;
}

void* PassString(const redisReadTask* task, char* text, size_t size) {
  ReplyType type = ReplyType::kString;
  if (task->type == REDIS_REPLY_STATUS) type = ReplyType::kStatus;
  if (task->type == REDIS_REPLY_ERROR) type = ReplyType::kError;
  return Pass(task, {.type = type, .text = {text, size}});
}

void* PassArray(const redisReadTask* task, int count) {
  auto* const sink = static_cast<ReplySink*>(task->privdata);
  const bool taken = count >= 0 && sink->OnArray(PlaceOf(task), static_cast<size_t>(count));
  return taken ? &object_of_every_value : nullptr;
}

void* PassInteger(const redisReadTask* task, long long value) {
  return Pass(task, {.type = ReplyType::kInteger, .integer = value});
}

void* PassNil(const redisReadTask* task) { return Pass(task, {.type = ReplyType::kNil}); }

void FreeNothing(void* /*object*/) {}

redisReplyObjectFunctions functions = {PassString, PassArray, PassInteger, PassNil, FreeNothing};

}  // namespace

void ReplyReader::FreeReader::operator()(redisReader* reader) const { redisReaderFree(reader); }

ReplyReader::ReplyReader() : reader_(redisReaderCreateWithFunctions(&functions)) {
  if (reader_ != nullptr) reader_->maxbuf = kPendingBytesMax;
}

absl::Status ReplyReader::Feed(std::string_view bytes, ReplySink& sink) {
  if (reader_ == nullptr) return absl::ResourceExhaustedError("out of memory");
  reader_->privdata = &sink;
  // A value may have begun with another sink.
  for (redisReadTask& task : reader_->rstack) task.privdata = &sink;
  if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK)
    return absl::DataLossError(absl::StrCat("no reply of Redis: ", reader_->errstr));
  for (;;) {
    void* reply = nullptr;
    if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
      // hiredis calls it "out of memory".
      const bool refused = reader_->err == REDIS_ERR_OOM;
      return absl::DataLossError(absl::StrCat(
          "no reply of Redis: ", refused ? "it does not fit the command" : reader_->errstr));
    }
    if (reply == nullptr) break;
    if (!sink.OnEnd()) return absl::DataLossError("a reply that was not asked for");
  }
  if (reader_->len - reader_->pos > kPendingBytesMax)
    return absl::DataLossError("a value in a reply is too long");
  return absl::OkStatus();
}

Reply* ReplyTreeSink::Add(ReplyPlace place) {
  if (++element_count_ > kElementsMax) return nullptr;
  if (place.depth == 0) {
    current_ = Reply();
    return &current_;
  }
  Reply* parent = &current_;
  for (size_t depth = 1; depth < place.depth; ++depth) parent = &parent->elements.back();
  return &parent->elements.emplace_back();
}

// The elements are made as they arrive, not as they are announced.
bool ReplyTreeSink::OnArray(ReplyPlace place, size_t count) {
  Reply* const reply = Add(place);
  if (reply == nullptr || count > kElementsMax) return false;
  reply->is_array = true;
  return true;
}

bool ReplyTreeSink::OnValue(ReplyPlace place, const ReplyValue& value) {
  Reply* const reply = Add(place);
  text_bytes_ += value.text.size();
  if (reply == nullptr || text_bytes_ > kTextBytesMax) return false;
  reply->type = value.type;
  reply->integer = value.integer;
  reply->text = value.text;
  return true;
}

bool ReplyTreeSink::OnEnd() {
  replies_.push_back(std::move(current_));
  return true;
}

}  // namespace hps
