#include "hps/c_api.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "c_api/store_json.h"
#include "hps/store.h"
#include "types/update_start.h"

struct hps_store {
  std::unique_ptr<hps::Store> store;
};
struct hps_session {
  std::unique_ptr<hps::LookupSession> session;
};
struct hps_cancel {
  hps::LookupCancel cancel;
};

namespace hps {
namespace {

std::string& LastError() {
  static thread_local std::string text;
  return text;
}

// Makes a call: its status becomes a code and the thread's text. No exception leaves it.
template <typename Call>
int Run(const Call& call) {
  absl::Status status;
  try {
    status = call();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("no memory");
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return 0;
  LastError() = std::string(status.message());
  return static_cast<int>(status.code());
}

absl::Status CheckPointer(const void* pointer, const char* argument) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(argument, " is null"));
}

// The structure as this version knows it: what a shorter one of an older caller lacks is 0.
template <typename T>
absl::StatusOr<T> ReadStruct(const T* given, const char* argument) {
  HPS_RETURN_IF_ERROR(CheckPointer(given, argument));
  const size_t bytes = given->struct_bytes;
  if (bytes < sizeof(bytes) || bytes > sizeof(T)) {
    return absl::InvalidArgumentError(absl::StrCat(argument, ".struct_bytes is ", bytes,
                                                   ", expected ", sizeof(bytes), " to ", sizeof(T),
                                                   "; a newer caller needs a newer libhps.so"));
  }
  T read{};
  std::memcpy(static_cast<void*>(&read), given, bytes);
  return read;
}

absl::StatusOr<std::optional<Dtype>> ReadDtype(int32_t dtype) {
  if (dtype == 0) return std::nullopt;
  if (dtype >= HPS_FLOAT32 && dtype <= HPS_BFLOAT16) return static_cast<Dtype>(dtype);
  return absl::InvalidArgumentError(absl::StrCat("no dtype has the number ", dtype));
}

absl::StatusOr<OpenMode> ReadMode(int32_t mode) {
  if (mode == HPS_READ_WRITE) return OpenMode::kReadWrite;
  if (mode == HPS_CREATE) return OpenMode::kCreate;
  if (mode == HPS_READ_ONLY) return OpenMode::kReadOnly;
  return absl::InvalidArgumentError(absl::StrCat("no mode has the number ", mode));
}

// A text that the caller frees with hps_free.
absl::Status CopyText(const std::string& text, char** copy) {
  HPS_RETURN_IF_ERROR(CheckPointer(copy, "json"));
  *copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (*copy == nullptr) return absl::ResourceExhaustedError("no memory");
  std::memcpy(*copy, text.c_str(), text.size() + 1);
  return absl::OkStatus();
}

struct Rows {
  std::string table;
  TableInMemory memory;
};

absl::StatusOr<Rows> ReadRows(const hps_rows* given) {
  HPS_ASSIGN_OR_RETURN(const hps_rows read, ReadStruct(given, "rows"));
  HPS_RETURN_IF_ERROR(CheckPointer(read.table, "rows.table"));
  Rows rows{.table = read.table};
  if (read.key_count > 0) HPS_RETURN_IF_ERROR(CheckPointer(read.keys, "rows.keys"));
  rows.memory.keys = {read.keys, read.key_count};
  rows.memory.dim = read.dim;
  HPS_ASSIGN_OR_RETURN(const std::optional<Dtype> dtype, ReadDtype(read.dtype));
  rows.memory.dtype = dtype.value_or(Dtype::kFloat32);
  if (read.rows == nullptr) return rows;
  const size_t row_bytes = size_t{read.dim} * ElementBytes(rows.memory.dtype);
  size_t bytes = 0;
  if (__builtin_mul_overflow(row_bytes, read.key_count, &bytes))
    return absl::InvalidArgumentError("rows: more bytes than there is memory");
  rows.memory.rows = {static_cast<const std::byte*>(read.rows), bytes};
  return rows;
}

template <MemorySpace kSpace>
absl::StatusOr<std::vector<TableQuery<kSpace>>> ReadQueries(const hps_table_query* given,
                                                            size_t count) {
  std::vector<TableQuery<kSpace>> queries;
  if (count == 0) return queries;
  HPS_RETURN_IF_ERROR(CheckPointer(given, "queries"));
  const auto* next = reinterpret_cast<const char*>(given);
  for (size_t i = 0; i < count; ++i, next += given->struct_bytes) {
    HPS_ASSIGN_OR_RETURN(const hps_table_query read,
                         ReadStruct(reinterpret_cast<const hps_table_query*>(next), "query"));
    if (read.key_count > 0) {
      HPS_RETURN_IF_ERROR(CheckPointer(read.keys, "query.keys"));
      HPS_RETURN_IF_ERROR(CheckPointer(read.rows, "query.rows"));
    }
    TableQuery<kSpace>& query = queries.emplace_back();
    query.table = {read.table};
    query.keys = {read.keys, read.key_count};
    query.rows = {static_cast<std::byte*>(read.rows), read.rows_bytes};
    query.row_stride_bytes = read.row_stride_bytes;
    if (read.status != nullptr)
      query.status = {reinterpret_cast<KeyStatus*>(read.status), read.key_count};
  }
  return queries;
}

template <MemorySpace kSpace>
absl::Status Lookup(LookupSession& session, const hps_lookup_options& options,
                    const std::vector<TableQuery<kSpace>>& queries, uint64_t* counts) {
  LookupRequest<kSpace> request{.queries = queries};
  if (options.timeout_ns >= 0) request.timeout = std::chrono::nanoseconds(options.timeout_ns);
  if (options.hit_rate_threshold >= 0) request.hit_rate_threshold = options.hit_rate_threshold;
  if (options.cancel != nullptr) request.cancel = &options.cancel->cancel;
  request.stream = {options.stream};
  LookupCounts counted;
  HPS_RETURN_IF_ERROR(session.Lookup(request, &counted));
  if (counts != nullptr) std::ranges::copy(counted.by_status, counts);
  return absl::OkStatus();
}

absl::Status LookUp(hps_session* session, std::pair<const hps_table_query*, size_t> queries,
                    const hps_lookup_options* given, uint64_t* counts) {
  HPS_RETURN_IF_ERROR(CheckPointer(session, "session"));
  hps_lookup_options options{};
  options.timeout_ns = -1;
  options.hit_rate_threshold = -1;
  if (given != nullptr) {
    HPS_ASSIGN_OR_RETURN(options, ReadStruct(given, "options"));
  }
  if (options.is_on_device != 0) {
    HPS_ASSIGN_OR_RETURN(const auto read,
                         ReadQueries<MemorySpace::kDevice>(queries.first, queries.second));
    return Lookup(*session->session, options, read, counts);
  }
  HPS_ASSIGN_OR_RETURN(const auto read,
                       ReadQueries<MemorySpace::kHost>(queries.first, queries.second));
  return Lookup(*session->session, options, read, counts);
}

absl::Status Open(const hps_open_options* given, hps_store** store) {
  HPS_RETURN_IF_ERROR(CheckPointer(store, "store"));
  HPS_ASSIGN_OR_RETURN(const hps_open_options options, ReadStruct(given, "options"));
  HPS_ASSIGN_OR_RETURN(const OpenMode mode, ReadMode(options.mode));
  Config config;
  if (options.config_file != nullptr) {
    HPS_ASSIGN_OR_RETURN(config, LoadConfig(options.config_file));
  }
  if (options.path != nullptr) config.store.path = options.path;
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<Store> opened, Store::Open(config, mode));
  *store = std::make_unique<hps_store>(hps_store{std::move(opened)}).release();
  return absl::OkStatus();
}

