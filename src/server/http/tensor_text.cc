#include "server/http/tensor_text.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "server/http/json_reader.h"

namespace hps::server {
namespace {

// BOOL as a type of its own: one byte, true or false.
enum class BoolByte : uint8_t {};

// Calls f with a value of the element's type; its result, or `otherwise` for types without text.
template <typename R, typename F>
R WithElementType(Datatype datatype, R otherwise, F&& f) {
  switch (datatype) {
    case Datatype::kBool:
      return f(BoolByte());
    case Datatype::kUint8:
      return f(uint8_t{});
    case Datatype::kUint16:
      return f(uint16_t{});
    case Datatype::kUint32:
      return f(uint32_t{});
    case Datatype::kUint64:
      return f(uint64_t{});
    case Datatype::kInt8:
      return f(int8_t{});
    case Datatype::kInt16:
      return f(int16_t{});
    case Datatype::kInt32:
      return f(int32_t{});
    case Datatype::kInt64:
      return f(int64_t{});
    case Datatype::kFp32:
      return f(float{});
    case Datatype::kFp64:
      return f(double{});
    default:
      return otherwise;
  }
}

template <typename T>
bool ParseFloat(std::string_view text, T* value) {
  if (text.ends_with("y") || text.ends_with("N")) {  // Infinity, NaN
    *value = text.ends_with("N")   ? std::numeric_limits<T>::quiet_NaN()
             : text.front() == '-' ? -std::numeric_limits<T>::infinity()
                                   : std::numeric_limits<T>::infinity();
    return true;
  }
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  if (result.ec == std::errc::result_out_of_range) {
    // The grammar is known to be right: too large is refused, too small is zero.
    double wide = 0;
    const std::from_chars_result again =
        std::from_chars(text.data(), text.data() + text.size(), wide);
    if (again.ec == std::errc() && wide > -1 && wide < 1) {
      *value = static_cast<T>(wide);
      return true;
    }
    return false;
  }
  return result.ec == std::errc();
}

template <typename T>
bool ReadElement(JsonReader& json, T* value) {
  if constexpr (std::is_same_v<T, BoolByte>) {
    bool read = false;
    if (!json.ReadBool(&read)) return false;
    *value = static_cast<BoolByte>(read);
    return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    std::string_view text;
    if (!json.ReadNumber(&text)) return false;
    if (ParseFloat(text, value)) return true;
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    Wide wide = 0;
    if constexpr (std::is_same_v<T, int64_t>) {  // keys, which are patterns of 64 bits
      if (!json.ReadBits64(&wide)) return false;
    } else if constexpr (std::is_signed_v<T>) {
      if (!json.ReadInt64(&wide)) return false;
    } else {
      if (!json.ReadUint64(&wide)) return false;
    }
    *value = static_cast<T>(wide);
    if (static_cast<Wide>(*value) == wide) return true;
  }
  return json.Fail(absl::InvalidArgumentError("an element does not fit the datatype"));
}

template <typename T>
absl::Status ParseElements(std::span<char> text, std::span<std::byte> elements) {
  JsonReader json(text);
  size_t depth = 1;
  size_t index = 0;
  const size_t count = elements.size() / sizeof(T);
  json.BeginArray();
  while (json.ok() && depth > 0) {
    if (!json.NextElement()) {
      --depth;
      continue;
    }
    if (json.Peek() == JsonKind::kArray) {
      json.BeginArray();
      ++depth;
      continue;
    }
    T value{};
    if (!ReadElement(json, &value)) break;
    if (index == count) {
      return absl::InvalidArgumentError(
          absl::StrCat("its data has more elements than its shape (", count, ")"));
    }
    StoreLittleEndian(elements.data() + index++ * sizeof(T), value);
  }
  HPS_RETURN_IF_ERROR(json.status());
  if (index == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its data has ", index, " elements, its shape ", count));
}

template <typename T>
void WriteElements(std::span<const std::byte> elements, JsonWriter& json) {
  for (size_t i = 0; i + sizeof(T) <= elements.size(); i += sizeof(T)) {
    const T value = LoadLittleEndian<T>(elements.data() + i);
    if constexpr (std::is_same_v<T, BoolByte>) {
      json.Value(value != BoolByte());
    } else if constexpr (std::is_floating_point_v<T>) {
      json.Value(value);
    } else if constexpr (std::is_signed_v<T>) {
      json.Value(int64_t{value});
    } else {
      json.Value(uint64_t{value});
    }
  }
}

}  // namespace

bool HasTextForm(Datatype datatype) {
  return WithElementType(datatype, false, [](auto) { return true; });
}

absl::Status ParseTensorText(std::span<char> text, Datatype datatype,
                             std::span<std::byte> elements) {
  return WithElementType(datatype, absl::Status(), [&](auto element) {
    return ParseElements<decltype(element)>(text, elements);
  });
}

void WriteTensorText(std::span<const std::byte> elements, Datatype datatype, JsonWriter& json) {
  json.BeginArray();
  WithElementType(datatype, 0, [&](auto element) {
    WriteElements<decltype(element)>(elements, json);
    return 0;
  });
  json.EndArray();
}

}  // namespace hps::server
