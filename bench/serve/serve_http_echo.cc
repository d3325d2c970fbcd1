// An echo over HTTP by Boost.Beast: the bound of what a server has to add.
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bench/serve/serve_client.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/span_body.hpp"
#include "boost/beast/http/string_body.hpp"
#include "boost/beast/http/write.hpp"

namespace hps::bench {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

class EchoSession : public std::enable_shared_from_this<EchoSession> {
 public:
  EchoSession(asio::ip::tcp::socket socket, std::span<const char> body)
      : socket_(std::move(socket)) {
    response_.body() = {body.data(), body.size()};
    response_.keep_alive(true);
    response_.prepare_payload();
  }

  void Read() {
    request_ = {};
    http::async_read(socket_, buffer_, request_,
                     [self = shared_from_this()](boost::system::error_code error, size_t) {
                       if (!error) self->Write();
                     });
  }

 private:
  void Write() {
    http::async_write(socket_, response_,
                      [self = shared_from_this()](boost::system::error_code error, size_t) {
                        if (!error) self->Read();
                      });
  }

  asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::span_body<const char>> response_;
};

class HttpEcho {
 public:
  HttpEcho(size_t body_bytes, size_t threads)
      : body_(body_bytes, 'x'), acceptor_(context_, {asio::ip::make_address("127.0.0.1"), 0}) {
    Accept();
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { context_.run(); });
  }

  uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code error, asio::ip::tcp::socket socket) {
      if (error) return;
      socket.set_option(asio::ip::tcp::no_delay(true), error);
      std::make_shared<EchoSession>(std::move(socket), body_)->Read();
      Accept();
    });
  }

  const std::vector<char> body_;
  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<uint16_t> StartHttpEcho(size_t body_bytes, size_t threads) {
  try {
    static const auto* const kEcho = new HttpEcho(body_bytes, threads);
    return kEcho->port();
  } catch (const std::exception& error) {
    return absl::UnavailableError(std::string("bench serve: the HTTP echo: ") + error.what());
  }
}

}  // namespace hps::bench
