// A server over parts that a test controls, and a client that sends exactly the bytes it is told.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/core/protocol_server.h"
#include "server/net/test_socket.h"

namespace hps::server {

// Row of `key` in the fake model: element i.
inline float FakeElement(int64_t key, size_t i) {
  return static_cast<float>(key % 1000003) * 8.0f + static_cast<float>(i);
}

// Answers "emb": KEYS (any integer type of 8 bytes) -> ROWS [n, dim] and STATUS [n].
class FakeInference final : public Inference {
 public:
  static constexpr size_t kDim = 4;

  absl::Status Prepare(InferenceCall& call) override {
    ++prepared;
    if (!prepare_error.ok()) return prepare_error;
    if (on_prepare) {
      if (absl::Status status = on_prepare(call); !status.ok()) return status;
    }
    if (call.request.model != "emb") return absl::NotFoundError("there is no such model");
    if (!call.request.version.empty() && call.request.version != "1") {
      return absl::NotFoundError("there is no such version");
    }
    if (call.request.inputs.size() != 1 || call.request.inputs[0].name != "KEYS") {
      return absl::InvalidArgumentError("the model has one input, KEYS");
    }
    const InputTensor& keys = call.request.inputs[0];
    if (DatatypeBytes(keys.datatype) != 8) return absl::InvalidArgumentError("KEYS is INT64");
    int64_t count = 1;
    for (const int64_t extent : keys.shape.values()) count *= extent;
    if (static_cast<size_t>(count) * 8 != keys.bytes.size()) {
      return absl::InvalidArgumentError("KEYS: shape and bytes differ");
    }
    std::vector<std::string_view> names(call.request.output_names.begin(),
                                        call.request.output_names.end());
    if (names.empty()) names.push_back("ROWS");
    for (const std::string_view name : names) {
      if (name != "ROWS" && name != "STATUS") return absl::NotFoundError("no such output");
      const bool rows = name == "ROWS";
      OutputTensor& output = call.outputs.emplace_back();
      output.name = rows ? "ROWS" : "STATUS";
      output.datatype = rows ? Datatype::kFp32 : Datatype::kUint8;
      output.shape.dims[output.shape.dim_count++] = count;
      if (rows) output.shape.dims[output.shape.dim_count++] = static_cast<int64_t>(dim);
      output.byte_count = static_cast<size_t>(count) * (rows ? dim * 4 : 1);
    }
    call.model_version = "1";
    body_bytes = call.request.body_bytes;
    answer_bytes = call.AnswerBytes();
    return absl::OkStatus();
  }

  void Run(InferenceCall& call) override {
    if (on_run) return on_run(call);
    Finish(call);
  }

  void Cancel(InferenceCall& call) override {
    ++cancelled;
    if (on_cancel) on_cancel(call);
  }

  bool HasRoom() const override { return has_room; }

  Duration TimeFor(Duration timeout) const override { return timeout; }

  absl::Status ReserveBytes(uint64_t byte_count, Admission::Reservation* reservation) override {
    if (on_reserve) on_reserve();
    return admission.ReserveBytes(byte_count, reservation);
  }

  // What Run does when no test has said otherwise.
  void Finish(InferenceCall& call) const {
    const InputTensor& keys = call.request.inputs[0];
    for (OutputTensor& output : call.outputs) {
      if (dim > kDim) {  // only large answers are wanted, and at once
        std::memset(output.data, 0, output.byte_count);
        continue;
      }
      for (size_t k = 0; k < keys.bytes.size() / 8; ++k) {
        const auto key = LoadLittleEndian<int64_t>(keys.bytes.data() + k * 8);
        if (output.datatype == Datatype::kUint8) {
          output.data[k] = std::byte{2};
          continue;
        }
        for (size_t i = 0; i < dim; ++i) {
          StoreLittleEndian(output.data + (k * dim + i) * 4, FakeElement(key, i));
        }
      }
    }
    call.OnDone(absl::OkStatus());
  }

