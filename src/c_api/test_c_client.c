#include "c_api/test_c_client.h"

#include <stdio.h>
#include <string.h>

#include "hps/c_api.h"

enum { kKeys = 100, kDim = 4 };

static char failure[512];

// Ends the function with what has failed.
#define EXPECT(condition)                                                                        \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      snprintf(failure, sizeof(failure), "line %d: %s (%s)", __LINE__, #condition, hps_error()); \
      return failure;                                                                            \
    }                                                                                            \
  } while (0)

struct taken {
  size_t count;
  int64_t first_key;
  float first_row[kDim];
};

static int take(void* context, const int64_t* keys, const void* rows, size_t count) {
  struct taken* taken = context;
  if (taken->count == 0) {
    taken->first_key = keys[0];
    memcpy(taken->first_row, rows, sizeof(taken->first_row));
  }
  taken->count += count;
  return 0;
}

static const char* import_rows(hps_store* store) {
  static int64_t keys[kKeys];
  static float rows[kKeys][kDim];
  for (int i = 0; i < kKeys; ++i) {
    keys[i] = kKeys - i;  // descending: 100 to 1
    for (int j = 0; j < kDim; ++j) rows[i][j] = (float)(10 * keys[i] + j);
  }
  const hps_rows table = {.struct_bytes = sizeof(table),
                          .table = "m/t",
                          .keys = keys,
                          .key_count = kKeys,
                          .rows = rows,
                          .dim = kDim,
                          .dtype = HPS_FLOAT32};
  EXPECT(hps_import(store, &table, -1.0) == 0);
  return NULL;
}

static const char* look_up(hps_session* session, int64_t key, float* row, uint8_t* status) {
  hps_table_info info = {.struct_bytes = sizeof(info)};
  EXPECT(hps_session_table(session, "t", &info) == 0);
  EXPECT(info.dim == kDim && info.output_row_bytes == kDim * sizeof(float));
  const hps_table_query query = {.struct_bytes = sizeof(query),
                                 .table = info.table,
                                 .keys = &key,
                                 .key_count = 1,
                                 .rows = row,
                                 .rows_bytes = kDim * sizeof(float),
                                 .status = status};
  const hps_lookup_options options = {
      .struct_bytes = sizeof(options), .timeout_ns = 1000000000, .hit_rate_threshold = 1.0};
  uint64_t counts[6];
  EXPECT(hps_lookup(session, &query, 1, &options, counts) == 0);
  EXPECT(counts[0] + counts[2] + counts[3] == 1);
  return NULL;
}

static const char* change_rows(hps_store* store, hps_session* session) {
  const int64_t key = 7;
  const float changed[kDim] = {1, 2, 3, 4};
  hps_rows rows = {.struct_bytes = sizeof(rows),
                   .table = "m/t",
                   .keys = &key,
                   .key_count = 1,
                   .rows = changed,
                   .dim = kDim,
                   .dtype = HPS_FLOAT32};
  EXPECT(hps_apply(store, &rows, 10000000000) == 0);
  float row[kDim];
  uint8_t status;
  const char* failed = look_up(session, key, row, &status);
  if (failed != NULL) return failed;
  EXPECT(status != 0 && memcmp(row, changed, sizeof(row)) == 0);
  rows.rows = NULL;  // deletes
  EXPECT(hps_apply(store, &rows, 10000000000) == 0);
  failed = look_up(session, key, row, &status);
  if (failed != NULL) return failed;
  EXPECT(status == 0 && row[0] == -1.0F);
  return NULL;
}

static const char* use_store(hps_store* store) {
  const char* failed = import_rows(store);
  if (failed != NULL) return failed;
  hps_session* session = NULL;
  EXPECT(hps_session_new(store, "m", NULL, &session) == 0);
  float row[kDim];
  uint8_t status;
  failed = look_up(session, 42, row, &status);
  if (failed != NULL) return failed;
  EXPECT(status == 2 || status == 3);
  EXPECT(row[0] == 420.0F && row[3] == 423.0F);
  failed = change_rows(store, session);
  if (failed != NULL) return failed;
  struct taken taken = {0};
  EXPECT(hps_export(store, "m/t", take, &taken) == 0);
  EXPECT(taken.count == kKeys - 1 && taken.first_key == 1 && taken.first_row[1] == 11.0F);
  EXPECT(hps_drop(store, "m/t") == 0);
  EXPECT(hps_drop(store, "m/t") == 5);
  EXPECT(strstr(hps_error(), "m/t") != NULL);
  hps_session_free(session);
  return NULL;
}

const char* RunCClient(const char* path) {
  const hps_open_options options = {
      .struct_bytes = sizeof(options), .path = path, .mode = HPS_CREATE};
  hps_store* store = NULL;
  EXPECT(hps_open(&options, &store) == 0);
  const char* failed = use_store(store);
  hps_close(store);
  return failed;
}
