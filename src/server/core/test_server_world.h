// What the server's tests work with: a real store in a temporary directory whose rows tell which
// table, key and version they belong to, a server core over it, and calls made by hand.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "hps/store.h"
#include "server/core/inference_call.h"
#include "server/core/protocol_server.h"
#include "server/core/server_core.h"
#include "testing/await.h"

namespace hps::server {

// A call whose answer the test waits for and looks at.
class TestCall final : public InferenceCall {
 public:
  ~TestCall() override { Reset(); }

  uint64_t AnswerBytes() const override { return TensorBytes(); }
  void OnDone(const absl::Status& status) override {
    status_ = status;
    ++done_count_;
    done_.CountDown();
  }

  // Keys as the bytes of an input. They must live until the call is reset.
  void AddKeys(std::string_view table, const std::vector<Key>& keys) {
    AddTensor(table, Datatype::kInt64, {std::ssize(keys)}, std::as_bytes(std::span(keys)));
  }
  void AddTensor(std::string_view name, Datatype datatype, const std::vector<int64_t>& dims,
                 std::span<const std::byte> bytes) {
    InputTensor& input = request.inputs.emplace_back();
    input.name = name;
    input.datatype = datatype;
    input.bytes = bytes;
    for (const int64_t dim : dims) input.shape.dims[input.shape.dim_count++] = dim;
  }

  // Prepare, and the outputs' memory.
  absl::Status Prepare(Inference& inference) {
    if (absl::Status status = inference.Prepare(*this); !status.ok()) return status;
    done_.Reset(1);
    size_t bytes = 0;
    for (const OutputTensor& output : outputs) bytes += output.byte_count + 64;
    memory_.assign(bytes / sizeof(float) + 1, -1.0F);
    std::byte* next = std::as_writable_bytes(std::span(memory_)).data();
    for (OutputTensor& output : outputs) {
      output.data = next;
      next += (output.byte_count + 63) / 64 * 64;
    }
    return absl::OkStatus();
  }
  // Run of a call that is prepared, with outputs that have their memory; waits for the end.
  absl::Status RunPrepared(Inference& inference) {
    done_.Reset(1);
    inference.Run(*this);
    EXPECT_TRUE(Await());
    return status_;
  }
  // Prepare and Run.
  absl::Status Start(Inference& inference) {
    if (absl::Status status = Prepare(inference); !status.ok()) return status;
    inference.Run(*this);
    return absl::OkStatus();
  }
  // Start, and waits for the end.
  absl::Status Answer(Inference& inference) {
    if (absl::Status status = Start(inference); !status.ok()) return status;
    EXPECT_TRUE(Await());
    return status_;
  }
  // Reset, of what the test sees too.
  void ResetAll() {
    Reset();
    done_count_ = 0;
  }
  testing::AssertionResult Await() { return AwaitLatch(done_); }
  bool is_done() const { return done_.IsOpen(); }
  const absl::Status& status() const { return status_; }
  int done_count() const { return done_count_; }

  std::span<const std::byte> bytes(size_t output) const {
    return {outputs[output].data, outputs[output].byte_count};
  }

