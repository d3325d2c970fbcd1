// The real model of $HPS_REAL_DATA/onnx (dlrm.onnx, and dlrm_expected.csv with its scores),
// divided: its dense network, the rows of each sample, and the scores that are expected.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "network/onnx/model.h"
#include "network/onnx/split.h"

namespace hps {

struct RealModel {
  std::string network;                               // an ONNX file
  std::map<std::string, std::vector<float>> inputs;  // by name, [samples, ...]
  std::vector<float> scores;
};

// Columns of a CSV file with a line of names.
inline std::map<std::string, std::vector<double>> ReadColumns(const std::string& path) {
  std::ifstream file(path);
  std::string line, cell;
  std::getline(file, line);
  std::vector<std::string> names;
  for (std::istringstream cells(line); std::getline(cells, cell, ',');) names.push_back(cell);
  std::map<std::string, std::vector<double>> columns;
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    for (const std::string& name : names) {
      std::getline(cells, cell, ',');
      columns[name].push_back(std::stod(cell));
    }
  }
  return columns;
}

// NOT_FOUND if $HPS_REAL_DATA does not name a directory with the model.
inline absl::StatusOr<RealModel> ReadRealModel() {
  const char* const root = std::getenv("HPS_REAL_DATA");
  const std::string folder = std::string(root == nullptr ? "/none" : root) + "/onnx";
  HPS_ASSIGN_OR_RETURN(const OnnxModel model, OnnxModel::Read(folder + "/dlrm.onnx", {}));
  HPS_ASSIGN_OR_RETURN(const OnnxSplit split, SplitOnnx(model));
  const auto columns = ReadColumns(folder + "/dlrm_expected.csv");
  RealModel real{.network = split.network};
  std::vector<float>& dense = real.inputs["continuous_features"];
  const std::vector<double>& scores = columns.at("score");
  for (size_t i = 0; i < scores.size(); ++i) {
    real.scores.push_back(static_cast<float>(scores[i]));
    dense.push_back(static_cast<float>(columns.at("mean_rating")[i]));
    dense.push_back(static_cast<float>(columns.at("count")[i]));
  }
  const char* const keys_of[] = {"user", "item"};
  for (size_t t = 0; t < split.tables.size() && t < 2; ++t) {
    const OnnxSplitTable& table = split.tables[t];
    std::vector<float>& rows = real.inputs[table.network_input];
    for (const double key : columns.at(keys_of[t])) {
      for (uint32_t e = 0; e < table.dim; ++e) {
        const size_t at = static_cast<size_t>(key) * table.dim + e;
        rows.push_back(LoadLittleEndian<float>(table.rows.data() + at * sizeof(float)));
      }
    }
  }
  return real;
}

}  // namespace hps
