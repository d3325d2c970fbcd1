// The HTTP half of serve_client.h: a blocking client over one socket that is kept open.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "bench/serve/serve_client.h"
#include "bench/serve/serve_http_head.h"
#include "bench/serve/serve_socket.h"
#include "bench/serve/serve_world.h"

namespace hps::bench {
namespace {

class HttpServeClient final : public ServeClient {
 public:
  static absl::StatusOr<std::unique_ptr<ServeClient>> Connect(const std::string& address) {
    HPS_ASSIGN_OR_RETURN(ServeSocket socket, ServeSocket::Connect(address));
    return std::make_unique<HttpServeClient>(std::move(socket));
  }
  explicit HttpServeClient(ServeSocket socket)
      : socket_(std::move(socket)), buffer_(size_t{1} << 18) {}

  absl::StatusOr<Answer> Ask(const std::string& request) override {
    HPS_ASSIGN_OR_RETURN(const int code, Exchange(request));
    switch (code) {
      case 200:
        return Answer::kRows;
      case 429:
        return Answer::kRefused;
      case 504:
        return Answer::kLate;
      default:
        return absl::InternalError(absl::StrCat(
            "bench serve: HTTP ", code, ": ",
            std::string(buffer_.data() + head_bytes_, std::min<size_t>(body_bytes_, 300))));
    }
  }
  bool EndsWith(std::span<const std::byte> rows) override {
    return rows.size() <= body_bytes_ &&
           std::memcmp(buffer_.data() + head_bytes_ + body_bytes_ - rows.size(), rows.data(),
                       rows.size()) == 0;
  }
  size_t answer_bytes() const override { return body_bytes_; }

 private:
  // The status code of the answer.
  absl::StatusOr<int> Exchange(std::string_view request) {
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

  ServeSocket socket_;
  std::vector<char> buffer_;
  size_t head_bytes_ = 0;
  size_t body_bytes_ = 0;
};

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
