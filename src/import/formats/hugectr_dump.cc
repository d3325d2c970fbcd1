#include "import/formats/hugectr_dump.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/macros.h"
#include "hps/table_spec.h"

namespace hps {
namespace {

constexpr std::array<char, 4> kMagic = {'b', 'i', 'n', '\0'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 16;
// Approximate size of one read.
constexpr size_t kPieceBytes = size_t{256} << 10;

struct DumpHeader {
  uint32_t key_bytes = 0;
  uint32_t row_bytes = 0;
};

absl::Status Bad(const File& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", what));
}

absl::StatusOr<DumpHeader> ReadHeader(const File& file) {
  if (file.bytes_at_open() < kHeaderBytes) {
    return Bad(file, absl::StrCat("expected a header of ", kHeaderBytes, " bytes, found ",
                                  file.bytes_at_open(), " bytes"));
  }
  std::array<std::byte, kHeaderBytes> bytes{};
  HPS_RETURN_IF_ERROR(file.ReadAt(0, bytes));
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return Bad(file, "expected a HugeCTR dump, whose first bytes are \"bin\"");
  const auto version = LoadLittleEndian<uint32_t>(&bytes[4]);
  if (version != kVersion)
    return Bad(file, absl::StrCat("expected version ", kVersion, ", found ", version));
  const DumpHeader header{.key_bytes = LoadLittleEndian<uint32_t>(&bytes[8]),
                          .row_bytes = LoadLittleEndian<uint32_t>(&bytes[12])};
  if (header.key_bytes == sizeof(int64_t) || header.key_bytes == sizeof(uint32_t)) return header;
  return Bad(file, absl::StrCat("expected keys of 8 or 4 bytes, found ", header.key_bytes));
}

absl::StatusOr<TableShape> ShapeOf(const File& file, const DumpHeader& header,
                                   std::optional<uint32_t> dim) {
  const uint64_t data_bytes = file.bytes_at_open() - kHeaderBytes;
  TableShape shape{.row_count = 0, .dim = 0, .dtype = Dtype::kFloat32};
  if (header.row_bytes == 0) {  // HugeCTR writes 0 for an empty table
    if (data_bytes != 0) return Bad(file, "expected no records with a row size of 0");
    if (!dim.has_value()) return Bad(file, "the table is empty, so its dim must be given (--dim)");
    shape.dim = *dim;
    return shape;
  }
  if (header.row_bytes % sizeof(float) != 0 || header.row_bytes / sizeof(float) > kDimMax) {
    return Bad(file, absl::StrCat("expected rows of 1 to ", kDimMax, " float32, found ",
                                  header.row_bytes, " bytes"));
  }
  const uint64_t record_bytes = uint64_t{header.key_bytes} + header.row_bytes;
  if (data_bytes % record_bytes != 0) {
    return Bad(file,
               absl::StrCat("expected records of ", record_bytes, " bytes, found ",
                            data_bytes % record_bytes, " bytes after the last complete record"));
  }
  shape.row_count = data_bytes / record_bytes;
  shape.dim = static_cast<uint32_t>(header.row_bytes / sizeof(float));
  if (!dim.has_value() || *dim == shape.dim) return shape;
  return Bad(file, absl::StrCat("expected dim ", *dim, ", found ", shape.dim));
}

class DumpReader final : public TableReader {
 public:
  DumpReader(File file, const DumpHeader& header, const TableShape& shape)
      : file_(std::move(file)),
        key_bytes_(header.key_bytes),
        record_bytes_(key_bytes_ + static_cast<size_t>(shape.row_bytes())),
        shape_(shape) {}

  const TableShape& shape() const override { return shape_; }
  uint64_t data_bytes() const override { return shape_.row_count * record_bytes_; }
  const std::string& keys_path() const override { return file_.path(); }

  absl::Status ReadKeys(uint64_t first_row, std::span<Key> keys) const override {
    return ForEachRecord(first_row, keys.size(), [&](size_t row, const std::byte* record) {
      keys[row] = key_bytes_ == sizeof(Key) ? LoadLittleEndian<Key>(record)
                                            : Key{LoadLittleEndian<uint32_t>(record)};
    });
  }

  absl::Status ReadRows(uint64_t first_row, std::span<std::byte> rows) const override {
    const auto row_bytes = static_cast<size_t>(shape_.row_bytes());
    return ForEachRecord(first_row, rows.size() / row_bytes,
                         [&](size_t row, const std::byte* record) {
                           std::memcpy(&rows[row * row_bytes], record + key_bytes_, row_bytes);
                         });
  }

 private:
  template <typename Use>
  absl::Status ForEachRecord(uint64_t first_row, size_t count, Use use) const {
    HPS_CHECK(first_row <= shape_.row_count && count <= shape_.row_count - first_row);
    const size_t piece_rows = std::max<size_t>(1, kPieceBytes / record_bytes_);
    std::vector<std::byte> piece(std::min(piece_rows, count) * record_bytes_);
    for (size_t done = 0; done < count;) {
      const size_t rows = std::min(piece_rows, count - done);
      HPS_RETURN_IF_ERROR(file_.ReadAt(kHeaderBytes + (first_row + done) * record_bytes_,
                                       std::span(piece.data(), rows * record_bytes_)));
      for (size_t i = 0; i < rows; ++i) use(done + i, &piece[i * record_bytes_]);
      done += rows;
    }
    return absl::OkStatus();
  }

  const File file_;
  const size_t key_bytes_;
  const size_t record_bytes_;
  const TableShape shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableReader>> OpenHugectrDump(const std::string& path,
                                                             std::optional<uint32_t> dim) {
  HPS_ASSIGN_OR_RETURN(File file, File::OpenForReading(path));
  HPS_ASSIGN_OR_RETURN(const DumpHeader header, ReadHeader(file));
  HPS_ASSIGN_OR_RETURN(const TableShape shape, ShapeOf(file, header, dim));
  return std::make_unique<DumpReader>(std::move(file), header, shape);
}

}  // namespace hps
