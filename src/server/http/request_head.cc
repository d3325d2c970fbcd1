#include "server/http/request_head.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "boost/beast/http/basic_parser.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/field.hpp"
#include "boost/beast/http/verb.hpp"

namespace hps::server {
namespace {

constexpr size_t kLastChunkBytes = 5;

namespace http = boost::beast::http;
using BeastError = boost::beast::error_code;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string_view NextToken(std::string_view* list) {
  const size_t comma = std::min(list->find(','), list->size());
  const std::string_view token = Trim(list->substr(0, comma));
  list->remove_prefix(std::min(comma + 1, list->size()));
  return token;
}

Coding CodingOf(std::string_view name) {
  if (EqualIgnoringCase(name, "identity") || name.empty()) return Coding::kIdentity;
  if (EqualIgnoringCase(name, "gzip") || EqualIgnoringCase(name, "x-gzip")) return Coding::kGzip;
  return EqualIgnoringCase(name, "deflate") ? Coding::kDeflate : Coding::kUnknown;
}

// The first coding of the list that the server has and the client did not exclude.
Coding AcceptedCoding(std::string_view list) {
  while (!list.empty()) {
    const std::string_view token = NextToken(&list);
    const size_t semicolon = std::min(token.find(';'), token.size());
    const Coding coding = CodingOf(Trim(token.substr(0, semicolon)));
    std::string_view quality = token.substr(semicolon);
    quality.remove_prefix(std::min(quality.find("q="), quality.size()));
    const bool excluded =
        quality.size() > 2 && quality.substr(2).find_first_not_of("0. ") == std::string_view::npos;
    if (!excluded && (coding == Coding::kGzip || coding == Coding::kDeflate)) return coding;
  }
  return Coding::kIdentity;
}

bool ParseLength(std::string_view text, uint64_t* value) {
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

void SetError(HttpError* error, int code, const char* message,
              BadRequestReason reason = BadRequestReason::kProtocol) {
  *error = {.code = code, .message = message, .reason = reason, .allow = {}};
}

void Explain(const BeastError& failure, HttpError* error) {
  if (failure == http::error::bad_version) {
    return SetError(error, 505, "the server speaks HTTP/1.1 and HTTP/1.0");
  }
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    return SetError(error, 431, "the request's head is too large", BadRequestReason::kLimit);
  }
  *error = {.code = 400,
            .message = "the request is not HTTP/1.1: " + failure.message(),
            .reason = BadRequestReason::kProtocol,
            .allow = {}};
}

void SetTarget(std::string_view target, RequestHead* head) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
    if (target.empty()) target = "/";
  }
  const size_t end = std::min(target.find('?'), target.size());
  head->path = target.substr(0, end);
  head->query = target.substr(std::min(end + 1, target.size()));
}

}  // namespace

std::optional<size_t> HeadEnd::Find(std::string_view text, HttpError* error) {
  for (;;) {
    const size_t end = text.find('\n', seen_);
    if (end == std::string_view::npos || end >= kHeadBytesMax) {
      seen_ = text.size();
      if (text.size() < kHeadBytesMax) return std::nullopt;
      SetError(error, 431, "the request's head is larger than 16 KiB", BadRequestReason::kLimit);
      return std::nullopt;
    }
    if (end == line_begin_ || text[end - 1] != '\r') {
      SetError(error, 400, "a line of the request's head ends without CR");
      return std::nullopt;
    }
    const bool empty = end == line_begin_ + 1;
    if (line_begin_ > 0 && (text[line_begin_] == ' ' || text[line_begin_] == '\t')) {
      SetError(error, 400, "a line of the request's head is folded");
      return std::nullopt;
    }
    seen_ = line_begin_ = end + 1;
    if (empty) return end + 1;
  }
}

// What the parser's callbacks leave for the functions below.
class RequestParser::Impl final : public http::basic_parser<true> {
 public:
  explicit Impl() {
    eager(false);
    header_limit(kHeadBytesMax);
    body_limit(boost::none);
  }

  RequestHead* head = nullptr;
  HttpError* error = nullptr;
  bool refused = false;  // by a callback, which has explained why in `error`
  uint64_t bytes_max = 0;
  uint64_t body_bytes = 0;
  size_t chunk_count = 0;
  std::string_view chunk_data;

 private:
  void Refuse(BeastError& failure, int code, const char* message,
              BadRequestReason reason = BadRequestReason::kProtocol) {
    SetError(error, code, message, reason);
    refused = true;
    failure = http::error::bad_value;
  }

  void on_request_impl(http::verb verb, boost::beast::string_view, boost::beast::string_view target,
                       int version, BeastError& failure) override {
    head->method = verb == http::verb::get    ? Method::kGet
                   : verb == http::verb::head ? Method::kHead
                   : verb == http::verb::post ? Method::kPost
                                              : Method::kOther;
    SetTarget(View(target), head);
    is_1_1_ = version == 11;
    head->is_1_0 = !is_1_1_;
    if (head->query.size() > kQueryBytesMax) {
      Refuse(failure, 400, "the query is larger than 4 KiB", BadRequestReason::kLimit);
    }
  }

  void on_response_impl(int, boost::beast::string_view, int, BeastError&) override {}

  void on_field_impl(http::field field, boost::beast::string_view name,
                     boost::beast::string_view value, BeastError& failure) override {
    if (head == nullptr) return;  // a trailer
    OnField(field, View(name), Trim(View(value)), failure);
  }

