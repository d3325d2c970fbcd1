#include "bench/serve/serve_http_client.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/serve/serve_http_head.h"
#include "bench/serve/serve_world.h"

namespace hps::bench {

absl::StatusOr<std::unique_ptr<HttpServeClient>> HttpServeClient::Connect(
    const std::string& address) {
  HPS_ASSIGN_OR_RETURN(ServeSocket socket, ServeSocket::Connect(address));
  return std::unique_ptr<HttpServeClient>(new HttpServeClient(std::move(socket)));
}

absl::StatusOr<Answer> HttpServeClient::Ask(const std::string& request) {
  HPS_ASSIGN_OR_RETURN(const int code, Exchange(request));
  switch (code) {
    case 200:
      return Answer::kRows;
    case 429:
      return Answer::kRefused;
    case 504:
      return Answer::kLate;
    default:
      return absl::InternalError(
          absl::StrCat("bench serve: HTTP ", code, ": ",
                       std::string(body().data(), std::min<size_t>(body().size(), 300))));
  }
}

bool HttpServeClient::EndsWith(std::span<const std::byte> rows) {
  return rows.size() <= body().size() &&
         std::memcmp(body().last(rows.size()).data(), rows.data(), rows.size()) == 0;
}

// The status code of the answer.
absl::StatusOr<int> HttpServeClient::Exchange(const std::string& request) {
  HPS_RETURN_IF_ERROR(socket_.Send(request));
  size_t received = 0;
  size_t end = std::string_view::npos;
  while (end == std::string_view::npos) {
    HPS_RETURN_IF_ERROR(socket_.Receive(buffer_, received));
    end = std::string_view(buffer_.data(), received).find("\r\n\r\n");
  }
  head_bytes_ = end + 4;
  HPS_ASSIGN_OR_RETURN(const HttpAnswerHead head,
                       ParseHttpAnswerHead(std::string_view(buffer_.data(), head_bytes_)));
  body_bytes_ = head.body_bytes;
  while (received < head_bytes_ + body_bytes_)
    HPS_RETURN_IF_ERROR(socket_.Receive(buffer_, received));
  return head.code;
}

namespace {

std::string EncodeHttp(std::span<const Key> keys, std::chrono::microseconds timeout) {
  const size_t bytes = keys.size_bytes();
  std::string parameters = R"("binary_data_output":true)";
  if (timeout.count() > 0) absl::StrAppend(&parameters, R"(,"timeout":)", timeout.count());
  const std::string json =
      absl::StrCat(R"({"inputs":[{"name":")", kServeTable, R"(","shape":[)", keys.size(),
                   R"(],"datatype":"INT64","parameters":{"binary_data_size":)", bytes,
                   R"(}}],"parameters":{)", parameters, "}}");
  std::string request = absl::StrCat(
      "POST /v2/models/", kServeModel, "/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n",
      "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: ", json.size(),
      "\r\nContent-Length: ", json.size() + bytes, "\r\n\r\n", json);
  const size_t at = request.size();
  request.resize(at + bytes);
  std::memcpy(request.data() + at, keys.data(), bytes);
  return request;
}

}  // namespace

ServeProtocol HttpProtocol() {
  return {.name = "http", .encode = EncodeHttp, .connect = HttpServeClient::Connect};
}

}  // namespace hps::bench