absl::Status NewSession(hps_store* store, const char* model, const hps_session_options* given,
                        hps_session** session) {
  HPS_RETURN_IF_ERROR(CheckPointer(store, "store"));
  HPS_RETURN_IF_ERROR(CheckPointer(model, "model"));
  HPS_RETURN_IF_ERROR(CheckPointer(session, "session"));
  SessionOptions options;
  if (given != nullptr) {
    HPS_ASSIGN_OR_RETURN(const hps_session_options read, ReadStruct(given, "options"));
    options.device = read.device;
    HPS_ASSIGN_OR_RETURN(options.output_dtype, ReadDtype(read.output_dtype));
    if (read.keys_max != 0) options.keys_max = read.keys_max;
  }
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<LookupSession> made,
                       store->store->NewSession(model, options));
  *session = std::make_unique<hps_session>(hps_session{std::move(made)}).release();
  return absl::OkStatus();
}

absl::Status Import(hps_store* store, const hps_rows* given_rows, const hps_import_options* given) {
  HPS_RETURN_IF_ERROR(CheckPointer(store, "store"));
  HPS_ASSIGN_OR_RETURN(const Rows rows, ReadRows(given_rows));
  ImportRequest request{.name = rows.table, .memory = rows.memory};
  if (given != nullptr) {
    HPS_ASSIGN_OR_RETURN(const hps_import_options options, ReadStruct(given, "options"));
    request.default_value = options.default_value;
    if (options.import_id != nullptr) request.import_id = options.import_id;
    if (options.stream_from != nullptr) {
      HPS_ASSIGN_OR_RETURN(request.update_start, ParseUpdateStart(options.stream_from));
    }
  }
  return store->store->Import(request).status();
}

absl::Status DescribeTable(hps_session* session, const char* name, hps_table_info* info) {
  HPS_RETURN_IF_ERROR(CheckPointer(session, "session"));
  HPS_RETURN_IF_ERROR(CheckPointer(name, "name"));
  HPS_ASSIGN_OR_RETURN(hps_table_info described, ReadStruct(info, "info"));
  HPS_ASSIGN_OR_RETURN(const TableIndex table, session->session->FindTable(name));
  const TableSpec& spec = session->session->tables()[table.value];
  described.table = table.value;
  described.dim = spec.dim;
  described.dtype = static_cast<int32_t>(spec.dtype);
  described.output_row_bytes = session->session->output_row_bytes(table);
  std::memcpy(static_cast<void*>(info), &described, described.struct_bytes);
  return absl::OkStatus();
}

}  // namespace
}  // namespace hps

