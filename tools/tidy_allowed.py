"""The places where a rule of tools/tidy.py does not hold, each with its reason.

An entry that no longer excuses anything is a finding itself.
"""

# (rule, path) -> reason
ALLOWED = {
    ("cast", "src/base/bytes.h"): "the one header of the host code for it",
    ("mutex", "src/base/mutex.h"): "the wrapper itself",
    ("thread", "cli/serve_command.cc"): "waits for signals; owned and joined",
    ("thread", "src/base/executor.cc"): "the pool owns and joins the process's threads",
    ("preprocessor", "bench/gather.cc"): "vector instructions that one architecture has",
    ("preprocessor", "src/l2_memory/memory_fetch_avx2.cc"): "instructions of one architecture",
    ("macro", "src/l2_memory/memory_fetch_avx2.cc"): "whether this file has anything in it",
    ("include-order", "src/l2_memory/memory_fetch_avx2.cc"): "its own header is not for AVX2",
    ("preprocessor", "src/l2_memory/memory_fetch_avx512.cc"): "instructions of one architecture",
    ("macro", "src/l2_memory/memory_fetch_avx512.cc"): "whether this file has anything in it",
    ("include-order", "src/l2_memory/memory_fetch_avx512.cc"): "its own header is not for AVX-512",
    ("parameters", "bench/serve/serve_grpc_open.cc"): "the functions of nghttp2's C API",
    ("parameters", "bench/serve/serve_grpc_open_test.cc"): "the functions of nghttp2's C API",
    ("parameters", "src/server/grpc/grpc_session.cc"): "the functions of nghttp2's C API",
    ("parameters", "src/server/grpc/grpc_session.h"): "the functions of nghttp2's C API",
    ("parameters", "src/server/net/tls.cc"): "a function of OpenSSL's C API",
    ("sleep", "src/l1_gpu/cuda_resources.cc"): "a device opens no latch; it is polled",
    ("sleep", "src/l2_memory/concurrency_test.cc"): "the length of a run that others race in",
    ("throw", "src/import/parallel_test.cc"): "what a failed allocation does",
    ("throw", "src/l2_memory/memory_table_test.cc"): "operator new reports by std::bad_alloc",
    ("throw", "src/query/l2_failure_test.cc"): "what a failed allocation does",
    ("throw", "tests/query/cache_lookup_test.cc"): "what a failed allocation does",
    ("throw", "src/testing/memory/replaced_new.h"): "operator new reports by std::bad_alloc",
    ("throw", "src/testing/memory/failing_new.h"): "operator new reports by std::bad_alloc",
    ("names", "src/l1_gpu/test_counted_runtime.h"): "the linker's --wrap makes these names",
    ("names", "src/l1_gpu/gpu_call_test.cc"): "the linker's --wrap makes these names",
    ("thread", "src/l3_rocksdb/files/log_syncer.h"): "one thread, owned and joined",
    ("thread", "src/base/executor.h"): "the pool owns and joins the process's threads",
    ("names", "tests/faults/short_sleeps.cc"): "the C library's name, which it takes",
    ("sleep", "tests/faults/short_sleeps.cc"): "makes RocksDB's own sleeps short",
    ("names", "src/l3_rocksdb/files/store_env_test.cc"): "the C library's name, which it takes",
    ("names", "tests/server/stuck_reads.cc"): "the C library's names, which it takes",
    ("output", "src/base/macros.cc"): "says which check failed before it aborts",
    ("abort", "src/testing/faults/fault_points.cc"): "dying is what a fault point is for",
    ("abort", "src/base/macros.cc"): "a failed HPS_CHECK ends the process",
    ("macro", "src/base/macros.h"): "the project's macros",
    ("macro", "src/base/fault_point.h"): "returns the fault from the function that it stands in",
    ("preprocessor", "src/l1_gpu/kernels/device_memory.cuh"): "a choice by the GPU's architecture",
    ("preprocessor", "src/base/macros.h"): "attributes that one compiler has; debug checks",
    ("preprocessor", "src/base/poison.h"): "calls of address sanitizer, in its builds",
    ("preprocessor", "src/base/spin.h"): "an instruction for waits that one architecture has",
    ("macro", "tests/faults/fault_file_system.cc"): "returns RocksDB's status, which base/ cannot",
    ("abort", "bench/serve/serve_world.cc"): "how a child that was forked ends",
    ("sleep", "bench/serve/serve_scenario.cc"): "an idle server is seen by leaving it alone",
    ("names", "tools/triton_peer/gather_backend.cc"): "the names of Triton's C API",
    ("parameters", "tools/triton_peer/gather_backend.cc"): "the functions of Triton's C API",
} | {
    ("shared_ptr", f"src/query/snapshot/{name}"):
        "successive snapshots share a table; a call holds plain pointers under its guard"
    for name in ["model_snapshot.h", "model_state.cc", "model_state.h", "served_table.cc",
                 "served_table.h"]
}

