// Fields that the records of the catalog and the manifests of staged imports share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/record_codec.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "l3_pages/page_format.h"

namespace hps {

// Dim, dtype and default row of a table.
inline void AddShape(const TableSpec& spec, RecordWriter& record) {
  record.Add(spec.dim).Add(static_cast<uint8_t>(spec.dtype)).AddText(AsText(spec.default_row));
}

// ValidateTableSpec says whether a table can have them.
inline void TakeShape(RecordReader& reader, TableSpec& spec) {
  spec.dim = reader.Take<uint32_t>();
  spec.dtype = static_cast<Dtype>(reader.Take<uint8_t>());
  const std::span<const std::byte> default_row = AsBytes(reader.TakeText());
  spec.default_row.assign(default_row.begin(), default_row.end());
}

inline void AddUpdateStart(const UpdateStart& start, RecordWriter& record) {
  record.Add(static_cast<uint8_t>(start.kind)).Add(start.time_ms);
}

// False: no import can have it.
inline bool TakeUpdateStart(RecordReader& reader, UpdateStart& start) {
  start.kind = static_cast<UpdateStart::Kind>(reader.Take<uint8_t>());
  start.time_ms = reader.Take<int64_t>();
  return start.kind <= UpdateStart::Kind::kTime;
}

inline void AddPageFile(const PageFileRecord& file, RecordWriter& record) {
  record.Add(file.row_count).Add(file.first_key).Add(file.last_key);
}

inline PageFileRecord TakePageFile(RecordReader& reader) {
  PageFileRecord file;
  file.row_count = reader.Take<uint64_t>();
  file.first_key = reader.Take<Key>();
  file.last_key = reader.Take<Key>();
  return file;
}

inline void AddInputs(const std::vector<NetworkInput>& inputs, RecordWriter& record) {
  record.Add(static_cast<uint32_t>(inputs.size()));
  for (const NetworkInput& input : inputs)
    record.AddText(input.name).AddText(input.table).Add(static_cast<uint8_t>(input.pooling));
}

// False: no network can have them.
inline bool TakeInputs(RecordReader& reader, std::vector<NetworkInput>& inputs) {
  const uint32_t count = reader.Take<uint32_t>();
  for (uint32_t i = 0; i < count && reader.good(); ++i) {
    NetworkInput input;
    input.name = std::string(reader.TakeText());
    input.table = std::string(reader.TakeText());
    input.pooling = static_cast<RowPooling>(reader.Take<uint8_t>());
    if (input.pooling > RowPooling::kNone) return false;
    inputs.push_back(std::move(input));
  }
  return true;
}

}  // namespace hps