const char* hps_version(void) { return HPS_VERSION; }

const char* hps_error(void) { return hps::LastError().c_str(); }

void hps_free(char* text) { std::free(text); }

int hps_open(const hps_open_options* options, hps_store** store) {
  return hps::Run([&] { return hps::Open(options, store); });
}

void hps_close(hps_store* store) { std::default_delete<hps_store>()(store); }

int hps_tables(hps_store* store, char** json) {
  return hps::Run([&]() -> absl::Status {
    HPS_RETURN_IF_ERROR(hps::CheckPointer(store, "store"));
    HPS_ASSIGN_OR_RETURN(const std::vector<hps::TableInfo> tables, store->store->Tables());
    return hps::CopyText(hps::TablesJson(tables), json);
  });
}

int hps_statistics(hps_store* store, char** json) {
  return hps::Run([&]() -> absl::Status {
    HPS_RETURN_IF_ERROR(hps::CheckPointer(store, "store"));
    return hps::CopyText(hps::StatisticsJson(store->store->Statistics()), json);
  });
}

int hps_session_new(hps_store* store, const char* model, const hps_session_options* options,
                    hps_session** session) {
  return hps::Run([&] { return hps::NewSession(store, model, options, session); });
}

void hps_session_free(hps_session* session) { std::default_delete<hps_session>()(session); }

int hps_session_table(hps_session* session, const char* name, hps_table_info* info) {
  return hps::Run([&] { return hps::DescribeTable(session, name, info); });
}

int hps_cancel_new(hps_cancel** cancel) {
  return hps::Run([&]() -> absl::Status {
    HPS_RETURN_IF_ERROR(hps::CheckPointer(cancel, "cancel"));
    *cancel = std::make_unique<hps_cancel>().release();
    return absl::OkStatus();
  });
}

void hps_cancel_free(hps_cancel* cancel) { std::default_delete<hps_cancel>()(cancel); }

void hps_cancel_now(hps_cancel* cancel) {
  if (cancel != nullptr) cancel->cancel.Cancel();
}

void hps_cancel_reset(hps_cancel* cancel) {
  if (cancel != nullptr) cancel->cancel.Reset();
}

int hps_lookup(hps_session* session, const hps_table_query* queries, size_t query_count,
               const hps_lookup_options* options, uint64_t counts[6]) {
  return hps::Run([&] { return hps::LookUp(session, {queries, query_count}, options, counts); });
}

int hps_import(hps_store* store, const hps_rows* rows, double default_value) {
  hps_import_options options{};
  options.struct_bytes = sizeof(options);
  options.default_value = default_value;
  return hps_import_with(store, rows, &options);
}

int hps_import_with(hps_store* store, const hps_rows* rows, const hps_import_options* options) {
  return hps::Run([&] { return hps::Import(store, rows, options); });
}

int hps_apply(hps_store* store, const hps_rows* rows, int64_t timeout_ns) {
  return hps::Run([&]() -> absl::Status {
    HPS_RETURN_IF_ERROR(hps::CheckPointer(store, "store"));
    HPS_ASSIGN_OR_RETURN(const hps::Rows read, hps::ReadRows(rows));
    return store->store->Apply({.table = read.table,
                                .keys = read.memory.keys,
                                .rows = read.memory.rows,
                                .dim = read.memory.dim,
                                .dtype = read.memory.dtype,
                                .is_delete = read.memory.rows.data() == nullptr},
                               std::chrono::nanoseconds(timeout_ns));
  });
}

int hps_export(hps_store* store, const char* table, hps_row_function function, void* context) {
  return hps::Run([&]() -> absl::Status {
    HPS_RETURN_IF_ERROR(hps::CheckPointer(store, "store"));
    HPS_RETURN_IF_ERROR(hps::CheckPointer(table, "table"));
    if (function == nullptr) return absl::InvalidArgumentError("function is null");
    const hps::RowSink sink = [&](std::span<const hps::Key> keys, hps::HostRows rows) {
      return function(context, keys.data(), rows.data, keys.size()) == 0
                 ? absl::OkStatus()
                 : absl::CancelledError("the caller's function ended the export");
    };
    return store->store->Export({.name = table, .sink = sink}).status();
  });
}

int hps_drop(hps_store* store, const char* table) {
  return hps::Run([&]() -> absl::Status {
    HPS_RETURN_IF_ERROR(hps::CheckPointer(store, "store"));
    HPS_RETURN_IF_ERROR(hps::CheckPointer(table, "table"));
    return store->store->Drop(table);
  });
}
