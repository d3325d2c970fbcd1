#include "server/http/http_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/json_writer.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "base/public_message.h"
#include "server/http/http_connection.h"
#include "server/http/http_server.h"
#include "server/http/json_infer_response.h"
#include "server/http/json_reader.h"
#include "server/http/rows_change.h"

namespace hps::server {
namespace {

constexpr size_t kRowsAlignment = 64;
// Encoding more JSON than this, or packing more, takes longer than the lookup.
constexpr uint64_t kLongAnswerBytesMin = 1 << 20;
// JSON of at most this size may grow by doubling; larger JSON is reserved at once, so that it takes
// no more than what was accounted for.
constexpr size_t kTextBytesGrown = 16 << 10;

// Longest wait for a load of the model, or for other changes of the table, to end.
constexpr Duration kUpdateWaitMax = std::chrono::seconds(30);
constexpr Duration kRefreshWaitMax = std::chrono::minutes(10);

// The same with a message that a client may see. The log gets what is hidden.
absl::Status ForClients(std::string_view what, const absl::Status& status) {
  if (!IsPublic(status)) LogWarning(absl::StrCat(std::string(what), ": ", TextForLog(status)));
  return hps::ForClients(status);
}

// {"name": "N"}; the name points into the body.
absl::Status ReadSnapshotName(std::span<char> body, std::string_view* name) {
  JsonReader json(body);
  std::string_view key;
  bool has_name = false;
  json.BeginObject();
  while (json.ok() && json.NextMember(&key)) {
    if (key == "name") {
      has_name = json.ReadString(name);
    } else {
      json.Fail(absl::InvalidArgumentError("a snapshot has a name and nothing else"));
    }
  }
  HPS_RETURN_IF_ERROR(json.Finish());
  if (!has_name) return absl::InvalidArgumentError("expected {\"name\": \"NAME\"}");
  return absl::OkStatus();
}

// Why a request could not be decoded, for the counters; none if the request is not at fault.
std::optional<BadRequestReason> ReasonOf(const absl::Status& decoded, bool failed_in_syntax) {
  switch (decoded.code()) {
    case absl::StatusCode::kOutOfRange:
      return BadRequestReason::kLimit;
    case absl::StatusCode::kNotFound:
      return BadRequestReason::kUnknown;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return std::nullopt;
    default:
      return failed_in_syntax ? BadRequestReason::kSyntax : BadRequestReason::kContent;
  }
}

}  // namespace

HttpCall::HttpCall(HttpServer& server, HttpConnection& connection)
    : server_(server), connection_(connection) {}

absl::Status HttpCall::Unpack(Coding coding, uint64_t bytes_max, std::span<char>* body) {
  HPS_ASSIGN_OR_RETURN(unpacked_, Inflate(coding, std::as_bytes(*body), bytes_max,
                                          GzipMembers::kMany, server_.pool()));
  *body = {AsChars(unpacked_.memory.bytes().data()), unpacked_.size};
  return absl::OkStatus();
}

std::optional<HttpCall::Refusal> HttpCall::StartInfer(const InferStart& start) {
  request.protocol = Protocol::kHttp;
  request.arrival = start.arrival;
  request.socket_wait = start.socket_wait;
  request.model = start.route.model;
  request.version = start.route.version;
  absl::Status status = Decode(start);
  if (absl::IsResourceExhausted(status)) return Refusal{Refusal::Kind::kNoRoom, std::move(status)};
  if (!status.ok()) {
    const auto reason = ReasonOf(status, decoder_.failed_in_syntax());
    return Refusal{Refusal::Kind::kBadRequest, std::move(status), reason};
  }
  request.body_bytes = start.lent_bytes + unpacked_.memory.bytes().size() + decoder_.lent_bytes();
  status = server_.parts().inference->Prepare(*this);
  if (!status.ok()) return Refusal{Refusal::Kind::kRefused, std::move(status)};
  absl::StatusOr<BufferPool::Lease> rows =
      server_.pool().Acquire(row_bytes(), BufferPool::Use::kAnswer);
  if (!rows.ok()) return Refusal{Refusal::Kind::kNoRoom, rows.status()};
  rows_ = *std::move(rows);
  std::byte* at = rows_.bytes().data();
  for (OutputTensor& output : outputs) {
    output.data = at;
    at += RoundUp(output.byte_count, kRowsAlignment);
  }
  kind_ = TakesLong(start.head.accepted_coding) ? Kind::kLongInfer : Kind::kInfer;
  MutexLock lock(mutex_);
  state_ = State::kRunning;
  return std::nullopt;
}

absl::Status HttpCall::Decode(const InferStart& start) {
  const uint64_t json_bytes = start.head.json_bytes.value_or(start.body.size());
  if (json_bytes > start.body.size()) {
    return absl::InvalidArgumentError(absl::StrCat("Inference-Header-Content-Length is ",
                                                   json_bytes, ", the body has only ",
                                                   start.body.size(), " bytes"));
  }
  if (start.head.json_bytes != 0) {
    return decoder_.Decode({.json = start.body.first(json_bytes),
                            .binary = std::as_bytes(start.body.subspan(json_bytes))},
                           server_.pool(), server_.parts().config->body_bytes_max, &request);
  }
  HPS_ASSIGN_OR_RETURN(const ModelMetadata model, server_.parts().repository->Metadata(
                                                      start.route.model, start.route.version));
  if (model.tables.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a body of keys alone (Inference-Header-Content-Length: 0) is for models with one table; '",
        model.name, "' has ", model.tables.size()));
  }
  const std::string& table = model.tables[0].name;  // MODEL/TABLE
  return decoder_.DecodeRaw(std::as_bytes(start.body), table.substr(table.find('/') + 1), &request);
}