  void OnField(http::field field, std::string_view name, std::string_view value,
               BeastError& failure) {
    switch (field) {
      case http::field::host:
        if (std::exchange(has_host_, true)) Refuse(failure, 400, "the request has two Host fields");
        return;
      case http::field::content_length:
        if (std::exchange(has_length_, true) || !ParseLength(value, &head->content_length)) {
          Refuse(failure, 400, "Content-Length is not one number");
        }
        return;
      case http::field::transfer_encoding:
        if (has_length_ || head->chunked || !is_1_1_) {
          return Refuse(failure, 400, "Transfer-Encoding beside another framing of the body");
        }
        head->chunked = true;
        if (!EqualIgnoringCase(value, "chunked")) {
          Refuse(failure, 501, "the only Transfer-Encoding that the server knows is chunked");
        }
        return;
      case http::field::content_encoding:
        // Two fields are two codings, one over the other.
        head->content_coding =
            std::exchange(has_coding_, true) ? Coding::kUnknown : CodingOf(value);
        return;
      case http::field::accept_encoding:
        head->accepted_coding = AcceptedCoding(value);
        return;
      case http::field::expect:
        head->expects_continue = EqualIgnoringCase(value, "100-continue");
        head->expects_other = !head->expects_continue;
        return;
      case http::field::authorization:
        if (std::exchange(has_authorization_, true)) {
          return Refuse(failure, 400, "the request has two Authorization fields");
        }
        head->authorization = value;
        return;
      default:
        break;
    }
    if (!EqualIgnoringCase(name, "Inference-Header-Content-Length")) return;
    uint64_t bytes = 0;
    if (head->json_bytes || !ParseLength(value, &bytes)) {
      return Refuse(failure, 400, "Inference-Header-Content-Length is not one number");
    }
    head->json_bytes = bytes;
  }

  void on_header_impl(BeastError& failure) override {
    head->keep_alive = keep_alive();
    if (is_1_1_ && !has_host_) Refuse(failure, 400, "the request has no Host field");
    head = nullptr;
  }

  void on_body_init_impl(const boost::optional<uint64_t>&, BeastError&) override {}
  size_t on_body_impl(boost::beast::string_view body, BeastError&) override { return body.size(); }

  void on_chunk_header_impl(uint64_t size, boost::beast::string_view extension,
                            BeastError& failure) override {
    // Beast lets a bare LF pass in a quoted string: another parser would end the line there.
    if (std::any_of(extension.begin(), extension.end(), IsControl)) {
      return Refuse(failure, 400, "a chunk's extension has a control character");
    }
    if (++chunk_count > kChunksMax) {
      return Refuse(failure, 413, "the body has more than 65,536 chunks", BadRequestReason::kLimit);
    }
    if (size > bytes_max || body_bytes > bytes_max - size) {
      return Refuse(failure, 413, "the body is larger than the server takes",
                    BadRequestReason::kLimit);
    }
    body_bytes += size;
  }

  size_t on_chunk_body_impl(uint64_t, boost::beast::string_view body, BeastError&) override {
    chunk_data = View(body);
    return body.size();
  }

  void on_finish_impl(BeastError&) override {}

  bool is_1_1_ = false;
  bool has_host_ = false;
  bool has_length_ = false;
  bool has_coding_ = false;
  bool has_authorization_ = false;
};

RequestParser::RequestParser() = default;
RequestParser::~RequestParser() = default;

void RequestParser::Destroy::operator()(Impl* impl) const { std::destroy_at(impl); }

bool RequestParser::ParseHead(std::string_view text, RequestHead* head, HttpError* error) {
  static_assert(sizeof(Impl) <= kImplBytes);
  impl_.reset();
  impl_.reset(new (memory_.data()) Impl);
  *head = RequestHead();
  impl_->head = head;
  impl_->error = error;
  BeastError failure;
  while (!impl_->is_header_done()) {
    const size_t used = impl_->put(boost::asio::const_buffer(text.data(), text.size()), failure);
    text.remove_prefix(used);
    if (failure && failure != http::error::need_more) break;
    if (failure == http::error::need_more && used == 0) break;
  }
  if (!failure) return true;
  if (!impl_->refused) Explain(failure, error);
  return false;
}

bool RequestParser::ParseChunk(std::string_view text, uint64_t bytes_max, ChunkStep* step,
                               HttpError* error) {
  *step = ChunkStep();
  // Beast (Boost 1.81) aborts the process if it comes back to a last chunk of which it has seen
  // less than the whole, "0" and two line ends: BOOST_ASSERT(n >= 5) in parse_chunk_header. No body
  // has fewer bytes left.
  if (text.size() < kLastChunkBytes && text.starts_with('0')) {
    step->needs_more = true;
    return true;
  }
  impl_->error = error;
  impl_->bytes_max = bytes_max;
  impl_->chunk_data = {};
  BeastError failure;
  step->consumed = impl_->put(boost::asio::const_buffer(text.data(), text.size()), failure);
  step->data = impl_->chunk_data;
  step->finished = impl_->is_done();
  step->needs_more = failure == http::error::need_more || text.empty();
  if (!failure || failure == http::error::need_more) return true;
  if (!impl_->refused) Explain(failure, error);
  return false;
}

}  // namespace hps::server
