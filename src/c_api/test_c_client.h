// A client in C of libhps.so, for the tests: imports, looks up, changes, exports and drops a table.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// What has failed first, with the error's text, or null. `path`: of a store that it creates.
const char* RunCClient(const char* path);

#ifdef __cplusplus
}
#endif
