#include "l2_redis/redis_session.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/exchange.h"

namespace hps {

absl::StatusOr<Reply> RedisSession::Ask(std::initializer_list<std::string_view> parts) {
  const auto failed = [this](const absl::Status& why) {
    return absl::Status(why.code(),
                        absl::StrCat("redis server ", address_.Text(), ": ", why.message()));
  };
  const Deadline deadline = DeadlineAfter(RealClock(), timeout_);
  if (connection_ == nullptr) {
    auto begun = RedisConnection::Begin(address_, credentials_);
    if (!begun.ok()) return failed(begun.status());
    connection_ = *std::move(begun);
  }
  command_.clear();
  AppendCommand(parts, command_);
  absl::StatusOr<Reply> reply = AskConnection(*connection_, command_, deadline);
  if (reply.ok()) return reply;
  connection_.reset();
  return failed(reply.status());
}

}  // namespace hps
