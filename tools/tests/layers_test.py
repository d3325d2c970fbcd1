"""Plants one violation of each rule of layers.py: a check that cannot fail checks nothing."""

import unittest

from planted import PlantedTest

import layers

TREE = {
    "include/hps/types.h": "",
    "src/base/bytes.h": "",
    "src/tier/fence.h": "",
    "src/gpu/launch.h": "",
    "src/l2_memory/table.h": "",
    "src/l3_rocksdb/store.h": "",
    "src/query/session.h": "",
    "src/import/generate.h": "", "src/import/import.h": "", "src/import/reader.h": "",
    "src/types/units.h": "",
    "src/node/store.h": "",
    "bench/scenario.h": "",
}


class LayersTest(PlantedTest):
    def findings(self, path: str, text: str) -> list[str]:
        root = self.plant(TREE | {path: text})
        return [finding.message for finding in layers.check(root) if finding.path == path]

    def assert_refused(self, path: str, include: str, because: str) -> None:
        found = self.findings(path, f"#pragma once\n#include {include}\n")
        self.assertEqual(len(found), 1, found)
        self.assertIn(because, found[0])

    def assert_allowed(self, path: str, include: str) -> None:
        self.assertEqual(self.findings(path, f"#include {include}\n"), [])

    def test_up_and_sideways_includes_are_refused(self):
        for path, include, other in [
                ("include/hps/a.h", '"base/bytes.h"', "base/"),
                ("src/base/a.h", '"tier/fence.h"', "tier/"),
                ("src/tier/a.h", '"l2_memory/table.h"', "l2_memory/"),
                ("src/gpu/a.h", '"tier/fence.h"', "tier/"),
                ("src/l2_memory/a.cc", '"l3_rocksdb/store.h"', "l3_rocksdb/"),
                ("src/l2_memory/a_test.cc", '"l3_rocksdb/store.h"', "l3_rocksdb/"),
                ("src/l2_memory/a.cc", '"query/session.h"', "query/"),
                ("src/query/a.cc", '"l2_memory/table.h"', "l2_memory/"),
                ("src/query/a.cc", '"import/reader.h"', "import/"),
                ("src/import/a.cc", '"node/store.h"', "node/"),
                ("cli/a.cc", '"node/store.h"', "node/"),
                ("cli/a.cc", '"tier/fence.h"', "tier/"),
                ("cli/a.cc", '"import/import.h"', "import/"),
                ("cli/a.cc", '"bench/scenario.h"', "bench/"),
                ("src/server/a.cc", '"import/generate.h"', "import/"),
                ("src/server/a.cc", '"query/session.h"', "query/"),
                ("examples/a/main.cc", '"base/bytes.h"', "base/")]:
            with self.subTest(path=path, include=include):
                self.assert_refused(path, include, f"must not include {other}")

    def test_down_includes_are_allowed(self):
        for path, include in [
                ("src/base/a.h", '"hps/types.h"'), ("src/tier/a.h", '"base/bytes.h"'),
                ("src/gpu/a.h", '"base/bytes.h"'), ("src/l1_gpu/a.cc", '"gpu/launch.h"'),
                ("src/l2_memory/a.cc", '"tier/fence.h"'), ("src/node/a.cc", '"query/session.h"'),
                ("src/node/a.cc", '"l2_memory/table.h"'),
                ("cli/a.cc", '"base/bytes.h"'), ("cli/a.cc", '"types/units.h"'),
                ("cli/a.cc", '"import/generate.h"'), ("examples/a/b.cc", '"import/generate.h"'),
                ("src/server/a_test.cc", '"import/generate.h"'),
                ("tests/flow/a.cc", '"l2_memory/table.h"'), ("bench/a.cc", '"query/session.h"')]:
            with self.subTest(path=path, include=include):
                self.assert_allowed(path, include)

    def test_a_library_stays_behind_its_folder(self):
        for path, include, library in [
                ("src/query/a.cc", "<rocksdb/db.h>", "RocksDB"),
                ("src/query/a.cc", '"rocksdb/db.h"', "RocksDB"),
                ("src/import/a.cc", "<toml++/toml.h>", "toml++"),
                ("src/node/a.cc", "<CLI/CLI.hpp>", "CLI11"),
                ("src/node/a.cc", "<spdlog/spdlog.h>", "spdlog"),
                ("src/query/a.cc", "<nlohmann/json.hpp>", "nlohmann-json"),
                ("src/l2_memory/a.cc", "<xxhash.h>", "xxHash"),
                ("src/l2_memory/a.cc", "<cuda_runtime.h>", "CUDA"),
                ("src/l2_memory/b.cc", "<nv/target>", "CUDA"),
                ("src/absent/a.cc", "<cub/cub.cuh>", "CUDA"),
                ("src/base/a.cc", "<gtest/gtest.h>", "GoogleTest"),
                ("src/base/a_test.cc", "<benchmark/benchmark.h>", "Google Benchmark")]:
            with self.subTest(path=path, include=include):
                self.assert_refused(path, include, f"{library} does not belong")
        for path, include in [
                ("src/l3_rocksdb/a.cc", "<rocksdb/db.h>"), ("tests/a/a.cc", "<rocksdb/db.h>"),
                ("src/node/a.cc", "<toml++/toml.h>"), ("cli/a.cc", "<CLI/CLI.hpp>"),
                ("src/base/a.cc", "<spdlog/spdlog.h>"), ("src/import/a.cc", "<nlohmann/json.hpp>"),
                ("src/base/a_test.cc", "<gtest/gtest.h>"),
                ("src/testing/contracts/lossy_contract.h", "<gtest/gtest.h>"),
                ("src/l1_gpu/a.cu", "<cuda_runtime.h>"),
                ("src/l1_gpu/a_test.cu", "<gtest/gtest.h>"),
                ("src/query/a.cc", '"absl/strings/str_cat.h"'), ("src/query/a.cc", "<sys/mman.h>")]:
            with self.subTest(path=path, include=include):
                self.assert_allowed(path, include)

    def test_cuda_code_stays_in_its_folder(self):
        for path in ("src/query/a.cu", "src/node/a.cuh"):
            self.assertEqual(self.findings(path, "#pragma once\n"),
                             [f"CUDA does not belong into {path.split('/')[1]}/"])

    def test_public_headers_take_only_status_from_outside(self):
        self.assert_refused("include/hps/a.h", '"absl/strings/string_view.h"', "public headers")
        self.assert_refused("include/hps/a.h", "<rocksdb/db.h>", "public headers")
        self.assert_allowed("include/hps/a.h", '"absl/status/statusor.h"')

    def test_unknown_headers_are_refused(self):
        self.assert_refused("src/base/a.h", '"base/no_such.h"', "no header of this project")
        self.assert_refused("src/base/a.h", "<folly/Range.h>", "of no library")
        self.assert_refused("src/base/a.h", "<boost/asio.hpp>", "Boost does not belong")
        self.assert_refused("src/server/grpc/a.h", '"server/http/b.h"', "no header of this project")
        self.assert_refused("src/tier/a.h", "<base/bytes.h>", "use quotes")

    def test_a_new_folder_needs_a_place(self):
        self.assert_refused("src/new_folder/a.h", '"base/bytes.h"', "no place in the layers")

    def test_cmake_links_keep_the_layers(self):
        for path, text, because in [
                ("src/query/CMakeLists.txt", "hps_library(query SOURCES a.cc DEPENDS l2_memory)",
                 "query/ must not link l2_memory/"),
                ("src/l2_memory/CMakeLists.txt",
                 "hps_library(l2_memory\n  SOURCES a.cc\n  DEPENDS tier l3_rocksdb)",
                 "l2_memory/ must not link l3_rocksdb/"),
                ("src/l2_memory/CMakeLists.txt",
                 "hps_test(l2_memory SOURCES a_test.cc DEPENDS query)",
                 "l2_memory/ must not link query/"),
                ("src/network/CMakeLists.txt", "hps_fuzz(onnx SOURCES fuzz_target.cc DEPENDS node)",
                 "network/ must not link node/"),
                ("src/base/CMakeLists.txt",
                 "target_link_libraries(hps_base PUBLIC hps_tier)", "base/ must not link tier/"),
                ("cli/CMakeLists.txt", "target_link_libraries(hps PRIVATE hps_query)",
                 "cli/ must not link query/"),
                ("cli/CMakeLists.txt", "hps_library(cli SOURCES a.cc DEPENDS node bench)",
                 "cli/ must not link bench/"),
                ("src/l2_memory/CMakeLists.txt",
                 "hps_library(l2_memory SOURCES a.cc LIBRARIES CUDA::cudart_static)",
                 "CUDA does not belong into l2_memory/"),
                ("src/query/CMakeLists.txt",
                 "hps_library(query SOURCES a.cc LIBRARIES RocksDB::rocksdb)",
                 "RocksDB does not belong into query/"),
                ("src/query/CMakeLists.txt",
                 "hps_library(query SOURCES a.cc LIBRARIES GTest::gmock)",
                 "GoogleTest does not belong into query/")]:
            with self.subTest(text=text):
                found = self.findings(path, text)
                self.assertEqual(len(found), 1, found)
                self.assertIn(because, found[0])

    def test_allowed_cmake_links(self):
        for path, text in [
                ("src/query/CMakeLists.txt", "hps_library(query SOURCES a.cc DEPENDS base tier)"),
                ("src/node/CMakeLists.txt",
                 "hps_library(node DEPENDS query l2_memory LIBRARIES tomlplusplus::tomlplusplus)"),
                ("src/node/CMakeLists.txt", "hps_library(node DEPENDS tier ${HPS_LEVEL1})"),
                ("cli/CMakeLists.txt", "target_link_libraries(hps PRIVATE hps_node)"),
                ("src/query/CMakeLists.txt", "# hps_library(query DEPENDS l2_memory)"),
                ("bench/CMakeLists.txt", "hps_library(bench DEPENDS l2_memory query)")]:
            with self.subTest(text=text):
                self.assertEqual(self.findings(path, text), [])

    def test_what_is_included_is_linked(self):
        root = self.plant(TREE | {
            "src/query/CMakeLists.txt": "hps_library(query SOURCES a.cc DEPENDS base)",
            "src/query/a.cc": '#include "tier/fence.h"\n'})
        self.assertEqual([finding.message for finding in layers.check(root)],
                         ["query/CMakeLists.txt does not link tier/ (tier/fence.h)"])

    def test_links_of_links_count(self):
        root = self.plant(TREE | {
            "src/query/CMakeLists.txt": "hps_library(query SOURCES a.cc DEPENDS tier)",
            "src/tier/CMakeLists.txt": "hps_library(tier SOURCES a.cc DEPENDS base)",
            "src/query/a.cc": '#include "base/bytes.h"\n'})
        self.assertEqual(layers.check(root), [])


if __name__ == "__main__":
    unittest.main()