  Admission admission{{.keys_max = 0, .bytes_max = uint64_t{1} << 20, .calls_max = 0}};
  std::atomic<bool> has_room = true;
  size_t dim = kDim;
  absl::Status prepare_error;
  std::function<absl::Status(InferenceCall&)> on_prepare;
  std::function<void(InferenceCall&)> on_run;
  std::function<void(InferenceCall&)> on_cancel;
  std::function<void()> on_reserve;
  std::atomic<size_t> prepared = 0;
  std::atomic<size_t> cancelled = 0;
  std::atomic<uint64_t> body_bytes = 0;    // of the last call
  std::atomic<uint64_t> answer_bytes = 0;  // of the last call
};

class FakeRepository final : public ModelRepository {
 public:
  std::vector<ModelIndexEntry> Index() const override {
    return {
        {.name = "emb", .version = "1", .state = ModelState::kReady, .reason = ""},
        {.name = "off", .version = "", .state = ModelState::kUnavailable, .reason = "unloaded"}};
  }
  absl::StatusOr<ModelMetadata> Metadata(std::string_view model,
                                         std::string_view version) const override {
    if (model != "emb" || !(version.empty() || version == "1")) {
      return absl::NotFoundError("there is no such model");
    }
    ModelMetadata metadata;
    metadata.name = "emb";
    metadata.version = "1";
    metadata.tables = {{.name = "emb/KEYS", .dim = 4}};
    metadata.inputs = {{.name = "KEYS", .datatype = Datatype::kInt64, .shape = {-1}},
                       {.name = "NUMKEYS", .datatype = Datatype::kInt32, .shape = {1, 1}}};
    metadata.outputs = {{.name = "ROWS", .datatype = Datatype::kFp32, .shape = {-1, 4}}};
    return metadata;
  }
  bool ServerReady() const override { return ready; }
  absl::Status Load(std::string_view model) override {
    ++loads;
    if (on_load) on_load();
    return model == "emb" ? absl::OkStatus() : absl::NotFoundError("there is no such model");
  }
  absl::Status Unload(std::string_view) override { return absl::OkStatus(); }

  std::atomic<bool> ready = true;
  std::atomic<int> loads = 0;
  std::function<void()> on_load;
};

class FakePages final : public PageSource {
 public:
  absl::StatusOr<Page> Get(std::string_view path, std::string_view query) override {
    if (path == "/metrics")
      return Page{.content_type = "text/plain", .fixed = "up 1\n", .made = {}};
    if (path == "/") {
      return Page{.content_type = "text/html", .fixed = {}, .made = std::string(5000, 'x')};
    }
    if (path == "/api/echo") {
      return Page{.content_type = "application/json", .fixed = {}, .made = std::string(query)};
    }
    return absl::NotFoundError("there is no such page");
  }
};

class FakeStatistics final : public StatisticsSource {
 public:
  ServerStatistics Snapshot() const override {
    ServerStatistics statistics;
    ModelServerStatistics& model = statistics.models.emplace_back();
    model.model = "emb";
    model.version = "1";
    model.requests = 7;
    model.requests_failed = 2;
    model.failed_ns = 3000;
    model.batch_sizes = {{1, 5}};
    model.batch_lookup_ns = {700};
    return statistics;
  }
};

struct HttpReply {
  int code = 0;
  std::string head;
  std::string body;
  std::map<std::string, std::string> fields;  // names in lower case
};

// A blocking socket; every wait ends after a minute, which fails the test.
class HttpClient {
 public:
  explicit HttpClient(const std::string& address) : socket_(address, std::chrono::minutes(1)) {}

  bool connected() const { return socket_.connected(); }
  int fd() const { return socket_.fd(); }
  void Close() { socket_.Close(); }
  void EndSending() { shutdown(fd(), SHUT_WR); }
  bool Send(std::string_view bytes) { return socket_.Send(bytes); }

  // More bytes into the buffer; false at the end, or after a minute.
  bool Receive() { return socket_.Receive(&buffer_) == TestSocket::Got::kBytes; }

