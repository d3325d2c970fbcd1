// The dense network of the DLRM that `hps bench ctr` measures, with random weights.
//
// 13 numbers go through an MLP of 512, 256 and `dim` units; the dot products of its output and the
// rows of all tables with each other go, with that output, through one of 512, 512, 256 and 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hps/model_network.h"

namespace hps::bench {

inline constexpr size_t kCtrDense = 13;
inline constexpr char kCtrDenseInput[] = "dense";

// Its inputs are `dense` [batch, 13] and, for table number i of name `tables[i]`, the rows
// [batch, dim]; its one output is [batch, 1].
ModelNetwork MakeCtrNetwork(const std::vector<std::string>& tables, uint32_t dim);

}  // namespace hps::bench