uint64_t HttpCall::row_bytes() const {
  uint64_t bytes = 0;
  for (const OutputTensor& output : outputs) bytes += RoundUp(output.byte_count, kRowsAlignment);
  return bytes;
}

// The buffer as the pool lends it, and the text of the outputs that are sent as JSON.
uint64_t HttpCall::AnswerBytes() const {
  return BufferPool::LentFor(row_bytes()) +
         AnswerTextMax(*this, decoder_, server_.parts().config->response_bytes_max);
}

bool HttpCall::TakesLong(Coding accepted_coding) const {
  const uint64_t text_bytes =
      AnswerTextMax(*this, decoder_, server_.parts().config->response_bytes_max);
  const bool packs = accepted_coding != Coding::kIdentity;
  return text_bytes + (packs ? row_bytes() : 0) >= kLongAnswerBytesMin;
}

absl::Status HttpCall::StartControl(const Route& route, std::span<char> body) {
  kind_ = route.kind == RouteKind::kLoad       ? Kind::kLoad
          : route.kind == RouteKind::kUnload   ? Kind::kUnload
          : route.kind == RouteKind::kSnapshot ? Kind::kSnapshot
                                               : Kind::kRefresh;
  model_ = route.model;
  if (kind_ == Kind::kSnapshot) HPS_RETURN_IF_ERROR(ReadSnapshotName(body, &model_));
  return server_.PostSlow(this);
}

absl::Status HttpCall::StartUpdate(const InferStart& start) {
  const uint64_t json_bytes = start.head.json_bytes.value_or(start.body.size());
  if (json_bytes > start.body.size() || json_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("Inference-Header-Content-Length is ",
                                                   json_bytes, " of a body of ", start.body.size(),
                                                   " bytes"));
  }
  kind_ = Kind::kUpdate;
  model_ = start.route.model;
  table_ = start.route.table;
  body_ = start.body;
  json_bytes_ = json_bytes;
  // The tensors of a body in JSON take as much again, at most.
  const uint64_t bytes = start.lent_bytes + unpacked_.memory.bytes().size() + start.body.size();
  HPS_RETURN_IF_ERROR(server_.parts().inference->ReserveBytes(bytes, &share_));
  return server_.PostUpdate(this);
}

void HttpCall::Run() {
  if (!is_control()) return connection_.OnCallEnded();
  OnDone(Try([this] { return RunControl(); }));
}

absl::Status HttpCall::RunControl() {
  ModelRepository& repository = *server_.parts().repository;
  switch (kind_) {
    case Kind::kLoad:
      return repository.Load(model_);
    case Kind::kUnload:
      return repository.Unload(model_);
    case Kind::kRefresh:
      if (server_.parts().store == nullptr) return absl::UnimplementedError("no store");
      return ForClients("a refresh failed", server_.parts().store->models().RefreshLevel1(
                                                std::string(model_), kRefreshWaitMax));
    case Kind::kSnapshot:
      return MakeSnapshot();
    default:
      return ApplyUpdate();
  }
}

