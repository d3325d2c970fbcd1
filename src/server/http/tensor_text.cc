#include "server/http/tensor_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "base/text.h"
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

// Many clients have no other number than a double, which does not hold all integers above this.
constexpr uint64_t kExactMax = uint64_t{1} << 53;
constexpr size_t kQuotedBytesMax = 40;

absl::Status BadInteger(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("expected an integer, found '", PrintableText(text.substr(0, kQuotedBytesMax)),
                   text.size() > kQuotedBytesMax ? "..." : "", "'", std::string(why)));
}

template <typename T>
bool ParseWhole(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end;
}

// value * 10^count + digit, or a number above kExactMax.
uint64_t Shifted(uint64_t value, uint64_t count, uint64_t digit) {
  for (; count > 0 && value > 0 && value <= kExactMax; --count) value *= 10;
  return value > kExactMax ? value : value + digit;
}

// An integer that is written with a fraction or an exponent: "7.0", "7e0". `text` is a number of
// JSON.
absl::Status ParseIntegral(std::string_view text, int64_t* value) {
  const bool is_negative = text.front() == '-';
  const size_t mantissa_end = std::min(text.size(), text.find_first_of("eE"));
  std::string_view exponent = text.substr(std::min(text.size(), mantissa_end + 1));
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  int32_t scale = 0;
  const bool has_scale = exponent.empty() || ParseWhole(exponent, &scale);
  uint64_t magnitude = 0;
  int64_t zeros = 0;  // behind the last other digit
  int64_t decimals = 0;
  bool is_behind_point = false;
  for (const char c : text.substr(0, mantissa_end)) {
    if (c == 'N' || c == 'I') return BadInteger(text, "");
    is_behind_point |= c == '.';
    if (c < '0' || c > '9') continue;
    decimals += is_behind_point ? 1 : 0;
    ++zeros;
    if (c == '0') continue;
    magnitude = Shifted(magnitude, static_cast<uint64_t>(zeros), static_cast<uint64_t>(c - '0'));
    zeros = 0;
  }
  const int64_t shift = int64_t{scale} - decimals + zeros;
  const bool is_fraction = has_scale ? shift < 0 : exponent.front() == '-';
  if (magnitude > 0 && is_fraction) return BadInteger(text, "");
  if (magnitude > 0 && has_scale) magnitude = Shifted(magnitude, static_cast<uint64_t>(shift), 0);
  if (magnitude > kExactMax || (magnitude > 0 && !has_scale)) {
    return BadInteger(text,
                      "; beyond 2^53 it may have been rounded: send it without a fraction and an "
                      "exponent, or as a decimal string");
  }
  const auto integer = static_cast<int64_t>(magnitude);
  *value = is_negative ? -integer : integer;
  return absl::OkStatus();
}

// Keys are patterns of 64 bits, so INT64 takes what UINT64 does, too. JavaScript has no integers of
// 64 bits, so both take decimal strings.
template <typename T>
absl::Status ReadInteger(JsonReader& json, Datatype datatype, T* value) {
  constexpr bool kIsWide = sizeof(T) == sizeof(int64_t);
  std::string_view text;
  const bool is_string = kIsWide && json.Peek() == JsonKind::kString;
  if (!(is_string ? json.ReadString(&text) : json.ReadNumber(&text))) return json.status();
  if (ParseWhole(text, value)) return absl::OkStatus();
  uint64_t bits = 0;
  if (kIsWide && ParseWhole(text, &bits)) {
    *value = static_cast<T>(bits);
    return absl::OkStatus();
  }
  const bool is_whole = text.find_first_not_of("0123456789", text.starts_with('-') ? 1 : 0) ==
                            std::string_view::npos &&
                        !text.empty() && text != "-";
  if (!is_whole && is_string) return BadInteger(text, "");
  int64_t integral = 0;
  if (!is_whole) {
    HPS_RETURN_IF_ERROR(ParseIntegral(text, &integral));
    if (std::in_range<T>(integral)) {
      *value = static_cast<T>(integral);
      return absl::OkStatus();
    }
  }
  return BadInteger(
      text, absl::StrCat(", which is out of the range of ", std::string(DatatypeName(datatype))));
}

template <typename T>
bool ReadElement(JsonReader& json, Datatype datatype, T* value) {
  if constexpr (std::is_same_v<T, BoolByte>) {
    bool read = false;
    if (!json.ReadBool(&read)) return false;
    *value = static_cast<BoolByte>(read);
    return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    std::string_view text;
    const bool is_word = json.Peek() == JsonKind::kString;
    if (!(is_word ? json.ReadString(&text) : json.ReadNumber(&text))) return false;
    if (is_word && text != "NaN" && text != "Infinity" && text != "-Infinity") {
      return json.Fail(absl::InvalidArgumentError(
          absl::StrCat("expected a number, \"NaN\", \"Infinity\" or \"-Infinity\", found \"",
                       PrintableText(text.substr(0, kQuotedBytesMax)), "\"")));
    }
    if (ParseFloat(text, value)) return true;
    return json.Fail(absl::InvalidArgumentError("an element does not fit the datatype"));
  } else {
    const absl::Status read = ReadInteger(json, datatype, value);
    return read.ok() || json.Fail(read);
  }
}

template <typename T>
absl::Status ParseElements(JsonReader& json, Datatype datatype, std::span<std::byte> elements) {
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
    if (!ReadElement(json, datatype, &value)) break;
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

absl::Status ParseTensorText(std::span<char> text, const char* body, Datatype datatype,
                             std::span<std::byte> elements) {
  return WithElementType(datatype, absl::Status(), [&](auto element) {
    JsonReader json(text, body);
    return ParseElements<decltype(element)>(json, datatype, elements);
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
