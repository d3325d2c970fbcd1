// libhps.so as a program in C sees it (test_c_client.c), and its answers to wrong arguments.
#include "hps/c_api.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "c_api/test_c_client.h"

namespace hps {
namespace {

class CApiTest : public testing::Test {
 protected:
  CApiTest() {
    directory_ = (std::filesystem::temp_directory_path() / "hps_c_api_XXXXXX").string();
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~CApiTest() override {
    hps_session_free(session_);
    hps_close(store_);
    std::filesystem::remove_all(directory_);
  }

  void OpenStore() {
    const hps_open_options options = {.struct_bytes = sizeof(options),
                                      .path = directory_.c_str(),
                                      .config_file = nullptr,
                                      .mode = HPS_CREATE};
    ASSERT_EQ(hps_open(&options, &store_), 0) << hps_error();
    const hps_rows rows = Rows();
    ASSERT_EQ(hps_import(store_, &rows, 0.5), 0) << hps_error();
    ASSERT_EQ(hps_session_new(store_, "m", nullptr, &session_), 0) << hps_error();
  }
  hps_rows Rows() const {
    return {.struct_bytes = sizeof(hps_rows),
            .table = "m/t",
            .keys = keys_.data(),
            .key_count = keys_.size(),
            .rows = rows_.data(),
            .dim = 2,
            .dtype = HPS_FLOAT32};
  }
  hps_table_query Query(size_t rows_bytes) {
    return {.struct_bytes = sizeof(hps_table_query),
            .table = 0,
            .keys = keys_.data(),
            .key_count = keys_.size(),
            .rows = out_.data(),
            .rows_bytes = rows_bytes,
            .row_stride_bytes = 0,
            .status = nullptr};
  }

  std::string directory_;
  hps_store* store_ = nullptr;
  hps_session* session_ = nullptr;
  std::array<int64_t, 3> keys_ = {5, -1, 3};
  std::array<float, 6> rows_ = {50, 51, -10, -11, 30, 31};
  std::array<float, 6> out_{};
};

// A busy machine may stop a lookup for longer than the default time-out.
constexpr hps_lookup_options kPatient = {.struct_bytes = sizeof(hps_lookup_options),
                                         .timeout_ns = 60'000'000'000,
                                         .hit_rate_threshold = -1,
                                         .cancel = nullptr,
                                         .is_on_device = 0,
                                         .stream = nullptr};
constexpr int kInvalidArgument = 3;
constexpr int kNotFound = 5;
constexpr int kFailedPrecondition = 9;
constexpr int kUnimplemented = 12;

TEST_F(CApiTest, AClientInC) {
  const char* failed = RunCClient((directory_ + "/store").c_str());
  EXPECT_EQ(failed, nullptr) << failed;
}

TEST_F(CApiTest, OneLookupAndItsCounts) {
  OpenStore();
  const hps_table_query query = Query(sizeof(out_));
  uint64_t counts[6] = {};
  ASSERT_EQ(hps_lookup(session_, &query, 1, &kPatient, counts), 0) << hps_error();
  EXPECT_EQ(out_, rows_);
  EXPECT_EQ(counts[2] + counts[3], 3U);
}

TEST_F(CApiTest, TablesAndCountersAreJson) {
  OpenStore();
  const hps_table_query query = Query(sizeof(out_));
  ASSERT_EQ(hps_lookup(session_, &query, 1, nullptr, nullptr), 0) << hps_error();
  char* text = nullptr;
  ASSERT_EQ(hps_tables(store_, &text), 0) << hps_error();
  const std::string tables = text;
  hps_free(text);
  EXPECT_TRUE(tables.starts_with(R"([{"name":"m/t","dim":2,"dtype":"float32","rows":3,)"))
      << tables;
  ASSERT_EQ(hps_statistics(store_, &text), 0) << hps_error();
  const std::string statistics = text;
  hps_free(text);
  EXPECT_TRUE(statistics.starts_with(R"({"lookups":1,)")) << statistics;
  EXPECT_NE(statistics.find(R"("writable":true)"), std::string::npos) << statistics;
  EXPECT_TRUE(statistics.ends_with(R"("l2_bypassed":false}]})")) << statistics;
}

TEST_F(CApiTest, ShorterStructuresOfAnOlderCallerAreTaken) {
  OpenStore();
  hps_table_query query = Query(sizeof(out_));
  query.struct_bytes = offsetof(hps_table_query, row_stride_bytes);
  ASSERT_EQ(hps_lookup(session_, &query, 1, &kPatient, nullptr), 0) << hps_error();
  EXPECT_EQ(out_, rows_);
}

// Catches: options that do not reach the import.
TEST_F(CApiTest, AnImportTakesAnIdAndWhereItsStreamBegins) {
  OpenStore();
  const hps_rows rows = Rows();
  hps_import_options options = {.struct_bytes = sizeof(options),
                                .default_value = 7,
                                .stream_from = "2023-11-14T22:13:20.500Z",
                                .import_id = "v1"};
  ASSERT_EQ(hps_import_with(store_, &rows, &options), 0) << hps_error();
  char* text = nullptr;
  ASSERT_EQ(hps_tables(store_, &text), 0) << hps_error();
  const std::string tables = text;
  hps_free(text);
  EXPECT_NE(tables.find(R"("import_id":"v1","stream_from":"2023-11-14T22:13:20.500Z")"),
            std::string::npos)
      << tables;
  EXPECT_EQ(hps_apply(store_, &rows, 0), kFailedPrecondition) << "a change would reach one node";

  options.import_id = "v2";
  options.stream_from = "latest";
  EXPECT_EQ(hps_import_with(store_, &rows, &options), kInvalidArgument) << "not the same on all";
  options.stream_from = "yesterday";
  EXPECT_EQ(hps_import_with(store_, &rows, &options), kInvalidArgument);
  EXPECT_NE(std::string(hps_error()).find("'yesterday'"), std::string::npos) << hps_error();
  options.struct_bytes = offsetof(hps_import_options, stream_from);  // of an older caller
  EXPECT_EQ(hps_import_with(store_, &rows, &options), 0) << hps_error();
  EXPECT_EQ(hps_import_with(store_, &rows, nullptr), 0) << hps_error();
}

TEST_F(CApiTest, LongerStructuresOfANewerCallerAreRefused) {
  OpenStore();
  for (const size_t bytes : {size_t{0}, size_t{7}, sizeof(hps_table_query) + 1}) {
    hps_table_query query = Query(sizeof(out_));
    query.struct_bytes = bytes;
    EXPECT_EQ(hps_lookup(session_, &query, 1, nullptr, nullptr), kInvalidArgument);
    EXPECT_NE(std::string(hps_error()).find("struct_bytes"), std::string::npos) << hps_error();
  }
}

TEST_F(CApiTest, WrongArgumentsAreNamed) {
  OpenStore();
  hps_table_query query = Query(sizeof(out_) - 1);
  EXPECT_EQ(hps_lookup(session_, &query, 1, nullptr, nullptr), kInvalidArgument);
  query = Query(sizeof(out_));
  query.keys = nullptr;
  EXPECT_EQ(hps_lookup(session_, &query, 1, nullptr, nullptr), kInvalidArgument);
  EXPECT_STREQ(hps_error(), "query.keys is null");
  EXPECT_EQ(hps_lookup(nullptr, &query, 1, nullptr, nullptr), kInvalidArgument);
  hps_rows rows = Rows();
  rows.dtype = 9;
  EXPECT_EQ(hps_import(store_, &rows, 0), kInvalidArgument);
  rows = Rows();
  rows.table = nullptr;
  EXPECT_EQ(hps_apply(store_, &rows, 0), kInvalidArgument);
  hps_session* session = nullptr;
  EXPECT_EQ(hps_session_new(store_, "n", nullptr, &session), kNotFound);
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(hps_open(nullptr, &store_), kInvalidArgument);
}

TEST_F(CApiTest, DeviceMemoryNeedsASessionOnADevice) {
  OpenStore();
  const hps_table_query query = Query(sizeof(out_));
  const hps_lookup_options options = {.struct_bytes = sizeof(options),
                                      .timeout_ns = -1,
                                      .hit_rate_threshold = -1,
                                      .cancel = nullptr,
                                      .is_on_device = 1,
                                      .stream = nullptr};
  EXPECT_EQ(hps_lookup(session_, &query, 1, &options, nullptr), kUnimplemented);
}

int EndAtOnce(void*, const int64_t*, const void*, size_t) { return 1; }

TEST_F(CApiTest, TheCallerEndsAnExport) {
  OpenStore();
  EXPECT_EQ(hps_export(store_, "m/t", EndAtOnce, nullptr), 1);
  EXPECT_EQ(hps_export(store_, "m/t", nullptr, nullptr), 3);
}

TEST_F(CApiTest, ACancelledLookupDoesNotWait) {
  OpenStore();
  hps_cancel* cancel = nullptr;
  ASSERT_EQ(hps_cancel_new(&cancel), 0);
  hps_cancel_now(cancel);
  const hps_table_query query = Query(sizeof(out_));
  hps_lookup_options options = {.struct_bytes = sizeof(options),
                                .timeout_ns = 60'000'000'000,
                                .hit_rate_threshold = -1,
                                .cancel = cancel,
                                .is_on_device = 0,
                                .stream = nullptr};
  uint64_t counts[6] = {};
  ASSERT_EQ(hps_lookup(session_, &query, 1, &options, counts), 0) << hps_error();
  EXPECT_EQ(counts[2] + counts[3] + counts[5], 3U);
  hps_cancel_reset(cancel);
  ASSERT_EQ(hps_lookup(session_, &query, 1, &options, counts), 0) << hps_error();
  EXPECT_EQ(counts[2] + counts[3], 3U);
  hps_cancel_free(cancel);
}

TEST_F(CApiTest, ErrorsBelongToTheirThread) {
  hps_store* store = nullptr;
  EXPECT_EQ(hps_open(nullptr, &store), kInvalidArgument);
  std::string of_other = "unset";
  std::thread([&] { of_other = hps_error(); }).join();
  EXPECT_EQ(of_other, "");
  EXPECT_STREQ(hps_error(), "options is null");
  EXPECT_STREQ(hps_version(), "0.1.0");
}

}  // namespace
}  // namespace hps