# Source file -> why no test beside it includes its header. TESTED_BY names the test that reaches
# the inner parts of a unit through its interface; it must exist.
UNTESTED = {
    "src/base/fault_point.cc": "does nothing; fault_points_test.cc arms what takes its place",
    "src/testing/fakes/manual_executor.cc": "tests of base and query step with it",
    "bench/l1/bound_kernels.cu": "hps bench l1 compares the rows that they make and copy",
    "src/server/grpc_codec/fuzz_main.cc":
        "the entry point of libFuzzer; fuzz_replay_test.cc replays",
    "src/server/grpc/fuzz_main.cc": "the entry points of libFuzzer; fuzz_replay_test.cc replays",
    "src/server/pages/fuzz_main.cc": "the entry point of libFuzzer; key_lookup_test.cc replays",
    "src/server/http/fuzz_main.cc": "the entry point of libFuzzer; fuzz_replay_test.cc replays",
    "src/base/clock.cc": "reads the system's clock; every timed test uses it",
    "src/base/macros.cc": "ends the process; macros are used by every test",
    "src/model/config_values.cc": "config_test.cc reads values of every kind",
    "src/model/served_models_levels.cc": "device_level_test.cc divides level 1 through it",
    "src/l3_rocksdb/database_tables.cc": "tests/faults/switch_fault_test.cc fails disks under it",
    "src/l3_rocksdb/database_writes.cc": "tests/faults/resume_test.cc fails disks under it",
    "src/query/cache_lookup.cc": "needs a device cache: tests/query/cache_lookup_test.cc",
    "src/query/fetch/fetch_job.cc": "lookup_session_test.cc steps through its life",
    "src/query/fetch/level_fetch.cc": "lookup_session_test.cc asks failing, late and slow levels",
    "src/query/snapshot/served_table.cc": "model_state_test.cc makes, publishes and retires them",
    "src/query/session_factory.cc": "request_check_test.cc provokes each of its errors",
    "src/testing/faults/tier_faults.cc": "fault_tier_test.cc drives it through the tiers",
}
TESTED_BY = {
    "src/l1_gpu/gpu_cache_test.cc": [
        f"src/l1_gpu/kernels/{name}"
        for name in ["convert_to_float32", "dump", "insert", "query", "scatter", "update"]],
    "src/l2_memory/memory_tier_test.cc": [
        "memory_fetch", "memory_fetch_avx2", "memory_fetch_avx512", "memory_table",
        "page_allocator", "partition",
        "reader_pool", "slot_pool", "table_layout"],
    "src/l3_rocksdb/rocks_store_test.cc": [
        "src/l3_rocksdb/import/bulk_import", "catalog", "cursor",
        "src/l3_rocksdb/salvage/damage_log", "database", "sorted_fetch",
        "src/l3_rocksdb/import/import_commit", "src/l3_rocksdb/files/info_log",
        "src/l3_rocksdb/salvage/key_list", "src/l3_rocksdb/files/log_check",
        "src/l3_rocksdb/files/log_syncer", "src/l3_rocksdb/files/manifest_mark",
        "src/l3_rocksdb/files/owner_lock", "src/l3_rocksdb/import/part_writer",
        "src/l3_rocksdb/salvage/repair", "rocks_options", "row_codec",
        "src/l3_rocksdb/salvage/row_walk", "src/l3_rocksdb/salvage/entry_walk",
        "src/l3_rocksdb/files/space_guard", "src/l3_rocksdb/import/staging", "status",
        "src/l3_rocksdb/files/store_files", "store_table"],
    "src/model/config_test.cc": ["server_settings"],
    "src/server/core/inference_engine_test.cc": ["server_model"],
    "src/server/grpc/grpc_protocol_test.cc": ["grpc_connection_calls"],
    "src/server/http/http_connection_test.cc": ["http_call", "src/server/net/event_loop"],
    "src/server/http/credentials_test.cc": ["src/server/net/tls", "src/server/net/transport"],
    "src/server/pages/metrics_test.cc": ["snapshot"],
    "tests/cli/serve_test.py": ["src/server/server"],
    "tests/install/install_test.py": [
        "src/model/preload", "src/model/served_models", "src/model/store",
        "src/model/tier_factory"],
}
