// Generates synthetic tables, whose rows are a known function of table and key, and power-law
// requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/transfer.h"
#include "hps/types.h"

namespace hps {

struct GenerateRequest {
  std::string out;  // directory, created; one sub-folder per table, named t0, t1, ...
  uint32_t tables = 1;
  uint64_t rows = 0;  // over all tables; sizes fall off by a power law
  uint32_t dim = 16;
  double alpha = 1.2;  // exponent of the request stream; the sizes fall five times as steeply
  uint64_t seed = 1;
  TableFormat format = TableFormat::kHugectr;
  uint64_t requests = 1000;  // lines of the request stream
  ProgressFunction progress{};
};

// Errors: INVALID_ARGUMENT (names the value and its valid range).
absl::Status ValidateGenerateRequest(const GenerateRequest& request);

// Writes the tables and `requests.npy` ([requests, tables], int64: one key per table and request).
// Errors: INVALID_ARGUMENT, ALREADY_EXISTS (the directory is not empty), RESOURCE_EXHAUSTED.
absl::Status GenerateTables(const GenerateRequest& request);

// Computes the float32 row of `key` in table number `table`.
void PlantedRow(uint64_t seed, uint32_t table, Key key, std::span<float> row);

}  // namespace hps
