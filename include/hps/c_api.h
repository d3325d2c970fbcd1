// The C interface of hps, for bindings of other languages: libhps.so. Compiles as C11 and as C++.
//
// Functions that can fail return the code of absl::Status and gRPC: 0 is success, 3 an invalid
// argument, 5 not found, and so on. hps_error() has the text. hps/store.h, hps/lookup_session.h,
// hps/transfer.h and hps/update.h describe the calls, their errors and their cost.
//
// Every structure begins with `struct_bytes`, which the caller sets to its sizeof, the same in all
// elements of an array. For an older caller, fields that it does not have are 0. A structure that
// is larger than the library knows is an error (3).
//
// Strings are UTF-8 with a final 0. hps keeps no pointer of the caller after a call has returned,
// except those of a device lookup with a stream. A store and a cancel may be used by several
// threads at once, a session by one thread at a time.
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

HPS_C_API const char* hps_version(void);  // "0.1.0"

// The reason of this thread's last failed call; "" if none has failed. Valid until the next call.
HPS_C_API const char* hps_error(void);

typedef struct {
  size_t struct_bytes;
  const char* path;         // of the store; null = the configuration's
  const char* config_file;  // TOML; null = defaults
  int32_t mode;             // HPS_READ_WRITE, HPS_CREATE or HPS_READ_ONLY
} hps_open_options;

HPS_C_API int hps_open(const hps_open_options* options, hps_store** store);

// The store's sessions stay valid, and keep its files and lock until freed. Null does nothing.
HPS_C_API void hps_close(hps_store* store);

// The tables, and the counters, as JSON text, which the caller frees with hps_free.
HPS_C_API int hps_tables(hps_store* store, char** json);
HPS_C_API int hps_statistics(hps_store* store, char** json);
HPS_C_API void hps_free(char* text);  // null does nothing

typedef struct {
  size_t struct_bytes;
  int32_t device;        // number of a GPU: 0 is one, too; -1 = levels 2 and 3 only
  int32_t output_dtype;  // of rows: HPS_FLOAT32 (converted), or 0 = as stored
  size_t keys_max;       // size of the buffers; larger lookups are in pieces. 0 = 2^20
} hps_session_options;

// `options` null: levels 2 and 3 only, rows as stored.
HPS_C_API int hps_session_new(hps_store* store, const char* model,
                              const hps_session_options* options, hps_session** session);
HPS_C_API void hps_session_free(hps_session* session);  // null does nothing

typedef struct {
  size_t struct_bytes;
  uint32_t table;           // for hps_table_query
  uint32_t dim;             // elements of a row
  int32_t dtype;            // of the stored rows
  size_t output_row_bytes;  // of one row that hps_lookup writes
} hps_table_info;

// `name` with or without the model's name. The caller sets info->struct_bytes.
HPS_C_API int hps_session_table(hps_session* session, const char* name, hps_table_info* info);

HPS_C_API int hps_cancel_new(hps_cancel** cancel);    // see hps/lookup_cancel.h
HPS_C_API void hps_cancel_free(hps_cancel* cancel);   // of these three, null does nothing
HPS_C_API void hps_cancel_now(hps_cancel* cancel);    // the running lookup and all until a reset
HPS_C_API void hps_cancel_reset(hps_cancel* cancel);  // lookups may wait again

// All of a call's pointers are to host memory, or all to memory of the session's device.
typedef struct {
  size_t struct_bytes;
  uint32_t table;       // hps_table_info.table
  const int64_t* keys;  // [key_count], duplicates allowed
  size_t key_count;
  void* rows;               // row i is at i * row_stride_bytes
  size_t rows_bytes;        // size of `rows`
  size_t row_stride_bytes;  // 0 = output_row_bytes: rows without gaps
  uint8_t* status;          // [key_count], values of hps::KeyStatus; null = not wanted
} hps_table_query;

typedef struct {
  size_t struct_bytes;
  int64_t timeout_ns;         // 0 = no wait for rows; below 0 = [lookup] timeout
  double hit_rate_threshold;  // 0 = never wait; below 0 = [lookup] hit_rate_threshold
  hps_cancel* cancel;         // null = cannot be cancelled
  int32_t is_on_device;       // not 0: the queries' pointers are to device memory
  void* stream;               // of a device lookup: cudaStream_t, null = none
} hps_lookup_options;

// `options` null: the configuration's, host memory. `counts` (null = not wanted): keys by status.
HPS_C_API int hps_lookup(hps_session* session, const hps_table_query* queries, size_t query_count,
                         const hps_lookup_options* options, uint64_t counts[6]);

// Keys and rows of one table, in host memory.
typedef struct {
  size_t struct_bytes;
  const char* table;    // "model/table"
  const int64_t* keys;  // [key_count]
  size_t key_count;
  const void* rows;  // [key_count, dim] packed
  uint32_t dim;
  int32_t dtype;  // HPS_FLOAT32, HPS_FLOAT16 or HPS_BFLOAT16; 0 = HPS_FLOAT32
} hps_rows;

// Imports a table, all or nothing; keys in any order, none twice. Every element of the row that an
// absent key gets is `default_value`.
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

// Changes rows now, as Store::Apply. With rows->rows null, deletes the keys.
HPS_C_API int hps_apply(hps_store* store, const hps_rows* rows, int64_t timeout_ns);

// Called with `count` keys in ascending order and their rows, [count, dim] packed, as stored; both
// are valid during the call. If it returns another value than 0, the export ends and returns 1.
typedef int (*hps_row_function)(void* context, const int64_t* keys, const void* rows, size_t count);
HPS_C_API int hps_export(hps_store* store, const char* table, hps_row_function function,
                         void* context);

HPS_C_API int hps_drop(hps_store* store, const char* table);  // "model/table" or "model"

#ifdef __cplusplus
}
#endif
