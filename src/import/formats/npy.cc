#include "import/formats/npy.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kVersion1PreambleBytes = 10;  // magic, version, length of the rest
constexpr size_t kVersion2PreambleBytes = 12;

// Parses the subset of Python's literals that headers use.
class DictionaryParser {
 public:
  explicit DictionaryParser(std::string_view text) : text_(text) {}

  absl::StatusOr<NpyHeader> Parse() {
    HPS_RETURN_IF_ERROR(Expect('{'));
    while (!Take('}')) {
      HPS_RETURN_IF_ERROR(ParseEntry());
      if (Take(',')) continue;
      HPS_RETURN_IF_ERROR(Expect('}'));
      break;
    }
    SkipSpace();
    if (at_ != text_.size()) return Error("the end of the header");
    if (!has_descr_ || !has_order_ || !has_shape_)
      return Error("all of 'descr', 'fortran_order' and 'shape' before");
    return std::move(header_);
  }

 private:
  absl::Status Error(const char* expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("header byte ", at_, ": expected ", expected,
                     at_ < text_.size() ? "" : ", found the end of the header"));
  }

  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char c) {
    if (Take(c)) return absl::OkStatus();
    const std::array<char, 4> quoted = {'\'', c, '\'', '\0'};
    return Error(quoted.data());
  }

  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  absl::StatusOr<std::string> ParseString() {
    SkipSpace();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      return Error("a quoted string");
    const char quote = text_[at_++];
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return Error("a closing quote");
    return std::string(text_.substr(std::exchange(at_, end + 1), end - at_));
  }

  absl::StatusOr<uint64_t> ParseNumber() {
    SkipSpace();
    std::optional<uint64_t> number;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      number = CheckedMultiply(number.value_or(0), 10);
      if (number.has_value()) number = CheckedAdd(*number, static_cast<uint64_t>(text_[at_] - '0'));
      if (!number.has_value()) return Error("a number of at most 64 bits");
    }
    if (!number.has_value()) return Error("a number that is not negative");
    return *number;
  }

  absl::Status ParseShape() {
    HPS_RETURN_IF_ERROR(Expect('('));
    while (!Take(')')) {
      if (header_.shape.size() == kNpyRankMax) return Error("at most 8 dimensions");
      HPS_ASSIGN_OR_RETURN(const uint64_t number, ParseNumber());
      header_.shape.push_back(number);
      if (Take(',')) continue;
      return Expect(')');
    }
    return absl::OkStatus();
  }

  absl::Status ParseDescr() {
    SkipSpace();
    // A list describes a structured type. hps reads none; the empty descr reports it.
    if (at_ < text_.size() && text_[at_] == '[') {
      const size_t end = text_.rfind(']');
      if (end == std::string_view::npos || end < at_) return Error("a closing ']'");
      at_ = end + 1;
      return absl::OkStatus();
    }
    HPS_ASSIGN_OR_RETURN(header_.descr, ParseString());
    return absl::OkStatus();
  }

  absl::Status ParseEntry() {
    HPS_ASSIGN_OR_RETURN(const std::string name, ParseString());
    HPS_RETURN_IF_ERROR(Expect(':'));
    if (name == "descr" && !std::exchange(has_descr_, true)) return ParseDescr();
    if (name == "shape" && !std::exchange(has_shape_, true)) return ParseShape();
    if (name == "fortran_order" && !std::exchange(has_order_, true)) {
      header_.fortran_order = TakeWord("True");
      if (header_.fortran_order || TakeWord("False")) return absl::OkStatus();
      return Error("True or False");
    }
    return Error("one of 'descr', 'fortran_order' and 'shape', once each, before");
  }

  const std::string_view text_;
  size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

absl::Status HeaderError(const File& file, const std::string& expected, uint64_t found) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": expected ", expected, ", found ", found));
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyDictionary(std::string_view text) {
  return DictionaryParser(text).Parse();
}

absl::StatusOr<NpyHeader> ReadNpyHeader(const File& file) {
  const uint64_t file_bytes = file.bytes_at_open();
  std::array<std::byte, kVersion2PreambleBytes> preamble{};
  if (file_bytes < preamble.size()) {
    return HeaderError(file, absl::StrCat("an .npy file of at least ", preamble.size(), " bytes"),
                       file_bytes);
  }
  HPS_RETURN_IF_ERROR(file.ReadAt(0, preamble));
  if (AsText(std::span(preamble).first(kNpyMagic.size())) != kNpyMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": expected an .npy file, found one without its magic string"));
  }
  const auto version = std::to_integer<uint64_t>(preamble[6]);
  if (version < 1 || version > 3) return HeaderError(file, ".npy version 1, 2 or 3", version);
  const size_t preamble_bytes = version == 1 ? kVersion1PreambleBytes : kVersion2PreambleBytes;
  const uint64_t header_bytes = version == 1 ? LoadLittleEndian<uint16_t>(&preamble[8])
                                             : LoadLittleEndian<uint32_t>(&preamble[8]);
  const uint64_t header_bytes_max = std::min(kNpyHeaderBytesMax, file_bytes - preamble_bytes);
  if (header_bytes > header_bytes_max) {
    return HeaderError(file, absl::StrCat("a header of at most ", header_bytes_max, " bytes"),
                       header_bytes);
  }
  std::string text(header_bytes, '\0');
  HPS_RETURN_IF_ERROR(file.ReadAt(preamble_bytes, std::as_writable_bytes(std::span(text))));
  absl::StatusOr<NpyHeader> header = ParseNpyDictionary(text);
  if (!header.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", header.status().message()));
  }
  header->data_offset = preamble_bytes + header_bytes;
  return header;
}

absl::Status ValidateNpyData(const File& file, const NpyHeader& header, size_t element_bytes) {
  if (header.fortran_order) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": expected an array in C order, found one in Fortran order"));
  }
  std::optional<uint64_t> bytes = element_bytes;
  for (const uint64_t number : header.shape) {
    if (bytes.has_value()) bytes = CheckedMultiply(*bytes, number);
  }
  const uint64_t found = file.bytes_at_open() - header.data_offset;
  if (bytes == found) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": expected ", ShapeText(header.shape), " elements of ", element_bytes,
      " bytes = ", bytes.has_value() ? absl::StrCat(*bytes) : "more than 2^64",
      " bytes after the header, found ", found));
}

std::string ShapeText(std::span<const uint64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string FormatNpyHeader(std::string_view descr, std::span<const uint64_t> shape) {
  std::string numbers = absl::StrJoin(shape, ", ");
  if (shape.size() == 1) numbers += ',';  // a tuple of one
  std::string dictionary =
      absl::StrCat("{'descr': '", absl::string_view(descr.data(), descr.size()),
                   "', 'fortran_order': False, 'shape': (", numbers, "), }");
  constexpr size_t kDictionaryBytes = kNpyWrittenHeaderBytes - kVersion1PreambleBytes;
  HPS_CHECK(dictionary.size() < kDictionaryBytes);
  dictionary.resize(kDictionaryBytes - 1, ' ');
  std::string header(kNpyMagic);
  header += {'\x01', '\x00', static_cast<char>(kDictionaryBytes), '\x00'};
  return header + dictionary + '\n';
}

}  // namespace hps
