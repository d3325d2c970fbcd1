// The bound of every look-up in host memory: copying rows whose addresses are known.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hps::bench {

// One way to write a gather; which is fastest depends on the machine, the row and the batch.
struct GatherShape {
  size_t ahead = 32;       // rows whose lines are asked for before the one that is copied
  bool streaming = false;  // stores that pass the caches by
};

// All that are worth a try on this machine.
std::vector<GatherShape> GatherShapes();

// Copies rows[i] to out + i * row_bytes. REQUIRES: rows and out are aligned to 64 bytes and
// row_bytes is a multiple of 64.
void Gather(std::span<const std::byte* const> rows, size_t row_bytes, std::byte* out,
            GatherShape shape);

}  // namespace hps::bench
