#include "server/http/request_head.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "boost/beast/http/basic_parser.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/field.hpp"
#include "boost/beast/http/verb.hpp"
#include "server/http/host.h"

namespace hps::server {
namespace {

constexpr size_t kLastChunkBytes = 5;

namespace http = boost::beast::http;
using BeastError = boost::beast::error_code;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

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

template <typename T, typename... Base>
bool ParseNumber(std::string_view text, T* value, Base... base) {
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), *value, base...);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// The weight of an element of Accept-Encoding; 0 also for one that is no number from 0 to 1.
float WeightOf(std::string_view element) {
  const std::string_view parameter = Trim(element.substr(element.rfind(';') + 1));
  if (!parameter.starts_with("q=") && !parameter.starts_with("Q=")) return 1;
  float weight = 0;
  const bool is_number = ParseNumber(parameter.substr(2), &weight);
  return is_number && weight > 0 && weight <= 1 ? weight : 0;
}

void SetError(HttpError* error, int code, const char* message,
              BadRequestReason reason = BadRequestReason::kProtocol) {
  *error = {.code = code, .message = message, .reason = reason, .allow = {}};
}

void SetTargetTooLong(HttpError* error) {
  *error = {
      .code = 414,
      .message = absl::StrCat("the request's target is larger than ", kTargetBytesMax, " bytes"),
      .reason = BadRequestReason::kLimit,
      .allow = {}};
}

void Explain(const BeastError& failure, HttpError* error) {
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    return SetError(error, 431, "the request's head is too large", BadRequestReason::kLimit);
  }
  *error = {.code = 400,
            .message = "the request is not HTTP/1.1: " + failure.message(),
            .reason = BadRequestReason::kProtocol,
            .allow = {}};
}

bool IsVersion(std::string_view text) {
  const auto is_digit = [&](size_t at) {
    return absl::ascii_isdigit(static_cast<unsigned char>(text[at]));
  };
  return text.size() == 8 && text.starts_with("HTTP/") && is_digit(5) && text[6] == '.' &&
         is_digit(7);
}

Method MethodOf(std::string_view name) {
  if (name == "GET") return Method::kGet;
  if (name == "HEAD") return Method::kHead;
  if (name == "POST") return Method::kPost;
  for (const std::string_view known : {"PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}) {
    if (name == known) return Method::kOther;
  }
  return Method::kUnknown;
}

// Decodes "%6d" in place, once. An encoded "/" stays as it is: it is part of a segment, and no name
// has one. Nullopt: a "%" without two digits, or a control character. Else the new length.
std::optional<size_t> DecodePath(std::span<char> path) {
  size_t length = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    path[length] = path[i];
    if (path[i] == '%') {
      uint8_t byte = 0;
      if (path.size() - i < 3 || !ParseNumber(std::string_view(&path[i + 1], 2), &byte, 16) ||
          absl::ascii_iscntrl(byte)) {
        return std::nullopt;
      }
      if (byte != '/') {
        path[length] = static_cast<char>(byte);
        i += 2;
      }
    }
    ++length;
  }
  return length;
}

// False: `error` says why.
bool ReadTarget(std::span<char> target, RequestHead* head, HttpError* error) {
  if (target.size() > kTargetBytesMax) {
    SetTargetTooLong(error);
    return false;
  }
  const std::string_view text(target.data(), target.size());
  size_t path_begin = 0;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualIgnoringCase(text.substr(0, scheme.size()), scheme)) continue;
    path_begin = std::min(text.find_first_of("/?", scheme.size()), text.size());
    const size_t host_bytes = path_begin - scheme.size();
    if (!ParseHost(text.substr(scheme.size(), host_bytes), &head->host) || head->host.empty()) {
      SetError(error, 400, "the request's target has no valid host");
      return false;
    }
  }
  const size_t path_end = std::min(text.find('?', path_begin), text.size());
  const std::optional<size_t> length =
      DecodePath(target.subspan(path_begin, path_end - path_begin));
  if (!length) {
    SetError(error, 400, "the path has an invalid percent-encoding");
    return false;
  }
  head->path = path_begin > 0 && *length == 0 ? "/" : text.substr(path_begin, *length);
  head->query = text.substr(std::min(path_end + 1, text.size()));
  return true;
}

}  // namespace

