// The C interface of hps, for bindings of other languages: libhps.so. Compiles as C11 and as C++.
//
// Every function that can fail returns a code, that of absl::Status and gRPC: 0 is success, 3 a
// wrong argument, 5 not found, ... hps_error() has the text. Every structure that the caller fills
// begins with `struct_bytes`, which the caller sets to its sizeof: a later version of hps with
// longer structures takes what an older caller does not know as 0. The comments of hps/store.h,
// hps/lookup_session.h, hps/transfer.h and hps/update.h say what the calls do.
//
// Strings are UTF-8 with a final 0. hps keeps no pointer of the caller after a call returns, but
// those of a device lookup with a stream. A store, a cancel and hps_statistics may be used by
// several threads at once, a session by one at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HPS_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hps_store hps_store;
typedef struct hps_session hps_session;
typedef struct hps_cancel hps_cancel;

enum { HPS_FLOAT32 = 1, HPS_FLOAT16 = 2, HPS_BFLOAT16 = 3 };
enum { HPS_READ_WRITE = 0, HPS_CREATE = 1, HPS_READ_ONLY = 2 };

// "0.1.0".
HPS_C_API const char* hps_version(void);

// Why the last call on this thread that failed did so; "" if none has. Valid until the next call.
HPS_C_API const char* hps_error(void);

// Frees what hps_tables and hps_statistics return. Null does nothing.
HPS_C_API void hps_free(char* text);

typedef struct {
  size_t struct_bytes;
  const char* path;         // of the store; null = the configuration's
  const char* config_file;  // TOML; null = defaults
  int32_t mode;
} hps_open_options;

HPS_C_API int hps_open(const hps_open_options* options, hps_store** store);

// Its sessions stay valid, and keep the store's files locked. Null does nothing.
HPS_C_API void hps_close(hps_store* store);

// The tables, and the counters, as JSON text, which the caller frees.
HPS_C_API int hps_tables(hps_store* store, char** json);
HPS_C_API int hps_statistics(hps_store* store, char** json);

typedef struct {
  size_t struct_bytes;
  int32_t device;        // a GPU; -1 = the host's levels only
  int32_t output_dtype;  // HPS_FLOAT32; 0 = as stored
  size_t keys_max;       // of one lookup; 0 = the default
} hps_session_options;

HPS_C_API int hps_session_new(hps_store* store, const char* model,
                              const hps_session_options* options, hps_session** session);
HPS_C_API void hps_session_free(hps_session* session);  // null does nothing

typedef struct {
  size_t struct_bytes;
  uint32_t table;  // for hps_table_query
  uint32_t dim;
  int32_t dtype;            // as stored
  size_t output_row_bytes;  // of a lookup
} hps_table_info;

// `name` with or without the model's name. The caller sets info->struct_bytes.
HPS_C_API int hps_session_table(hps_session* session, const char* name, hps_table_info* info);

HPS_C_API int hps_cancel_new(hps_cancel** cancel);
HPS_C_API void hps_cancel_free(hps_cancel* cancel);   // null does nothing
HPS_C_API void hps_cancel_now(hps_cancel* cancel);    // ends the wait of the lookup that has it
HPS_C_API void hps_cancel_reset(hps_cancel* cancel);  // of both, null does nothing

// All of a call's pointers are to host memory, or all to memory of the session's device.
typedef struct {
  size_t struct_bytes;
  uint32_t table;
  const int64_t* keys;
  size_t key_count;
  void* rows;
  size_t rows_bytes;
  size_t row_stride_bytes;  // 0 = rows without gaps
  uint8_t* status;          // [key_count], values of hps::KeyStatus; null = not wanted
} hps_table_query;

typedef struct {
  size_t struct_bytes;
  int64_t timeout_ns;         // below 0 = [lookup] timeout
  double hit_rate_threshold;  // below 0 = [lookup] hit_rate_threshold
  hps_cancel* cancel;         // null = cannot be cancelled
  int32_t is_on_device;       // not 0: the queries' pointers are to device memory
  void* stream;               // of a device lookup: cudaStream_t, null = none
} hps_lookup_options;

// `options` null: the configuration's. `counts` (null = not wanted): keys by status.
HPS_C_API int hps_lookup(hps_session* session, const hps_table_query* queries, size_t query_count,
                         const hps_lookup_options* options, uint64_t counts[6]);

// Keys and rows of one table, in host memory.
typedef struct {
  size_t struct_bytes;
  const char* table;  // "model/table"
  const int64_t* keys;
  size_t key_count;
  const void* rows;  // [key_count, dim] packed
  uint32_t dim;
  int32_t dtype;
} hps_rows;

// Imports a table, keys in any order, none twice. Every element of an absent key's row will be
// `default_value`.
HPS_C_API int hps_import(hps_store* store, const hps_rows* rows, double default_value);

typedef struct {
  size_t struct_bytes;
  double default_value;
  // Where the table begins to read its update stream: "import" (also null: the time when the import
  // begins), "earliest", "latest", or a time as in "2026-11-24T18:00:00Z".
  const char* stream_from;
  // Names these rows on all nodes that share a level 2 on Redis (docs/redis.md). Needs a
  // `stream_from` of "earliest" or a time. Null = the rows are shared with no other node.
  const char* import_id;
} hps_import_options;

// As hps_import; `options` null: default row 0, stream from the time of the import, not shared.
HPS_C_API int hps_import_with(hps_store* store, const hps_rows* rows,
                              const hps_import_options* options);

// Changes rows now, or, without rows, deletes the keys.
HPS_C_API int hps_apply(hps_store* store, const hps_rows* rows, int64_t timeout_ns);

// Takes rows in ascending order of keys, packed, as stored. Not 0 ends the export, which returns 1.
typedef int (*hps_row_function)(void* context, const int64_t* keys, const void* rows, size_t count);
HPS_C_API int hps_export(hps_store* store, const char* table, hps_row_function function,
                         void* context);

HPS_C_API int hps_drop(hps_store* store, const char* table);

#ifdef __cplusplus
}
#endif
