#include "import/default_row.h"

#include <cmath>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "import/formats/npy_table.h"
#include "types/elements.h"

namespace hps {
namespace {

std::string LargestFinite(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "3.4028235e38";
    case Dtype::kFloat16:
      return "65504";
    case Dtype::kBfloat16:
      return "3.3895314e38";
  }
  return "unknown";
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> RequestedDefaultRow(const ImportRequest& request,
                                                           const TableSpec& spec) {
  if (request.default_file.has_value())
    return ReadNpyRow(*request.default_file, spec.dim, spec.dtype);
  if (request.default_value == 0.0) return std::vector<std::byte>();
  const std::vector<float> row(spec.dim, static_cast<float>(request.default_value));
  std::vector<std::byte> converted(spec.row_bytes());
  const ElementCounts counts =
      ConvertElements(Dtype::kFloat32, std::as_bytes(std::span(row)), spec.dtype, converted);
  const bool fits_float = std::isfinite(row[0]) == std::isfinite(request.default_value);
  if (fits_float && counts.overflowed == 0) return converted;
  return absl::InvalidArgumentError(
      absl::StrCat("the default value ", PrintDouble(request.default_value), " of table '",
                   spec.name, "' exceeds the range of ", std::string(DtypeName(spec.dtype)),
                   ", whose largest finite value is ", LargestFinite(spec.dtype)));
}

}  // namespace hps