std::optional<size_t> HeadEnd::Find(std::string_view text, HttpError* error) {
  for (;;) {
    const size_t end = text.find('\n', seen_);
    if (end == std::string_view::npos || end >= kHeadBytesMax) {
      seen_ = text.size();
      if (text.size() < kHeadBytesMax) return std::nullopt;
      if (line_begin_ == 0 && text.substr(0, kHeadBytesMax).find(' ') != std::string_view::npos) {
        SetTargetTooLong(error);
      } else {
        SetError(error, 431, "the request's head is larger than 16 KiB", BadRequestReason::kLimit);
      }
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

// What all Accept-Encoding fields of a request say of each coding (RFC 9110 12.5.3).
class CodingWeights {
 public:
  void Add(std::string_view list) {
    while (!list.empty()) {
      const std::string_view element = NextToken(&list);
      const std::string_view name = Trim(element.substr(0, element.find(';')));
      const Coding coding = CodingOf(name);
      if (name == "*") {
        other_ = WeightOf(element);
      } else if (!name.empty() && coding != Coding::kUnknown) {
        weights_[static_cast<size_t>(coding)] = WeightOf(element);
      }
    }
  }

  // The coding of the highest weight; of equal ones gzip, then deflate. Nothing that is not named
  // is used, but for identity, which comes last then.
  Coding best() const {
    const Coding packed =
        of(Coding::kGzip) >= of(Coding::kDeflate) ? Coding::kGzip : Coding::kDeflate;
    const bool is_used = of(packed) > 0 && of(packed) >= of(Coding::kIdentity);
    return is_used ? packed : Coding::kIdentity;
  }
  bool refuses_identity() const { return of(Coding::kIdentity) == 0; }

 private:
  static constexpr float kUnnamed = -1;

  float of(Coding coding) const {
    const float weight = weights_[static_cast<size_t>(coding)];
    return weight == kUnnamed ? other_ : weight;
  }

  std::array<float, 3> weights_ = {kUnnamed, kUnnamed, kUnnamed};
  float other_ = kUnnamed;  // of "*"
};

// What the parser's callbacks leave for the functions below.
class RequestParser::Impl final : public http::basic_parser<true> {
 public:
  explicit Impl() {
    eager(false);
    header_limit(kHeadBytesMax);
    body_limit(boost::none);
  }

  std::span<char> text;  // of the head
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

  void on_request_impl(http::verb, boost::beast::string_view method,
                       boost::beast::string_view target, int version,
                       BeastError& failure) override {
    head->method = MethodOf(View(method));
    head->is_1_0 = version == 10;
    const auto target_begin = static_cast<size_t>(target.data() - text.data());
    refused = !ReadTarget(text.subspan(target_begin, target.size()), head, error);
    if (refused) failure = http::error::bad_value;
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
        return OnHost(value, failure);
      case http::field::content_length:
        if (std::exchange(has_.length, true) || !ParseNumber(value, &head->content_length)) {
          Refuse(failure, 400, "Content-Length is not one number");
        }
        return;
      case http::field::transfer_encoding:
        if (has_.length || head->chunked || head->is_1_0) {
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
            std::exchange(has_.coding, true) ? Coding::kUnknown : CodingOf(value);
        return;
      case http::field::accept_encoding:
        accepted_codings_.Add(value);
        return;
      case http::field::expect:
        head->expectation = EqualIgnoringCase(value, "100-continue") ? Expectation::kContinue
                                                                     : Expectation::kUnknown;
        return;
      case http::field::authorization:
        if (std::exchange(has_.authorization, true)) {
          return Refuse(failure, 400, "the request has two Authorization fields");
        }
        head->authorization = value;
        return;
      default:
        break;
    }
    if (!EqualIgnoringCase(name, "Inference-Header-Content-Length")) return;
    uint64_t bytes = 0;
    if (head->json_bytes || !ParseNumber(value, &bytes)) {
      return Refuse(failure, 400, "Inference-Header-Content-Length is not one number");
    }
    head->json_bytes = bytes;
  }

  // The host of a target in absolute form counts, not the field (RFC 9112 3.2.2).
  void OnHost(std::string_view value, BeastError& failure) {
    std::string_view name;
    if (std::exchange(has_.host, true)) {
      return Refuse(failure, 400, "the request has two Host fields");
    }
    if (!ParseHost(value, &name)) {
      return Refuse(failure, 400, "the Host field is not a host: expected NAME or NAME:PORT");
    }
    if (head->host.empty()) head->host = name;
  }

  void on_header_impl(BeastError& failure) override {
    head->keep_alive = keep_alive();
    head->accepted_coding = accepted_codings_.best();
    head->refuses_identity = accepted_codings_.refuses_identity();
    if (!head->is_1_0 && !has_.host) Refuse(failure, 400, "the request has no Host field");
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

  CodingWeights accepted_codings_;
  struct {
    bool host = false;
    bool length = false;
    bool coding = false;
    bool authorization = false;
  } has_;  // of the fields
};

RequestParser::RequestParser() = default;
RequestParser::~RequestParser() = default;

void RequestParser::Destroy::operator()(Impl* impl) const { std::destroy_at(impl); }

bool RequestParser::ParseHead(std::span<char> text, RequestHead* head, HttpError* error) {
  static_assert(sizeof(Impl) <= kImplBytes);
  impl_.reset();
  impl_.reset(new (memory_.data()) Impl);
  *head = RequestHead();
  impl_->head = head;
  impl_->error = error;
  impl_->text = text;
  const std::string_view all(text.data(), text.size());
  const std::string_view line = all.substr(0, all.find("\r\n"));
  const std::string_view version = line.substr(line.rfind(' ') + 1);
  if (IsVersion(version) && version[5] != '1') {
    SetError(error, 505, "the server speaks HTTP/1.1 and HTTP/1.0");
    return false;
  }
  // A higher minor version is read as the highest one that is known (RFC 9110 2.5).
  if (IsVersion(version) && version[7] > '1') text[line.size() - 1] = '1';
  BeastError failure;
  impl_->put(boost::asio::const_buffer(text.data(), text.size()), failure);
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
