#include "types/row_convert.h"

#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace hps {
namespace {

template <typename Convert>
void ConvertElements(const std::byte* from, size_t element_count, std::byte* to, Convert convert) {
  for (size_t i = 0; i < element_count; ++i) {
    const auto element = LoadLittleEndian<uint16_t>(from + i * sizeof(uint16_t));
    StoreLittleEndian(to + i * sizeof(uint32_t), convert(element));
  }
}

// From the last to the first, so that no element is overwritten before it is read.
template <typename Convert>
void ConvertElementsInPlace(size_t element_count, std::byte* row, Convert convert) {
  for (size_t i = element_count; i-- > 0;) {
    const auto element = LoadLittleEndian<uint16_t>(row + i * sizeof(uint16_t));
    StoreLittleEndian(row + i * sizeof(uint32_t), convert(element));
  }
}

}  // namespace

void ConvertToFloat32(Dtype dtype, const std::byte* from, size_t element_count, std::byte* to) {
  switch (dtype) {
    case Dtype::kFloat32:
      std::memcpy(to, from, element_count * sizeof(float));
      return;
    case Dtype::kFloat16:
      ConvertElements(from, element_count, to, [](uint16_t x) { return Float16ToFloat32Bits(x); });
      return;
    case Dtype::kBfloat16:
      ConvertElements(from, element_count, to, [](uint16_t x) { return Bfloat16ToFloat32Bits(x); });
      return;
  }
}

void ConvertToFloat32InPlace(Dtype dtype, size_t element_count, std::byte* row) {
  switch (dtype) {
    case Dtype::kFloat32:
      return;
    case Dtype::kFloat16:
      ConvertElementsInPlace(element_count, row,
                             [](uint16_t x) { return Float16ToFloat32Bits(x); });
      return;
    case Dtype::kBfloat16:
      ConvertElementsInPlace(element_count, row,
                             [](uint16_t x) { return Bfloat16ToFloat32Bits(x); });
      return;
  }
}

}  // namespace hps
