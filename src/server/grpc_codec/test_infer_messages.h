// Serialized ModelInferRequests, put together field by field, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "server/grpc_codec/wire_format.h"

namespace hps::server {

inline std::string Dims(const std::vector<int64_t>& dims) {
  std::string packed;
  for (const int64_t dim : dims) AppendVarint(static_cast<uint64_t>(dim), &packed);
  return packed;
}

inline std::string Field(uint32_t field, std::string_view bytes) {
  std::string message;
  AppendText(field, bytes, &message);
  return message;
}

inline std::string Number(uint32_t field, uint64_t value) {
  std::string message;
  AppendTag(field, WireType::kVarint, &message);
  AppendVarint(value, &message);
  return message;
}

inline std::string Parameter(std::string_view name, std::string_view value) {
  return Field(1, name) + Field(2, value);
}

inline std::string Input(std::string_view name, std::string_view datatype,
                         const std::vector<int64_t>& dims, std::string_view more = "") {
  return Field(5, Field(1, name) + Field(2, datatype) + Field(3, Dims(dims)) + std::string(more));
}

inline std::string Keys(size_t n) {
  std::vector<int64_t> keys(n);
  std::iota(keys.begin(), keys.end(), int64_t{-1});
  return std::string(AsText(std::as_bytes(std::span(keys))));
}

inline std::string Request(size_t n) {
  return Field(1, "m") + Field(2, "3") + Field(3, "id-1") +
         Field(4, Parameter("timeout", Number(2, 1500))) +
         Input("t", "INT64", {static_cast<int64_t>(n)}) + Field(6, Field(1, "t")) +
         Field(6, Field(1, "t.status")) + Field(7, Keys(n));
}

}  // namespace hps::server
