#include "tests/faults/reference_reader.h"

#include <nlohmann/json.hpp>

#include <regex>
#include <vector>

#include "base/bytes.h"

namespace hps {
namespace {

std::optional<ReferenceTable> Assemble(const std::vector<Key>& keys, std::string_view rows,
                                       uint64_t dim, const std::string& element) {
  ReferenceTable table{.dim = dim, .element = element};
  const uint64_t row_bytes = dim * (element == "f4" ? 4 : 2);
  if (dim == 0 || rows.size() != keys.size() * row_bytes) return std::nullopt;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string row(rows.substr(i * row_bytes, row_bytes));
    if (!table.rows.emplace(keys[i], row).second) return std::nullopt;
  }
  return table;
}

// Integers of `key_bytes` bytes each, widened.
std::vector<Key> Widen(std::string_view bytes, size_t key_bytes, bool is_signed) {
  std::vector<Key> keys;
  for (size_t at = 0; at + key_bytes <= bytes.size(); at += key_bytes) {
    if (key_bytes == 8) {
      keys.push_back(LoadLittleEndian<Key>(bytes.data() + at));
    } else if (is_signed) {
      keys.push_back(LoadLittleEndian<int32_t>(bytes.data() + at));
    } else {
      keys.push_back(LoadLittleEndian<uint32_t>(bytes.data() + at));
    }
  }
  return keys;
}

struct NpyArray {
  std::string descr;
  std::vector<uint64_t> shape;
  std::string_view data;
};

std::optional<NpyArray> ReadNpy(std::string_view file) {
  if (file.size() < 10 || file.substr(0, 6) != "\x93NUMPY") return std::nullopt;
  const bool version1 = file[6] == 1;
  if (!version1 && file.size() < 12) return std::nullopt;
  const uint64_t length = version1 ? LoadLittleEndian<uint16_t>(file.data() + 8)
                                   : LoadLittleEndian<uint32_t>(file.data() + 8);
  const size_t begin = version1 ? 10 : 12;
  if (file.size() - begin < length) return std::nullopt;
  const std::string header(file.substr(begin, length));
  std::smatch match;
  NpyArray array{.data = file.substr(begin + length)};
  if (!std::regex_search(header, match, std::regex("['\"]descr['\"]\\s*:\\s*['\"]([^'\"]*)['\"]")))
    return std::nullopt;
  array.descr = match[1];
  if (!std::regex_search(header, std::regex("['\"]fortran_order['\"]\\s*:\\s*False")))
    return std::nullopt;
  if (!std::regex_search(header, match, std::regex("['\"]shape['\"]\\s*:\\s*\\(([^)]*)\\)")))
    return std::nullopt;
  const std::string numbers = match[1];
  const std::regex number("[0-9]+");
  for (std::sregex_iterator it(numbers.begin(), numbers.end(), number), end; it != end; ++it) {
    if (it->str().size() > 18) return std::nullopt;
    array.shape.push_back(std::stoull(it->str()));
  }
  return array;
}

struct Tensor {
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string_view data;
};

std::optional<Tensor> TakeTensor(const nlohmann::json& header, const char* name,
                                 std::string_view data) {
  if (!header.is_object() || !header.contains(name)) return std::nullopt;
  const nlohmann::json& entry = header[name];
  Tensor tensor{.dtype = entry.at("dtype").get<std::string>(),
                .shape = entry.at("shape").get<std::vector<uint64_t>>()};
  const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size())
    return std::nullopt;
  tensor.data = data.substr(offsets[0], offsets[1] - offsets[0]);
  return tensor;
}

}  // namespace

std::optional<ReferenceTable> ReadReferenceHugectr(std::string_view keys, std::string_view rows) {
  const uint64_t count = keys.size() / 8;
  if (keys.size() % 8 != 0 || count == 0 || rows.size() % (count * 4) != 0) return std::nullopt;
  return Assemble(Widen(keys, 8, true), rows, rows.size() / count / 4, "f4");
}

std::optional<ReferenceTable> ReadReferenceNpy(std::string_view keys, std::string_view rows) {
  const std::optional<NpyArray> key_array = ReadNpy(keys);
  const std::optional<NpyArray> row_array = ReadNpy(rows);
  if (!key_array.has_value() || !row_array.has_value()) return std::nullopt;
  static const std::map<std::string, std::pair<size_t, bool>> kKeyTypes = {
      {"<i8", {8, true}}, {"<u8", {8, false}}, {"<i4", {4, true}}, {"<u4", {4, false}}};
  const auto key_type = kKeyTypes.find(key_array->descr);
  if (key_type == kKeyTypes.end() || key_array->shape.size() != 1) return std::nullopt;
  const auto [key_bytes, is_signed] = key_type->second;
  if (key_array->data.size() != key_array->shape[0] * key_bytes) return std::nullopt;
  const std::string& descr = row_array->descr;
  const std::string element = descr == "<f4" ? "f4" : descr == "<f2" ? "f2" : "";
  if (element.empty() || row_array->shape.size() != 2) return std::nullopt;
  if (row_array->shape[0] != key_array->shape[0]) return std::nullopt;
  return Assemble(Widen(key_array->data, key_bytes, is_signed), row_array->data,
                  row_array->shape[1], element);
}

std::optional<ReferenceTable> ReadReferenceSafetensors(std::string_view file) {
  if (file.size() < 8) return std::nullopt;
  const uint64_t length = LoadLittleEndian<uint64_t>(file.data());
  if (length > file.size() - 8) return std::nullopt;
  const std::string_view text = file.substr(8, length);
  // nlohmann throws on what is not JSON or not of the type asked for.
  try {
    const nlohmann::json header = nlohmann::json::parse(text.begin(), text.end());
    const auto keys = TakeTensor(header, "keys", file.substr(8 + length));
    const auto rows = TakeTensor(header, "rows", file.substr(8 + length));
    if (!keys.has_value() || !rows.has_value()) return std::nullopt;
    static const std::map<std::string, std::pair<size_t, bool>> kKeyTypes = {
        {"I64", {8, true}}, {"U64", {8, false}}, {"I32", {4, true}}, {"U32", {4, false}}};
    static const std::map<std::string, std::string> kRowTypes = {
        {"F32", "f4"}, {"F16", "f2"}, {"BF16", "bf16"}};
    if (!kKeyTypes.contains(keys->dtype) || !kRowTypes.contains(rows->dtype)) return std::nullopt;
    const auto [key_bytes, is_signed] = kKeyTypes.at(keys->dtype);
    if (keys->shape.size() != 1 || rows->shape.size() != 2) return std::nullopt;
    if (keys->data.size() != keys->shape[0] * key_bytes) return std::nullopt;
    if (rows->shape[0] != keys->shape[0]) return std::nullopt;
    return Assemble(Widen(keys->data, key_bytes, is_signed), rows->data, rows->shape[1],
                    kRowTypes.at(rows->dtype));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace hps
