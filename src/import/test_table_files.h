// A fixture of tests that import tables: writes small ones of each kind of file.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/transfer.h"
#include "import/formats/test_files.h"
#include "testing/test_directory.h"

namespace hps {

class TableFilesTest : public testing::Test {
 protected:
  static constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

  void WriteHugectr(const std::string& name, size_t rows, size_t dim) const {
    directory_.Write(name + "/key", BytesOf(std::vector<int64_t>(rows)));
    directory_.Write(name + "/emb_vector", BytesOf(std::vector<float>(rows * dim)));
  }
  void WriteNpy(const std::string& name, const std::string& descr, size_t row_bytes) const {
    directory_.Write(name + "/keys.npy", NpyBytes("<i8", "(1,)", std::string(8, 'x')));
    directory_.Write(name + "/rows.npy", NpyBytes(descr, "(1, 2)", std::string(row_bytes, 'x')));
  }
  void WriteSafetensors(const std::string& name) const {
    directory_.Write(name, SafetensorsBytes("{" + TensorJson("keys", "I64", "1", "0,8") + "," +
                                                TensorJson("rows", "F16", "1,3", "8,14") + "}",
                                            std::string(14, 'x')));
  }
  ImportRequest Request(const std::string& from) const {
    return {.name = "m/t", .from = directory_.Path(from)};
  }
  static void ExpectError(const absl::Status& status, absl::StatusCode code,
                          const std::string& text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }

  const TestDirectory directory_;
};

}  // namespace hps
