#include "import/npy.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersion1PreambleBytes = 10;  // magic, version, length of the rest

}  // namespace

std::string FormatNpyHeader(std::string_view descr, std::span<const uint64_t> shape) {
  std::string numbers;
  for (const uint64_t number : shape) absl::StrAppend(&numbers, number, ", ");
  // A tuple of one keeps its comma.
  numbers.resize(numbers.size() - (shape.size() == 1 ? 1 : 2));
  std::string dictionary =
      absl::StrCat("{'descr': '", absl::string_view(descr.data(), descr.size()),
                   "', 'fortran_order': False, 'shape': (", numbers, "), }");
  constexpr size_t kDictionaryBytes = kNpyWrittenHeaderBytes - kVersion1PreambleBytes;
  HPS_CHECK(dictionary.size() < kDictionaryBytes);
  dictionary.resize(kDictionaryBytes - 1, ' ');
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(kDictionaryBytes), '\x00'};
  return header + dictionary + '\n';
}

}  // namespace hps