 private:
  Latch done_;
  absl::Status status_ = absl::UnknownError("not done");
  std::atomic<int> done_count_ = 0;
  std::vector<float> memory_;
};

class ServerWorld {
 public:
  ServerWorld() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hps_server_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    config_.store.path = directory_ + "/store";
    config_.l2.bytes_max = uint64_t{64} << 20;
    config_.l2.huge_pages = false;
    config_.server.lookups = 2;
    config_.server.threads = 4;
    config_.lookup.timeout = std::chrono::minutes(1);
  }
  ~ServerWorld() {
    core_.reset();
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  Config& config() { return config_; }
  Store& store() { return *store_; }
  ServerCore& core() { return *core_; }
  Inference& inference() { return core_->engine(); }
  // For a protocol. `inference`: null = the core's own.
  ProtocolParts Parts(Inference* inference = nullptr) {
    return {.config = &config_.server,
            .inference = inference == nullptr ? &core_->engine() : inference,
            .repository = &core_->repository(),
            .pages = nullptr,
            .statistics = core_.get(),
            .counters = &core_->counters()};
  }

  // Imports "model/table" with keys 0 to n - 1, rows stamped with its stamp and `version`. Staged
  // when the store is open.
  void Import(const std::string& table, size_t n, uint32_t dim, Version version = 1) {
    const std::string path = NewDirectory() + table.substr(table.find('/') + 1);
    WriteTable(path, table, n, dim, version);
    const auto report = ImportTables(config_, {.name = table, .from = path, .dim = dim});
    ASSERT_TRUE(report.ok()) << report.status();
  }

  // The same for tables of one model, all at once.
  void ImportModel(const std::string& model, const std::vector<std::string>& tables, size_t n,
                   uint32_t dim, Version version) {
    const std::string path = NewDirectory();
    for (const std::string& table : tables)
      WriteTable(path + table, model + "/" + table, n, dim, version);
    const auto report = ImportTables(config_, {.name = model, .from = path, .dim = dim});
    ASSERT_TRUE(report.ok()) << report.status();
  }

  // As Import of each (at most once in a process: then the store is copied). REQUIRES: no store
  // yet.
  struct Table {
    std::string name;
    size_t row_count = 0;
    uint32_t dim = 0;
  };
  void ImportAll(const std::vector<Table>& tables) {
    static TemporaryStores made;
    std::string recipe;
    for (const Table& table : tables)
      recipe +=
          table.name + ":" + std::to_string(table.row_count) + "x" + std::to_string(table.dim);
    std::string& path = made.paths[recipe];
    if (path.empty()) {
      for (const Table& table : tables) Import(table.name, table.row_count, table.dim);
      path = directory_ + "_template";
      std::filesystem::copy(config_.store.path, path, std::filesystem::copy_options::recursive);
    } else {
      std::filesystem::copy(path, config_.store.path, std::filesystem::copy_options::recursive);
    }
  }

  void OpenStore() {
    auto store = Store::Open(config_, OpenMode::kServe);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // `life_cycle` = the store's, or a test's own over it.
  void Start(ModelManager& life_cycle, const ServerCore::Options& options = {}) {
    auto core = ServerCore::Create(config_, life_cycle, options);
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    const absl::Status loaded = core_->LoadAll();
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  void Start() {
    OpenStore();
    Start(store_->models());
  }
  void Stop() { core_.reset(); }
  void CloseStore() { store_.reset(); }

  // Whether row `key` of "model/table" is what Import wrote.
  static bool IsRow(const std::string& table, Key key, Version version,
                    std::span<const std::byte> row) {
    for (size_t i = 0; i < row.size() / sizeof(float); ++i) {
      float element = 0;
      std::memcpy(&element, &row[i * sizeof(float)], sizeof(element));
      if (element != Element(table, key, version, i)) return false;
    }
    return true;
  }
  static bool IsZero(std::span<const std::byte> row) {
    for (const std::byte byte : row) {
      if (byte != std::byte{0}) return false;
    }
    return true;
  }

 private:
  // Stores to copy, until the process ends.
  struct TemporaryStores {
    ~TemporaryStores() {
      for (const auto& [recipe, path] : paths) std::filesystem::remove_all(path);
    }
    std::map<std::string, std::string> paths;
  };

  // A whole number that a float holds exactly, and no two of a test's are the same.
  static float Element(const std::string& table, Key key, Version version, size_t i) {
    uint64_t x = std::hash<std::string>()(table) + static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15 +
                 version * 0xa0761d6478bd642f + i * 0xe7037ed1a0b428db;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    return static_cast<float>(1 + ((x ^ (x >> 29)) & 0x7fffff));
  }

  std::string NewDirectory() { return directory_ + "/files" + std::to_string(++files_) + "/"; }

  static void WriteTable(const std::string& path, const std::string& table, size_t n, uint32_t dim,
                         Version version) {
    std::filesystem::create_directories(path);
    std::vector<Key> keys(n);
    std::iota(keys.begin(), keys.end(), Key{0});
    std::vector<float> rows;
    for (const Key key : keys) {
      for (uint32_t i = 0; i < dim; ++i) rows.push_back(Element(table, key, version, i));
    }
    WriteFile(path + "/key", std::as_bytes(std::span(keys)));
    WriteFile(path + "/emb_vector", std::as_bytes(std::span(rows)));
  }

  static void WriteFile(const std::string& path, std::span<const std::byte> bytes) {
    std::vector<char> chars(bytes.size());
    if (!bytes.empty()) std::memcpy(chars.data(), bytes.data(), bytes.size());
    std::ofstream(path, std::ios::binary).write(chars.data(), std::ssize(chars));
  }

  std::string directory_;
  Config config_;
  int files_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ServerCore> core_;
};

}  // namespace hps::server