absl::Status HttpCall::MakeSnapshot() {
  Store* const store = server_.parts().store;
  if (store == nullptr) return absl::UnimplementedError("no store");
  const TimePoint begin = RealClock().Now();
  const absl::StatusOr<uint64_t> bytes = store->Snapshot(std::string(model_));
  if (!bytes.ok()) return ForClients("a snapshot failed", bytes.status());
  JsonWriter json(&answer_);
  json.BeginObject();
  json.Member("name", model_).Member("bytes", *bytes);
  json.Member("seconds", std::chrono::duration<double>(RealClock().Now() - begin).count());
  json.EndObject();
  return absl::OkStatus();
}

// Inputs: `keys` INT64 or UINT64 [n], and `rows` [n, dim] in the table's type, or the parameter
// `delete`.
absl::Status HttpCall::ApplyUpdate() {
  Store* const store = server_.parts().store;
  if (store == nullptr) return absl::UnimplementedError("no store");
  HPS_RETURN_IF_ERROR(decoder_.Decode(
      {.json = body_.first(json_bytes_), .binary = std::as_bytes(body_.subspan(json_bytes_))},
      server_.pool(), kUpdateBytesMax, &request));
  RowsChange change;
  HPS_RETURN_IF_ERROR(ReadRowsChange(request.inputs, decoder_.is_delete(), &change));
  change.update.table = std::string(model_) + "/" + std::string(table_);
  const size_t count = change.update.keys.size();
  const Duration timeout = request.timeout == Duration::zero() ? kUpdateWaitMax : request.timeout;
  HPS_RETURN_IF_ERROR(ForClients("a change of rows failed",
                                 store->Apply(change.update, std::min(timeout, kUpdateWaitMax))));
  JsonWriter json(&answer_);
  json.BeginObject();
  json.Member("rows", uint64_t{count});
  json.EndObject();
  return absl::OkStatus();
}

void HttpCall::OnDone(const absl::Status& status) {
  result_ = status;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kCancelled) {
      state_ = State::kEnded;
      return;
    }
    state_ = State::kIdle;
  }
  if (status.ok() && kind_ == Kind::kLongInfer && server_.PostEncoding(this).ok()) return;
  connection_.OnCallEnded();
}

// While the server is being asked to end the call, the connection is not told that the call has
// ended: it would reset the call, which Inference::Cancel still uses.
void HttpCall::Cancel() {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kRunning) return;
    state_ = State::kCancelled;
  }
  server_.parts().inference->Cancel(*this);
  {
    MutexLock lock(mutex_);
    const bool has_ended = state_ == State::kEnded;
    state_ = has_ended ? State::kIdle : State::kRunning;
    if (!has_ended) return;
  }
  connection_.OnCallEnded();
}

absl::Status HttpCall::TakeResult() { return std::exchange(result_, absl::OkStatus()); }

absl::Status HttpCall::Encode(HttpResponseWriter* response, uint64_t* json_bytes) {
  std::string& text = response->text();
  const uint64_t bytes_max = server_.parts().config->response_bytes_max;
  const uint64_t text_max = AnswerTextMax(*this, decoder_, bytes_max);
  if (text_max > kTextBytesGrown) text.reserve(text_max);
  uint64_t binary_bytes = 0;
  if (absl::Status encoded = EncodeAnswer(*this, decoder_, bytes_max, &text, &binary_bytes);
      !encoded.ok()) {
    text.clear();
    return encoded;
  }
  response->AddPiece(AsBytes(std::string_view(text)));
  *json_bytes = 0;
  for (const OutputTensor& output : outputs) {
    if (!decoder_.wants_binary(output.name)) continue;
    *json_bytes = text.size();
    if (output.byte_count > 0) response->AddPiece({output.data, output.byte_count});
  }
  return absl::OkStatus();
}

void HttpCall::ReleaseRequest() {
  decoder_.Reset();
  unpacked_ = CodedBytes();
  body_ = {};
  share_.reset();
}

void HttpCall::End() {
  ReleaseRequest();
  rows_.Release();
  answer_.clear();
  Reset();
}

}  // namespace hps::server
