// A store with a table, and a server that says what a test wants of itself.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "hps/store.h"
#include "server/core/model_repository.h"
#include "server/core/protocol_server.h"
#include "server/pages/snapshot.h"

namespace hps::server {

class FakePageStatistics final : public StatisticsSource {
 public:
  ServerStatistics Snapshot() const override {
    ++asked;
    return statistics;
  }

  ServerStatistics statistics;
  mutable int asked = 0;
};

class FakePageRepository final : public ModelRepository {
 public:
  std::vector<ModelIndexEntry> Index() const override { return index; }
  absl::StatusOr<ModelMetadata> Metadata(std::string_view, std::string_view) const override {
    return absl::UnimplementedError("not for pages");
  }
  bool ServerReady() const override { return true; }
  absl::Status Load(std::string_view) override { return absl::UnimplementedError("not for pages"); }
  absl::Status Unload(std::string_view) override {
    return absl::UnimplementedError("not for pages");
  }

  std::vector<ModelIndexEntry> index = {{.name = "m", .version = "1", .state = ModelState::kReady}};
};

// Table m/t: keys -1, 0, 7 and the minimum; row i is {i, i + 0.5}, but that of 7 is {NaN, -inf}.
class PagesWorld : public testing::Test {
 protected:
  PagesWorld() : directory_(testing::TempDir() + "pages_" + std::to_string(getpid())) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ + "/t");
    const std::vector<Key> keys = {-1, 0, 7, std::numeric_limits<Key>::min()};
    const std::vector<float> rows = {0.0F, 0.5F, 1.0F, 1.5F, std::nanf(""), -INFINITY, 3.0F, 3.5F};
    Write(directory_ + "/t/key", keys.data(), keys.size() * sizeof(Key));
    Write(directory_ + "/t/emb_vector", rows.data(), rows.size() * sizeof(float));
    config_.store.path = directory_ + "/store";
    auto store = Store::Open(config_, OpenMode::kCreate);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    const auto imported = store_->Import({.name = "m/t", .from = directory_ + "/t", .dim = 2});
    EXPECT_TRUE(imported.ok()) << imported.status();
  }
  ~PagesWorld() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  const std::string directory_;
  Config config_;
  std::unique_ptr<Store> store_;
  FakePageStatistics statistics_;
  FakePageRepository repository_;

 private:
  static void Write(const std::string& path, const void* from, size_t bytes) {
    std::string content(bytes, '\0');
    std::memcpy(content.data(), from, bytes);
    std::ofstream(path, std::ios::binary) << content;
  }
};

// Every part of a snapshot with numbers that differ.
inline Snapshot FullSnapshot(const Config* config) {
  Snapshot snapshot = {.config = config};
  ServerStatistics& server = snapshot.server;
  server.start_unix_ms = 1'700'000'000'000;
  server.ready = true;
  server.ready_after_seconds = 0.25;
  server.http.requests = 11;
  server.grpc.requests = 12;
  server.keys_in_flight = 13;
  server.refused = {{"capacity", 3}, {"draining", 1}};
  server.bad_requests = {{"syntax", 4}};
  server.deadlines_exceeded = {{"queue", 2}};
  server.auth_failures = 5;
  server.certificate_not_after = 1'800'000'000;
  ModelServerStatistics& model = server.models.emplace_back();
  model.model = "m";
  model.version = "3";
  model.requests = 20;
  model.requests_failed = 1;
  model.keys = 300;
  model.batches = 9;
  model.network = {.on_devices = 4, .on_cpu = 2, .device_failures = 1};
  model.queue_depth = 6;
  model.batch_sizes = {{1, 5}, {2, 3}, {4, 1}};
  model.batch_lookup_ns = {50, 30, 10};
  LatencyHistogram& total = model.stages[static_cast<size_t>(Stage::kTotal)];
  total.counts[4] = 5;   // until 50 us
  total.counts[9] = 10;  // until 1 ms
  total.counts.back() = 1;
  total.count = 16;
  total.sum_ns = 2'500'000'000;
  TableStatistics& table = snapshot.store.tables.emplace_back();
  table.name = "m/t";
  table.keys.by_status = {1, 2, 3, 4, 5, 6};
  table.l1_devices = {{.device = 0, .hits = 70, .misses = 30}};
  table.l1 = {.entries = 40, .bytes_used = 4000};
  snapshot.store.devices = {{.device = 0, .up = true}};
  snapshot.store.l1_bytes_max = 7000;
  snapshot.store.l2_bytes_max = 8000;
  table.l2 = {.entries = 50, .bytes_used = 5000, .bytes_max = 6000, .evictions = 8, .errors = 2};
  snapshot.store.l3 = {.damaged_reads = 2,
                       .background_errors = 1,
                       .free_bytes = 1 << 20,
                       .merges = 7,
                       .merged_bytes = 4096,
                       .merges_failed = 2};
  table.l2.errors_by_code[static_cast<size_t>(absl::StatusCode::kDeadlineExceeded)] = 1;
  snapshot.store.l3_errors = 7;
  ErrorCounts& l3_errors = snapshot.store.l3_errors_by_code;
  l3_errors[static_cast<size_t>(absl::StatusCode::kDataLoss)] = 4;
  l3_errors[static_cast<size_t>(absl::StatusCode::kUnavailable)] = 2;
  l3_errors[static_cast<size_t>(absl::StatusCode::kUnknown)] = 1;
  TableInfo& info = snapshot.tables.emplace_back();
  info.spec = {.name = "m/t", .dim = 2};
  info.row_count = 1000;
  info.bytes = 9000;
  snapshot.models = {{.name = "m", .version = "3", .state = ModelState::kReady},
                     {.name = "n", .state = ModelState::kUnavailable, .reason = "no \"tables\""}};
  snapshot.process = {.cpu_seconds = 1.5, .resident_bytes = 77};
  snapshot.log.written = {0, 1, 2, 3};
  snapshot.unix_ms = 1'700'000'060'000;
  return snapshot;
}

}  // namespace hps::server