  // The next answer; code 0 when the connection ended before one.
  HttpReply Read(bool has_body = true) {
    HttpReply reply;
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Receive()) return reply;
    }
    reply.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    size_t at = reply.head.find("\r\n") + 2;
    while (at < reply.head.size()) {
      const size_t colon = reply.head.find(": ", at);
      const size_t stop = reply.head.find("\r\n", at);
      std::string name = reply.head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      reply.fields[name] = reply.head.substr(colon + 2, stop - colon - 2);
      at = stop + 2;
    }
    const int code = std::stoi(reply.head.substr(9, 3));
    if (has_body && reply.fields.contains("content-length")) {
      const size_t size = std::stoull(reply.fields["content-length"]);
      while (buffer_.size() < size) {
        if (!Receive()) return reply;
      }
      reply.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    }
    reply.code = code;
    return reply;
  }

  // Whether the server has closed, with nothing more to read.
  bool AtEnd() { return buffer_.empty() && !Receive() && buffer_.empty(); }

  HttpReply Ask(std::string_view bytes, bool has_body = true) {
    Send(bytes);
    return Read(has_body);
  }

 private:
  TestSocket socket_;
  std::string buffer_;
};

inline std::string Get(std::string_view path, std::string_view fields = "") {
  return absl::StrCat("GET ", std::string(path), " HTTP/1.1\r\nHost: localhost\r\n",
                      std::string(fields), "\r\n");
}

inline std::string Post(std::string_view path, std::string_view body,
                        std::string_view fields = "") {
  return absl::StrCat("POST ", std::string(path),
                      " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(), "\r\n",
                      std::string(fields), "\r\n", std::string(body));
}

inline constexpr std::string_view kInferPath = "/v2/models/emb/infer";

// Binary in, binary out.
inline std::string BinaryInfer(const std::vector<int64_t>& keys) {
  const size_t bytes = keys.size() * 8;
  const std::string json =
      absl::StrCat(R"({"id":"a","inputs":[{"name":"KEYS","shape":[)", keys.size(),
                   R"(],"datatype":"INT64","parameters":{"binary_data_size":)", bytes,
                   R"(}}],"parameters":{"binary_data_output":true}})");
  std::string body = json;
  for (const int64_t key : keys) {
    std::array<char, 8> text;
    StoreLittleEndian(text.data(), key);
    body.append(text.data(), text.size());
  }
  return Post(kInferPath, body,
              absl::StrCat("Inference-Header-Content-Length: ", json.size(), "\r\n"));
}

inline std::string JsonInfer(std::string_view keys, std::string_view count,
                             std::string_view more = "") {
  return Post(kInferPath, absl::StrCat(R"({"inputs":[{"name":"KEYS","shape":[)", std::string(count),
                                       R"(],"datatype":"INT64","data":)", std::string(keys), "}]",
                                       std::string(more), "}"));
}

inline float RowElement(const std::string& bytes, size_t index) {
  return LoadLittleEndian<float>(bytes.data() + index * 4);
}

// Of a list of ServerStatistics.
inline uint64_t CountOf(std::string_view reason,
                        const std::vector<std::pair<std::string, uint64_t>>& counts) {
  for (const auto& [name, count] : counts) {
    if (name == reason) return count;
  }
  return 0;
}

class HttpWorld : public testing::Test {
 protected:
  HttpWorld() {
    config_.threads = 3;
    parts_ = {.config = &config_,
              .inference = &inference_,
              .repository = &repository_,
              .pages = &pages_,
              .statistics = &statistics_,
              .counters = &counters_};
  }

  void Start(HttpRole role = HttpRole::kEverything) {
    absl::StatusOr<std::unique_ptr<ProtocolServer>> server =
        StartHttpServer(parts_, "127.0.0.1:0", role);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::unique_ptr<HttpClient> Connect() {
    if (server_ == nullptr) Start();
    auto client = std::make_unique<HttpClient>(server_->address());
    EXPECT_TRUE(client->connected());
    return client;
  }

  HttpReply Ask(std::string_view bytes) { return Connect()->Ask(bytes); }

  ServerStatistics Counted() const {
    ServerStatistics statistics;
    counters_.Fill(&statistics);
    return statistics;
  }
  uint64_t BadRequests(std::string_view reason) const {
    return CountOf(reason, Counted().bad_requests);
  }
  uint64_t Refused(std::string_view reason) const { return CountOf(reason, Counted().refused); }

  ServerConfig config_;
  FakeInference inference_;
  FakeRepository repository_;
  FakePages pages_;
  FakeStatistics statistics_;
  ServerCounters counters_;
  ProtocolParts parts_;
  std::unique_ptr<ProtocolServer> server_;
};

}  // namespace hps::server
